"""``torch.compile(model, backend="tensor_selector")``: regions of a model as kernels of ours.

``backend`` is called by torch. ``grow`` chooses regions around products, ``read`` makes of each a
``RegionGraph`` that knows nothing of torch, ``selector.interop.regions`` finds or makes its kernel
(``halide_bridge.torch_backend`` translates), ``carve`` puts one operator (``library``) in its
place, ``report`` says what became of what.
"""

from selector.interop.torch_backend.backend import register, tensor_selector
from selector.interop.torch_backend.report import report

register()

__all__ = ["report", "tensor_selector"]
