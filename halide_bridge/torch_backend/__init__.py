"""Regions of PyTorch's graphs as plain Halide pipelines, scheduled and compiled.

``RegionGraph`` (``selector.interop.regions.graph``) in, a kernel out. A rule is one
function, registered by the operator's name in aten: ``values`` has what rules work with;
``pointwise``, ``views``, ``rows``, ``products``, ``convolutions`` and ``attention`` have the rules,
and ``region`` puts them together.
"""

from halide_bridge.torch_backend.region import compile_region, pipeline_of

__all__ = ["compile_region", "pipeline_of"]
