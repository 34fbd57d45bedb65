"""What a ready-made operator consists of, as pipelines, kernels or paths of saved ones; and what is
known of those of ``halide_bridge.operators`` without Halide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from selector.diagnostics import ArgumentError

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
