"""A lane of a thread's vector statement as a statement of its own, and of those of the threads
beside it.

Where the lanes of a thread go on where those of the thread before end, they may be shared out
otherwise: each thread begins ``by`` lanes later, or takes one of every so many.
"""

from __future__ import annotations

from selector.ir.affine import to_affine
from selector.ir.lanes import lane
from selector.ir.nodes import Expr, IntImm, Store, Var
from selector.ir.simplify import add, div, mod
from selector.ir.traverse import map_expr, substitute

LANE = Var("$l0")


def one_lane(s: Store) -> Store:
    """Lane ``LANE`` of a statement."""
    digits, p = ((LANE, s.value.type.lanes),), s.predicate
    predicate = None if p is None else lane(p, digits) if p.type.lanes > 1 else p
    return Store(s.buffer, lane(s.index, digits), lane(s.value, digits), predicate)


def later(one: Store, by: Expr) -> Store:
    """The lane that lies so many behind."""
    return _where(one, {LANE.name: add(LANE, by)})


def goes_on(one: Store, thread: str, lanes: int) -> bool:
    """Whether what lies behind the last lane is what the next thread begins with."""
    of_next = _where(one, {thread: add(Var(thread), IntImm(1))})
    return _ordered(later(one, IntImm(lanes))) == _ordered(of_next)


def dealt(s: Store, thread: str, turn: Expr) -> Store:
    """A lane of a statement whose lanes go on where those of the thread before end: number ``turn``
    of all their elements.
    """
    lanes = IntImm(s.value.type.lanes)
    return _where(one_lane(s), {thread: div(turn, lanes), LANE.name: mod(turn, lanes)})


def _where(one: Store, values: dict[str, Expr]) -> Store:
    predicate = None if one.predicate is None else substitute(one.predicate, values)
    index, value = substitute(one.index, values), substitute(one.value, values)
    return Store(one.buffer, index, value, predicate)


def _ordered(one: Store) -> Store:
    """The same with all sums in one order."""
    predicate = None if one.predicate is None else _in_order(one.predicate)
    return Store(one.buffer, _in_order(one.index), _in_order(one.value), predicate)


def _in_order(e: Expr) -> Expr:
    e = map_expr(e, _in_order)
    return to_affine(e).to_expr(e.type) if e.type.is_integer and e.type.lanes == 1 else e


def same_index(a: Expr, b: Expr) -> bool:
    """Whether lanes of two statements touch the same elements."""
    if a == b:
        return True
    if a.type.lanes != b.type.lanes or a.type.lanes == 1:
        return a.type.lanes == b.type.lanes and (to_affine(a) - to_affine(b)).constant == 0
    digits = ((Var("$lane"), a.type.lanes),)
    return (to_affine(lane(a, digits)) - to_affine(lane(b, digits))).constant == 0
