"""Tensor instructions for stock Halide pipelines, chosen by equality saturation.

``compile`` turns a module of the loop IR into a ``Kernel``; ``load`` reads a saved one. Pipelines
in Halide come in through ``halide_bridge``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selector.api import Kernel, Service, SizedKernel, load, resolve_target
    from selector.api import compile_module as compile  # noqa: A004

__all__ = ["Kernel", "Service", "SizedKernel", "compile", "load", "resolve_target"]
_IN_API = {
    "Kernel": "Kernel",
    "Service": "Service",
    "SizedKernel": "SizedKernel",
    "compile": "compile_module",
    "load": "load",
    "resolve_target": "resolve_target",
}


def __getattr__(name: str) -> Any:
    """The public names, imported when first used: each room can be used without the others."""
    if name not in _IN_API:
        raise AttributeError(f"module 'selector' has no attribute {name!r}")
    from selector import api

    return getattr(api, _IN_API[name])
