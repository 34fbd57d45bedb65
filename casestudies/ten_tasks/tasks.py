"""The tasks by name: the arrays of a size, and what they are in torch. Needs neither Halide nor
torch to be imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Task:
    """``arrays``: shapes of the inputs, in order, and of the output (``""``), of a size.
    ``paper``: the size there, ``others`` ragged ones. ``torch``: of the same arguments, those of
    ``numbers`` last.
    """

    name: str
    arrays: Callable[..., Mapping[str, Shape]]
    torch: Callable[..., Any]
    paper: Shape
    others: tuple[Shape, ...]
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])

    def inputs(self, size: Shape) -> dict[str, Shape]:
        return {name: shape for name, shape in self.arrays(*size).items() if name}

    def output(self, size: Shape) -> Shape:
        return self.arrays(*size)[""]

    def sizes(self, size: Shape) -> dict[str, Shape]:
        """As ``hb.compile`` takes them."""
        return {**self.inputs(size), self.name: self.output(size)}

    def bytes(self, size: Shape) -> int:
        """Of all arrays, in f16."""
        return 2 * sum(map(prod, self.arrays(*size).values()))


def _lines(*names: str) -> Callable[..., Mapping[str, Shape]]:
    return lambda *size: dict.fromkeys((*names, ""), size)


def _product(first: str, second: str, *more: str) -> Callable[..., Mapping[str, Shape]]:
    """Of batches (if any), m x k and k x n; ``more`` are of the result's shape."""

    def arrays(*size: int) -> Mapping[str, Shape]:
        *batch, m, k, n = size
        rest = dict.fromkeys((*more, ""), (*batch, m, n))
        return {**rest, first: (*batch, m, k), second: (*batch, k, n), "": rest[""]}

    return arrays


def _layer(n: int, high: int, wide: int, channels: int, filters: int) -> Mapping[str, Shape]:
    image, output = (n, high, wide, channels), (n, high - 2, wide - 2, filters)
    return {"input": image, "filter": (filters, 3, 3, channels), "": output}


def _rope(batch: int, length: int, heads: int, depth: int) -> Mapping[str, Shape]:
    whole, table = (batch, length, heads, depth), (length, depth // 2)
    return {"input": whole, "sin": table, "cos": table, "": whole}


def _sdpa(batch: int, heads: int, queries: int, keys: int) -> Mapping[str, Shape]:
    mine, theirs = (batch, heads, queries, 64), (batch, heads, keys, 64)
    return {"query": mine, "key": theirs, "value": theirs, "": mine}


def _functional(name: str) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        import torch

        return getattr(torch.nn.functional, name)(*arguments, **options)

    return call


def _torch(name: str) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        import torch

        return getattr(torch, name)(*arguments, **options)

    return call


def conv2d(image: Any, w: Any) -> Any:
    found = _functional("conv2d")(image.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2))
    return found.permute(0, 2, 3, 1)


def rms_norm(a: Any) -> Any:
    return _functional("rms_norm")(a, a.shape[-1:], eps=1e-6)


def rope(a: Any, sin: Any, cos: Any) -> Any:
    (re, im), (s, c) = a.chunk(2, -1), (sin[:, None], cos[:, None])
    return _torch("cat")((re * c - im * s, re * s + im * c), -1)


def addmm(bias: Any, a: Any, b: Any, beta: float, alpha: float) -> Any:
    return _torch("addmm")(bias, a, b, beta=beta, alpha=alpha)


TASKS = (
    Task("add", _lines("input", "other"), _torch("add"), (1 << 24,), ((1,), (1001,), (262_143,))),
    Task(
        "addmm", _product("mat1", "mat2", "input"), addmm, (4096,) * 3,
        ((1, 8, 8), (300, 520, 712), (129, 1000, 264)), {"beta": 0.5, "alpha": 2.0},
    ),
    Task(
        "bmm", _product("input", "mat2"), _torch("bmm"), (4, 2048, 2048, 2048),
        ((3, 65, 72, 40), (1, 300, 520, 712), (7, 129, 16, 264)),
    ),
    Task(
        "conv2d", _layer, conv2d, (4, 14, 14, 512, 512),
        ((2, 9, 33, 16, 24), (1, 3, 3, 64, 64), (3, 20, 17, 136, 72)),
    ),
    Task(
        "mm", _product("input", "mat2"), _torch("mm"), (4096,) * 3,
        ((1, 8, 8), (300, 520, 712), (129, 1000, 264)),
    ),
    Task("rms_norm", _lines("input"), rms_norm, (4096, 4096), ((1, 8), (33, 1001), (5, 20000))),
    Task("rope", _rope, rope, (4, 1024, 48, 64), ((1, 1, 1, 64), (2, 77, 3, 64), (3, 33, 9, 64))),
    Task(
        "sdpa", _sdpa, _functional("scaled_dot_product_attention"), (4, 48, 1024, 1024),
        ((1, 1, 1, 1), (2, 3, 77, 77), (1, 5, 130, 1000)),
    ),
    Task("silu", _lines("input"), _functional("silu"), (1 << 24,), ((1,), (1001,), (262_143,))),
    Task(
        "softmax", _lines("input"), lambda a: _torch("softmax")(a, -1), (4096, 4096),
        ((1, 8), (33, 1001), (5, 20000)),
    ),
)  # fmt: skip
