"""What a ready-made operator consists of, as pipelines, kernels or paths of saved ones; and what is
known of those of ``halide_bridge.operators`` without Halide.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from selector import api
from selector.dataclass import dataclass
from selector.diagnostics import ArgumentError
from selector.kernel import Kernel

Shape = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Operator:
    """What ``interop.torch.torch_op`` takes, by its names."""

    kernel: Any
    backward: Any = None
    shape: str | Callable[..., Any] | None = None
    batched: tuple[str, ...] = ()


def ready(name: str, kernel: Any, backward: Any = None) -> Operator:
    """The ready-made operator of that name, from pipelines or files."""
    shape, batched = _RULES[name]
    return Operator(kernel, backward, shape, batched)


def asked_for(
    kernel: Any,
    shape: str | Callable[..., Any] | None,
    batched: Sequence[str],
    backward: Any,
    cpu: str,
) -> tuple[Operator, bool]:
    """What ``torch_op`` and its like are given, as an operator with its adjoint written out; and
    whether arrays on the CPU are interpreted. ``ArgumentError`` for another ``cpu``.
    """
    if isinstance(kernel, Operator):
        shape = kernel.shape if shape is None else shape
        batched = batched or kernel.batched
        backward = kernel.backward if backward is None else backward
        kernel = kernel.kernel
    if cpu not in ("refuse", "interpret"):
        raise ArgumentError(f"cpu={cpu!r} is neither 'refuse' nor 'interpret'")
    if backward == "adjoint":
        import halide_bridge

        backward = halide_bridge.adjoint(kernel)
    return Operator(kernel, backward, shape, tuple(batched)), cpu == "interpret"


def kernel_of(given: Any, target: str) -> Kernel:
    """A kernel, that of a file, or that of a pipeline, which is compiled."""
    if isinstance(given, Kernel):
        return given
    if isinstance(given, (str, os.PathLike)):
        return api.load(given)
    import halide_bridge

    return halide_bridge.compile(given, target=target, schedule="auto")


def _like_rows(a: Shape, weight: Shape, eps: float) -> Shape:
    del eps
    _same("weight", weight[0], "a", a[1])
    return a


def _rows_and_columns(a: Shape, b: Shape) -> Shape:
    _same("b", b[0], "a", a[1])
    return a[0], b[1]


def _same(name: str, found: Any, other: str, wanted: Any) -> None:
    if found != wanted:
        raise ArgumentError(
            f"{name}: axis 0 has {found} elements, and the last axis of {other} has {wanted}"
        )


_RULES: dict[str, tuple[str | Callable[..., Any], tuple[str, ...]]] = {
    "softmax": ("scores", ("scores",)),
    "rms_norm": (_like_rows, ("a",)),
    "filter_2d": ("image", ("image",)),
    "separable_filter": ("image", ("image",)),
    "unsharp": ("image", ("image",)),
    "matmul": (_rows_and_columns, ()),
}
