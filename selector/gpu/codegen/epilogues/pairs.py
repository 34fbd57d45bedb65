"""Values of 16 bits, two at a time.

An accumulator's lane holds neighbours (``read_outs``), which go as one register to memory or to the
next product. What is computed on f16 ahead of that, a select or a sum for instance, is computed on
both halves by one instruction (PTX ISA: add, mul, min, max, set on ``.f16x2``). The IR speaks
of the f32 operation, rounded to f16: that is the same number, since f32 has twice the digits and
two.
"""

from __future__ import annotations

from collections.abc import Callable

from selector.ir.nodes import Binary, BinaryOp, Call, Compare, CompareOp, Expr, FloatImm, Select
from selector.ir.types import FLOAT16, UINT32

_ARITHMETIC = {
    BinaryOp.ADD: "pair_add",
    BinaryOp.SUB: "pair_sub",
    BinaryOp.MUL: "pair_mul",
    BinaryOp.MIN: "pair_min",
    BinaryOp.MAX: "pair_max",
}
_COMPARISONS = {
    CompareOp.EQ: "pair_eq",
    CompareOp.LT: "pair_lt",
    CompareOp.LE: "pair_le",
    CompareOp.GT: "pair_gt",
    CompareOp.GE: "pair_ge",
}


def pair_of(e: Expr, leaf: Callable[[Expr], Expr]) -> Expr | None:
    """A scalar f16 value as a pair, made of the pairs that ``leaf`` gives; None where nothing of it
    is computed in f16.
    """

    def value(x: Expr) -> Expr:
        found = pair_of(x, leaf)
        return leaf(x) if found is None else found

    match e:
        case Binary(op, a, b) if e.type == FLOAT16 and op in _ARITHMETIC:
            return _call(_ARITHMETIC[op], value(a), value(b))
        case Call(_, "abs", (a,)) if e.type == FLOAT16:
            return _call("pair_abs", value(a))
        case Select(Compare(op, a, b), y, z) if _is_pair_select(e):
            return _select(_call(_COMPARISONS[op], value(a), value(b)), y, z, value)
        case _:
            return None


def _call(name: str, *pairs: Expr) -> Expr:
    return Call(UINT32, name, pairs)


def _is_pair_select(e: Select) -> bool:
    match e.condition:
        case Compare(op, a, _):
            return e.type == FLOAT16 and a.type == FLOAT16 and op in _COMPARISONS
        case _:
            return False


def _select(mask: Expr, y: Expr, z: Expr, value: Callable[[Expr], Expr]) -> Expr:
    if _is_zero(z):
        return _call("bitwise_and", mask, value(y))
    if _is_zero(y):
        return _call("bitwise_and", _call("bitwise_not", mask), value(z))
    return _call("pair_select", mask, value(y), value(z))


def _is_zero(e: Expr) -> bool:
    return isinstance(e, FloatImm) and str(e.value) == "0.0"
