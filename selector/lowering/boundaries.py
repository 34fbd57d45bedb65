"""Indices of what has a boundary condition: which part of them is that of the inside."""

from __future__ import annotations

from selector.ir.affine import Affine
from selector.ir.nodes import Binary, BinaryOp, Call, Expr, IntImm, Load, Select
from selector.ir.traverse import free_vars, map_expr, walk_expr
from selector.ir.types import INT32


def inner_side(a: Expr, b: Expr) -> Expr:
    """Of the two sides of a select the one that does not mirror or come around."""
    return min(a, b, key=_bends)


def comes_back(a: Expr, b: Expr) -> Expr | None:
    """Of the two sides of a select the one that mirrors or comes around at the ends of an array, if
    the other one does not.
    """
    inside = inner_side(a, b)
    other = b if inside is a else a
    divisors = [e.b for e in walk_expr(other) if isinstance(e, Binary) and e.op is BinaryOp.MOD]
    sizes = all(names and all(".extent." in n for n in names) for names in map(free_vars, divisors))
    bends = bool(divisors) and sizes and not any(_bent(e) for e in walk_expr(inside))
    return other if bends and other.type == INT32 else None


def near_ends(e: Expr) -> Expr:
    """A side that comes back, in C, which seldom lies so far off that it takes a division."""
    match e:
        case Call(t, "floor_mod", (a, b)) if not isinstance(b, IntImm):
            return Call(t, "floor_mod_near", (near_ends(a), near_ends(b)))
        case _:
            return map_expr(e, near_ends)


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
    """The least that a coordinate is, and the most, unless that is less, where it is clamped."""
    match coordinate.terms:
        case (((Binary(BinaryOp.MAX, Binary(BinaryOp.MIN, a, b), IntImm() as low),), 1),):
            loads = [any(isinstance(x, Load) for x in walk_expr(e)) for e in (a, b)]
            return Affine.of(low), Affine.of(a if loads[1] else b)
        case _:
            return ()


def _bends(e: Expr) -> tuple[int, int]:
    parts = list(walk_expr(e))
    return sum(map(_bent, parts)), len(parts)


def _bent(e: Expr) -> bool:
    return isinstance(e, Select) or (isinstance(e, Binary) and e.op is BinaryOp.MOD)
