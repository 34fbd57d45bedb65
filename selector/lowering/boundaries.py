"""Indices of what has a boundary condition: which part of them is that of the inside."""

from __future__ import annotations

from selector.ir.affine import Affine
from selector.ir.contents import holds
from selector.ir.nodes import Binary, BinaryOp, Expr, IntImm, Load, Select
from selector.ir.traverse import free_vars, walk_expr


def inner_side(a: Expr, b: Expr) -> Expr:
    """Of the two sides of a select the one that does not mirror or come around."""
    return min(a, b, key=_bends)


def unclamped(e: Expr, along: str) -> Expr:
    """An index along a variable without what keeps it inside: clamps, and sides that come back."""
    match e:
        case Binary(BinaryOp.MIN | BinaryOp.MAX, a, b) if along not in free_vars(b):
            return unclamped(a, along)
        case Binary(BinaryOp.MIN | BinaryOp.MAX, a, b) if along not in free_vars(a):
            return unclamped(b, along)
        case Select(_, a, b):
            return unclamped(inner_side(a, b), along)
        case Binary(BinaryOp.ADD | BinaryOp.SUB as op, a, b):
            return Binary(op, unclamped(a, along), unclamped(b, along))
        case _:
            return e


def clamps(coordinate: Affine) -> tuple[Affine, ...]:
    """The least that a coordinate is, and the most, unless that is less, where it is clamped; so
    many elements beside it, too.
    """
    beside = coordinate.offset
    match (coordinate - beside).terms:
        case (((Binary(BinaryOp.MAX, Binary(BinaryOp.MIN, a, b), IntImm() as low),), 1),):
            loads = [holds(e, Load) for e in (a, b)]
            return Affine.of(low) + beside, Affine.of(a if loads[1] else b) + beside
        case _:
            return ()


def _bends(e: Expr) -> tuple[int, int]:
    parts = list(walk_expr(e))
    return sum(map(_bent, parts)), len(parts)


def _bent(e: Expr) -> bool:
    return isinstance(e, Select) or (isinstance(e, Binary) and e.op is BinaryOp.MOD)
