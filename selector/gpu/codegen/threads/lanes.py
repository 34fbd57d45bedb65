"""A lane of a thread's vector statement as a statement of its own, and of those of the threads
beside it.

Where the lanes of a thread go on where those of the thread before end, they may be shared out
otherwise: each thread begins ``by`` lanes later, or takes one of every so many.
"""

from __future__ import annotations

from collections.abc import Iterable

from selector.gpu.codegen.threads.nests import where
from selector.ir.affine import split_by_strides, to_affine
from selector.ir.lanes import lane, own_lane
from selector.ir.nodes import (
    Block,
    BufferParam,
    Compare,
    CompareOp,
    Expr,
    For,
    IfThenElse,
    IntImm,
    LetStmt,
    Stmt,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.simplify import add, div, mod
from selector.ir.traverse import (
    conjuncts,
    free_vars,
    map_expr,
    map_stmt,
    stmt_exprs,
    walk_expr,
    walk_stmt,
)
from selector.lowering.predicates import slack
from selector.lowering.structure import loaded_names, stored_names

LANE = Var("$l0")
UNROLLED_LANES = 64
"""Values, terms of sums counted, that a thread's vector statement is unrolled to."""


def one_lane(s: Store) -> Store:
    """Lane ``LANE`` of a statement."""
    digits, p = ((LANE, s.value.type.lanes),), s.predicate
    predicate = None if p is None else own_lane(p, digits)
    return Store(s.buffer, lane(s.index, digits), lane(s.value, digits), predicate)


def later(one: Store, by: Expr) -> Store:
    """The lane that lies so many behind."""
    return where(one, {LANE.name: add(LANE, by)})


def goes_on(one: Store, thread: str, lanes: int) -> bool:
    """Whether what lies behind the last lane is what the next thread begins with."""
    return _ordered(later(one, IntImm(lanes))) == _ordered(_next(one, thread))


def block_behind(
    one: Store, lanes: int, grid: Iterable[str], param: BufferParam | None
) -> str | None:
    """The loop over blocks each of which goes on where the one before ends, after so many
    ``lanes``; None where there is none, or nothing says where rows of the array end.
    """
    found = None if param is None else split_by_strides(one.index, param.dims)
    if param is None or found is None or one.predicate is None:
        return None
    room = to_affine(param.dims[0].extent) - to_affine(found[0]) - 1
    slacks = (slack(c) for c in conjuncts(one.predicate))
    if not any(s is not None and (s - room).constant == 0 for s in slacks):
        return None
    behind = _ordered(later(one, IntImm(lanes)))
    blocks = (b for b in grid if b in free_vars(one.index))
    return next((b for b in blocks if behind == _ordered(_next(one, b))), None)


def unconditional(blocks: Iterable[str], body: Stmt) -> tuple[str, ...]:
    """The loops over blocks all of which do the same, but that those from some number on may do
    nothing: no other condition, and no loop's length, depends on them.
    """
    held = frozenset[str]()
    for s in walk_stmt(body):
        match s:
            case IfThenElse(Compare(CompareOp.LT, Var(), below), _, None):
                held |= free_vars(below)
            case For() | IfThenElse() | LetStmt():
                held = held.union(*map(free_vars, stmt_exprs(s)))
            case _:
                pass
    return tuple(b for b in blocks if b not in held)


def _next(one: Store, loop: str) -> Store:
    """The same lane in the next iteration of a loop."""
    return where(one, {loop: add(Var(loop), IntImm(1))})


def dealt(s: Store, thread: str, turn: Expr) -> Store:
    """A lane of a statement whose lanes go on where those of the thread before end: number ``turn``
    of all their elements.
    """
    lanes = IntImm(s.value.type.lanes)
    return where(one_lane(s), {thread: div(turn, lanes), LANE.name: mod(turn, lanes)})


def _ordered(one: Store) -> Stmt:
    """The same with all sums in one order."""
    return map_stmt(one, lambda s: s, in_order)


def in_order(e: Expr) -> Expr:
    """The same with its sums in one order."""
    e = map_expr(e, in_order)
    return to_affine(e).to_expr(e.type) if e.type.is_integer and e.type.lanes == 1 else e


def is_short(s: Store) -> bool:
    """Whether a vector statement of one thread is short enough to be written out lane by lane."""
    sums = [e for e in walk_expr(s.value) if isinstance(e, VectorReduce)]
    terms = sum(e.value.type.lanes for e in sums)
    return max(s.value.type.lanes, terms) <= UNROLLED_LANES


def apart_loops(s: Stmt, loops: frozenset[str]) -> frozenset[str]:
    """Those of some loops over threads that do nothing else but loops, conditions that are the same
    for all threads along them, and stores, none of which reads what another one stores.
    """
    match s:
        case For(body=body):
            return apart_loops(body, loops)
        case IfThenElse(condition, body, None):
            return apart_loops(body, loops - free_vars(condition))
        case Block(stmts) if stored_names(s).isdisjoint(loaded_names(s)):
            return loops.intersection(*(apart_loops(x, loops) for x in stmts))
        case Store():
            return loops
        case _:
            return frozenset()
