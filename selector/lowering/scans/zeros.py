"""Zeros in what a recurrence computes: samples before the first, outputs that are left out."""

from __future__ import annotations

from selector.ir.affine import settled
from selector.ir.nodes import Binary, BinaryOp, Cast, Expr, Load
from selector.ir.simplify import constant, float_constant, literal, simplify
from selector.ir.traverse import map_expr


def without_zeros(e: Expr) -> Expr:
    """With zero for what is read under no condition, and without zeros in sums, nor multiples."""
    return _folded(simplify(settled(e)))


def _folded(e: Expr) -> Expr:
    e = simplify(map_expr(e, _folded))
    match e:
        case Load(t, _, _, predicate) if predicate is not None and constant(predicate) == 0:
            return literal(0, t)
        case Binary(BinaryOp.ADD, a, b) if float_constant(a) == 0:
            return b
        case Binary(BinaryOp.ADD | BinaryOp.SUB, a, b) if float_constant(b) == 0:
            return a
        case Binary(BinaryOp.MUL, a, b):
            numbers = float_constant(a), float_constant(b)
            return literal(0, e.type) if None not in numbers and 0 in numbers else e
        case Cast(t, value) if float_constant(value) == 0:
            return literal(0, t)
        case _:
            return e
