"""Rows that a thread asks memory for one turn before it computes with them.

    for v = -2 ... 32:                              next = a[-2]
      row = a[v]                                    for v = -2 ... 32:
      out[v] = f(row, ...)                  =>        row = next; next = a[min(v + 1, 31)]
                                                      out[v] = f(row, ...)

A thread that goes down rows waits for each of them otherwise, and few threads of such fit on a
multiprocessor. What is asked for is as it lies in memory: a thread that converts it waits for it.
Two turns ahead takes more registers than it saves time (Harris corners 31.6 -> 33.5 us).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from selector.ir.affine import to_affine
from selector.ir.contents import loaded
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Block,
    Expr,
    For,
    IntImm,
    Load,
    Memory,
    Ramp,
    Select,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import add
from selector.ir.traverse import expr_children, map_expr, substitute, substitute_stmt, walk_expr
from selector.lowering.normalize import flatten, sequence
from selector.lowering.structure import stored_names
from selector.targets import VECTOR_BYTES

AHEAD = "row.ahead."  # what is asked for is called
FEWEST = 4  # turns of a loop that is worth it
MOST = 24  # elements of four bytes that a thread asks for at once


def asked_ahead(loops: Sequence[For], own: Set[str]) -> list[Stmt]:
    """Loops each of which goes on where the one before it ends, with such rows, if the last ones
    have any. ``own``: what each thread has.
    """
    ends = [turns_of(loop) for loop in loops]
    last, name = loops[-1], loops[-1].name
    end = ends[-1]
    kept = frozenset(own).union(*map(stored_names, loops))
    rows, start = _rows(last, name, kept), len(loops) - 1
    if end is None or not rows or end[1] - end[0] < FEWEST:
        return [*loops]
    if sum(e.type.lanes * max(4, e.type.bytes) // 4 for e in rows) > MOST:
        return [*loops]
    while start and _rows(loops[start - 1], name, kept) == rows and ends[start - 1]:
        start -= 1
    names = {e: f"{AHEAD}{name}.{n}" for n, e in enumerate(rows)}

    def asked(turn: Expr) -> list[Stmt]:
        return [Store(x, _elements(e), substitute(e, {name: turn})) for e, x in names.items()]

    begin = asked(IntImm((ends[start] or end)[0]))
    more = asked(Binary(BinaryOp.MIN, add(Var(name), IntImm(1)), IntImm(end[1] - 1)))
    s: Stmt = Block((*begin, *(_made(loop, name, names, more) for loop in loops[start:])))
    for e, own_name in names.items():
        elements = IntImm(_over(e) + e.type.lanes)
        s = Allocate(own_name, e.type.element, (elements,), Memory.REGISTER, s)
    return [*loops[:start], s]


def turns_of(loop: For) -> tuple[int, int] | None:
    """Where a loop begins, and behind its last turn, if these are numbers."""
    match loop.min, loop.extent:
        case IntImm(value=low), IntImm(value=turns):
            return low, low + turns
        case _:
            return None


def _rows(loop: For, name: str, kept: frozenset[str]) -> list[Expr]:
    """What its turns load of what they do not store, where they do so in any case: by a variable's
    name.
    """
    found = dict[Expr, None]()
    for s in sequence(flatten(loop.body)):
        match s:
            case Store(_, Ramp(IntImm(), IntImm(), _), value, None) if kept.isdisjoint(
                loaded(value)
            ):
                found |= dict.fromkeys(_asked(substitute(value, {loop.name: Var(name)})))
            case _:
                pass
    return [*found]


def _asked(e: Expr) -> Sequence[Expr]:
    """The parts of a value that lie in memory, or end there."""
    if isinstance(e, Load | Select) and _is_asked(e):
        return [e]
    return [x for part in expr_children(e) for x in _asked(part)]


def _is_asked(e: Expr) -> bool:
    match e:
        case Load(predicate=asked):
            return e.type.lanes > 1 and (asked is None or not loaded(asked))
        case Select(condition, then, other):
            sides = [x for x in (then, other) if loaded(x)]
            return not loaded(condition) and bool(sides) and all(map(_is_asked, sides))
        case _:
            return False


def _made(loop: For, name: str, names: Mapping[Expr, str], more: Sequence[Stmt]) -> For:
    """A loop that has such rows, and asks for ``more`` as soon as it has them."""

    def taken(e: Expr) -> Expr:
        found = names.get(e)
        return map_expr(e, taken) if found is None else Load(e.type, found, _elements(e))

    stmts = list[Stmt]()
    last = 0
    for s in sequence(flatten(substitute_stmt(loop.body, {loop.name: Var(name)}))):
        if isinstance(s, Store) and (value := taken(s.value)) != s.value:
            s, last = replace(s, value=value), len(stmts) + 1
        stmts.append(s)
    body = Block((*stmts[:last], *more, *stmts[last:]))
    return replace(loop, body=substitute_stmt(body, {name: Var(loop.name)}))


def _elements(e: Expr) -> Expr:
    return Ramp(IntImm(_over(e)), IntImm(1), e.type.lanes)


def _over(e: Expr) -> int:
    """How many elements behind a multiple of vectors a row begins, so that a vector in memory is
    one of the thread's array.
    """
    first = (x.base for x in walk_expr(e) if isinstance(x, Ramp))
    return to_affine(next(first, IntImm(0))).offset % (VECTOR_BYTES // e.type.bytes)
