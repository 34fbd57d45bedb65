"""Matrix products: sums of float32 of factors that are read as they are stored, which is what
tensor units take.
"""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import halide

from halide_bridge.torch_backend.pointwise import converted
from halide_bridge.torch_backend.quantised import scaled
from halide_bridge.torch_backend.values import (
    FLOATS,
    Levels,
    Making,
    Value,
    computed,
    constant,
    domain,
    rule,
    unsupported,
)

hl: Any = halide


def factor(value: Value, index: Sequence[Any]) -> Any:
    """An element of an operand, of the type in which products are taken."""
    assert value.element is not None
    return hl.cast(computed(value.dtype), value.element(index))


def product(m: Making, a: Value, b: Value) -> Value:
    """The sums, in float32, of (batch,) m x k and k x n."""
    if a.dtype not in FLOATS or b.dtype not in FLOATS:
        raise unsupported(f"a product of {a.dtype}")
    if a.levels is not None and b.levels is not None:
        return _of_levels(m, a, b, a.levels, b.levels)
    a, b = m.operand(a, "left"), m.operand(b, "right")
    func, index = m.func("product"), m.variables(a.rank)
    *batch, row, column = index
    k = domain([a.shape[-1]], m.name("k"))
    args = tuple(reversed(index))
    func[args] = hl.cast(computed(a.dtype), 0)
    func[args] += factor(a, [*batch, row, k]) * factor(b, [*batch, k, column])
    kind = "float64" if a.dtype == "float64" else "float32"
    return Value(kind, (*a.shape[:-1], b.shape[-1]), lambda i: func[tuple(reversed(list(i)))])


def _of_levels(m: Making, a: Value, b: Value, left: Levels, right: Levels) -> Value:
    """The same of bytes, in int32: exact. Columns may have scales and zero points of their own."""
    left, right = (replace(v, stored=m.operand(v.stored, n)) for v, n in
                   ((left, "left"), (right, "right")))  # fmt: skip
    if right.axis not in (None, b.rank - 1):
        raise unsupported("scales along the sum")
    func, index = m.func("product"), m.variables(a.rank)
    *batch, row, column = index
    k = domain([a.shape[-1]], m.name("k"))
    args = tuple(reversed(index))
    func[args] = hl.i32(0)
    func[args] += left.factor([*batch, row, k]) * right.factor([*batch, k, column])

    def at(i: Sequence[Any]) -> Any:
        return scaled(func[tuple(reversed(list(i)))], left, right, right.of(i))

    return Value("float32", (*a.shape[:-1], b.shape[-1]), at)


def _result(m: Making, sums: Value) -> Value:
    return Value(m.dtype, sums.shape, lambda i: converted(sums.at(i), sums.dtype, m.dtype))


@rule("mm", "bmm")
def mm(m: Making, a: Value, b: Value) -> Value:
    return _result(m, product(m, a, b))


@rule("addmm", "baddbmm")
def addmm(
    m: Making, bias: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1
) -> Value:
    sums = product(m, a, b)

    def at(i: Sequence[Any]) -> Any:
        value = converted(sums.at(i), sums.dtype, m.dtype)
        if alpha != 1:
            value = value * constant(float(alpha), m.dtype)
        if beta == 0:
            return value
        added = converted(bias.broadcast(i), bias.dtype, m.dtype)
        return value + (added if beta == 1 else added * constant(float(beta), m.dtype))

    return Value(m.dtype, sums.shape, at)
