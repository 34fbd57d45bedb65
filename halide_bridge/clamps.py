"""Clamps that a load's own mask, or what is known of the loops around it, makes idle.

A boundary of zeros is ``select(x < width, image[min(x, width - 1)], 0)``: the clamp keeps the
address inside where the value is not used. A masked load reads nothing there, so the clamp goes,
and what is left is an affine index, which can be copied in pieces of 16 bytes, or in boxes.

Halide leaves out the side of a mask that it can prove, ``0 <= x``, and then the clamp to it,
``max(x, 0)``, only where ``x`` is no vector: the others it leaves to the loops' bounds here.
"""

from __future__ import annotations

from collections.abc import Iterator

from halide_bridge.ramps import canonical_index
from selector.ir.affine import Affine, to_affine
from selector.ir.contents import holds
from selector.ir.lanes import own_lane
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Compare,
    Expr,
    For,
    IntImm,
    LetStmt,
    Load,
    Stmt,
    Var,
)
from selector.ir.traverse import map_expr, map_stmt, walk_expr
from selector.ir.types import INT32
from selector.lowering.predicates import slack
from selector.lowering.ranges import Ranges, loop_bounds

_LANE = Var("$lane")


def drop_idle_clamps(index: Expr, mask: Expr) -> Expr:
    """``index`` with ``min(a, b)`` and ``max(a, b)`` replaced by the side that they take wherever
    ``mask`` holds.
    """
    if not any(is_clamp(e) for e in walk_expr(index)):
        return index
    facts = [(c.type.lanes, room) for c in _conjuncts(mask) if (room := _room(c)) is not None]

    def at_most(a: Expr, b: Expr) -> bool:
        lanes = a.type.lanes
        difference = _scalar(b) - _scalar(a)
        rooms = [room for n, room in facts if n in (1, lanes)]
        return any(_is_less(room, difference) for room in (Affine(), *rooms))

    def rewrite(e: Expr) -> Expr:
        e = map_expr(e, rewrite)
        match e:
            case _ if _mentions_vector(e):
                return e
            case Binary(BinaryOp.MIN, a, b) if is_clamp(e):
                return a if at_most(a, b) else b if at_most(b, a) else e
            case Binary(BinaryOp.MAX, a, b) if is_clamp(e):
                return a if at_most(b, a) else b if at_most(a, b) else e
            case _:
                return e

    return rewrite(index)


class BoundedClamps:
    """Drops the clamps of loads' indices that the ``ranges`` of the loops and lets around them make
    idle: ``stmt`` is the statement without them.
    """

    def __init__(self, ranges: Ranges | None = None) -> None:
        self.ranges = ranges or Ranges()
        self._done: dict[int, tuple[Expr, Expr]] = {}  # by identity; the key object is kept alive

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case For(name):
                bounds = loop_bounds(s)
            case LetStmt(name, value) if value.type == INT32:
                bounds = value, value
            case _:
                return map_stmt(s, self.stmt, self.expr)
        # What is known by a variable's bounds is of that variable, and of no other of its name.
        known = Ranges() if name in self.ranges.bounds else self.ranges
        inner = BoundedClamps(known.extended({name: bounds}))
        return map_stmt(s, inner.stmt, self.expr)

    def expr(self, e: Expr) -> Expr:
        if not holds(e, Load):
            return e
        known = self._done.get(id(e))
        if known is None:
            known = self._done[id(e)] = (e, self._rewritten(map_expr(e, self.expr)))
        return known[1]

    def _rewritten(self, e: Expr) -> Expr:
        if not isinstance(e, Load) or not any(is_clamp(x) for x in walk_expr(e.index)):
            return e
        index = self._unclamped(e.index)
        if index is e.index:
            return e
        return Load(e.type, e.buffer, canonical_index(index, e.type.lanes), e.predicate)

    def _unclamped(self, e: Expr) -> Expr:
        e = map_expr(e, self._unclamped)
        if _mentions_vector(e):
            return e
        match e:
            case Binary(BinaryOp.MIN | BinaryOp.MAX as op, a, b) if is_clamp(e):
                less, more = (a, b) if op is BinaryOp.MIN else (b, a)
                return a if self._at_most(less, more) else b if self._at_most(more, less) else e
            case _:
                return e

    def _at_most(self, a: Expr, b: Expr) -> bool:
        lanes = {_LANE.name: (IntImm(0), IntImm(a.type.lanes - 1))}
        found = self.ranges.extended(lanes).interval(_scalar(b) - _scalar(a))
        return found is not None and self.ranges.at_least_zero(found[0])


def _is_less(room: Affine, than: Affine) -> bool:
    """Whether a value is not negative where another is not: at least so many times that."""
    times = than.times(room) or 0
    rest = (than - room * times).constant
    return times >= 0 and rest is not None and rest >= 0


def is_clamp(e: Expr) -> bool:
    """Whether a value is a minimum or maximum of integers as indices are."""
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
    if not isinstance(e, Compare) or e.a.type.element != INT32 or _mentions_vector(e):
        return None
    digits = ((_LANE, e.a.type.lanes),)
    return slack(Compare(e.op, own_lane(e.a, digits), own_lane(e.b, digits)))


def _mentions_vector(e: Expr) -> bool:
    """Whether there is a variable of several lanes: what a let around it has is not known here."""
    return any(isinstance(x, Var) and x.type.lanes > 1 for x in walk_expr(e))


def _scalar(e: Expr) -> Affine:
    return to_affine(own_lane(e, ((_LANE, e.type.lanes),)))
