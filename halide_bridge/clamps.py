"""Clamps that a load's own mask makes idle.

A boundary of zeros is ``select(x < width, image[min(x, width - 1)], 0)``: the clamp keeps the
address inside where the value is not used. A masked load reads nothing there, so the clamp goes,
and what is left is an affine index, which can be copied in pieces of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from selector.ir.affine import Affine, to_affine
from selector.ir.lanes import lane
from selector.ir.nodes import Binary, BinaryOp, Broadcast, Compare, CompareOp, Expr, Var
from selector.ir.traverse import map_expr, walk_expr
from selector.ir.types import INT32

_LANE = Var("$lane")


def drop_idle_clamps(index: Expr, mask: Expr) -> Expr:
    """``index`` with ``min(a, b)`` and ``max(a, b)`` replaced by the side that they take wherever
    ``mask`` holds.
    """
    if not any(_is_clamp(e) for e in walk_expr(index)):
        return index
    facts = [(c.type.lanes, room) for c in _conjuncts(mask) if (room := _room(c)) is not None]

    def at_most(a: Expr, b: Expr) -> bool:
        lanes = a.type.lanes
        difference = _scalar(b) - _scalar(a)
        rooms = [room for n, room in facts if n in (1, lanes)]
        known = ((difference - room).constant for room in (Affine(), *rooms))
        return any(rest is not None and rest >= 0 for rest in known)

    def rewrite(e: Expr) -> Expr:
        e = map_expr(e, rewrite)
        match e:
            case Binary(BinaryOp.MIN, a, b) if _is_clamp(e):
                return a if at_most(a, b) else b if at_most(b, a) else e
            case Binary(BinaryOp.MAX, a, b) if _is_clamp(e):
                return a if at_most(b, a) else b if at_most(a, b) else e
            case _:
                return e

    return rewrite(index)


def _is_clamp(e: Expr) -> bool:
    match e:
        case Binary(BinaryOp.MIN | BinaryOp.MAX, a, _):
            return a.type.element == INT32
        case _:
            return False


def _conjuncts(mask: Expr) -> Iterator[Expr]:
    """Comparisons that hold wherever the mask does, those of a broadcast without it."""
    match mask:
        case Binary(BinaryOp.AND, a, b):
            yield from _conjuncts(a)
            yield from _conjuncts(b)
        case Broadcast(value, _) if value.type.lanes == 1:
            yield from _conjuncts(value)
        case Compare(op, Broadcast(a, _), Broadcast(b, _)) if a.type.lanes == b.type.lanes == 1:
            yield Compare(op, a, b)
        case Compare():
            yield mask
        case _:
            return


def _room(e: Expr) -> Affine | None:
    """What a comparison says is not negative, in one lane; None if it is not of integers."""
    if not isinstance(e, Compare) or e.a.type.element != INT32:
        return None
    a, b = _scalar(e.a), _scalar(e.b)
    match e.op:
        case CompareOp.LT:
            return b - a - 1
        case CompareOp.LE:
            return b - a
        case CompareOp.GT:
            return a - b - 1
        case CompareOp.GE:
            return a - b
        case CompareOp.EQ | CompareOp.NE:
            return None


def _scalar(e: Expr) -> Affine:
    lanes = e.type.lanes
    return to_affine(lane(e, ((_LANE, lanes),)) if lanes > 1 else e)
