"""Loops whose turns hand rows on in registers, without what is asked in each of them.

    for v = -6 ... 32:                                  for v = -4 ... -2: rows of a
      a[0] = a[1]; a[1] = a[2]; a[2] = load             for v = -2 ... 0: rows of a, rows of b
      if -2 <= v:                                  =>   for v = 0 ... 32:
        b[0] = b[1]; b[1] = b[2]; b[2] = f(a)             a[0] = a[1]; a[1] = a[2]; a[2] = load
        if 0 <= v: out[v] = g(b)                          b[0] = b[1]; b[1] = b[2]; b[2] = f(a)
                                                          out[v] = g(b)

The turns before the first result are known in number, and fewer than Halide has are enough: rows
that have been moved on are gone before anybody reads them. In the turns with results no condition
may leave rows where they are, so that where turns are written out, rows change their names and are
not moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from selector.dataclass import dataclass
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Block,
    Broadcast,
    Cast,
    Compare,
    CompareOp,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    LetStmt,
    Load,
    Memory,
    Ramp,
    Stmt,
    Store,
    Var,
)
from selector.ir.traverse import map_stmt, substitute_stmt, walk_all_exprs, walk_expr, walk_stmt
from selector.lowering.rows_ahead import asked_ahead, turns_of
from selector.lowering.structure import stored_names


def slides(loop: For) -> bool:
    """Whether a loop moves elements of what each thread has, from one place to another."""
    return loop.kind is ForKind.SERIAL and bool(_moved(loop.body))


def is_short_text(loop: For) -> bool:
    """Whether turns may be written out: what divides integers, where an image is repeated behind
    its ends, is long already.
    """
    return not any(
        isinstance(e, Binary)
        and e.op in (BinaryOp.DIV, BinaryOp.MOD)
        and e.type.is_integer
        and not isinstance(e.b, IntImm)
        for e in walk_all_exprs(loop.body)
    )


def begun_apart(s: Stmt, own: frozenset[str] = frozenset()) -> Stmt:
    """The statement with such loops as several: of the turns from one condition on to the next.
    ``own``: what each thread has.
    """
    inner = own
    if isinstance(s, Allocate) and s.memory in (Memory.REGISTER, Memory.STACK):
        inner = own | {s.name}
    s = map_stmt(s, lambda x: begun_apart(x, inner), lambda e: e)
    if not own or not isinstance(s, For) or s.kind is not ForKind.SERIAL:
        return s
    moved = {name: apart for name, apart in _moved(s.body).items() if name in own}
    if not moved:
        return s
    turns = turns_of(s)
    if turns is None:
        return s
    first, end = turns
    steps = [*_steps(s.body, Var(s.name), first)]
    needed = _needed(steps, moved, own)
    starts = sorted({*(step.start for step in steps), *needed.values()})
    starts = [n for n in starts if first <= n < end]
    if len(starts) < 2:
        return Block(tuple(asked_ahead([s], own)))
    parts = [
        _part(s, low, high, f"{s.name}.{n}" if high < end else s.name, needed)
        for n, (low, high) in enumerate(zip(starts, [*starts[1:], end], strict=True))
    ]
    parts = [part for part in parts if any(isinstance(x, Store) for x in walk_stmt(part))]
    return Block(tuple(asked_ahead(parts, own)))


@dataclass(frozen=True, slots=True)
class _Step:
    """What is done in the turns of a loop from ``start`` on, and where: ``stored``."""

    body: Stmt
    start: int
    stored: frozenset[str]


def _steps(s: Stmt, v: Expr, start: int) -> Iterator[_Step]:
    match s:
        case Block(stmts):
            for x in stmts:
                yield from _steps(x, v, start)
        case LetStmt():
            yield from _steps(s.body, v, start)
        case IfThenElse(Compare(CompareOp.LE, IntImm(value=n), b), then, None) if b == v:
            yield from _steps(then, v, max(n, start))
        case _:
            yield _Step(s, start, _targets(s))


def _targets(s: Stmt) -> frozenset[str]:
    """What a statement stores to that is there behind it."""
    return stored_names(s) - {x.name for x in walk_stmt(s) if isinstance(x, Allocate)}


def _moved(s: Stmt) -> dict[str, int]:
    """Arrays of each thread whose elements are moved, and by how many places at a time: all that
    is stored in them is moved so, or made of others.
    """
    own = {x.name for x in walk_stmt(s) if isinstance(x, Allocate)}
    found = dict[str, int]()
    for x in walk_stmt(s):
        match x:
            case Store(name, to, value) if name not in own and _reads(value, name):
                from_, to_ = _place_of(value, name), _place(to)
                apart = 0 if from_ is None or to_ is None else from_ - to_
                found[name] = apart if found.get(name, apart) == apart else 0
            case _:
                pass
    return {name: apart for name, apart in found.items() if apart > 0}


def _reads(value: Expr, name: str) -> bool:
    return any(isinstance(e, Load) and e.buffer == name for e in walk_expr(value))


def _place_of(value: Expr, name: str) -> int | None:
    """Where a vector of an array begins that a value is, as it is or as truth."""
    match value:
        case Load(_, buffer, index, None) if buffer == name:
            return _place(index)
        case Cast(_, inner) | Compare(CompareOp.NE, inner, IntImm() | Broadcast(IntImm())):
            return _place_of(inner, name)
        case _:
            return None


def _place(index: Expr) -> int | None:
    """Where a vector begins."""
    match index:
        case IntImm(value=n) | Ramp(IntImm(value=n), IntImm(), _):
            return n
        case _:
            return None


def _needed(steps: list[_Step], moved: Mapping[str, int], own: frozenset[str]) -> Mapping[str, int]:
    """From which turn on elements of ``own`` arrays are needed: of those that are moved on, as long
    before the first one that reads them as that reads back. None are left out where an order is
    another.
    """
    last = {name: n for n, step in enumerate(steps) for name in step.stored}
    back = {name: 0 for name in own - moved.keys() if _is_made_anew(steps, name)}
    newest = {name: max(_rows(steps, name), default=0) for name in moved}
    needed = dict[str, int]()
    for n, step in reversed([*enumerate(steps)]):
        known = newest.keys() | back.keys()
        begins = [needed.get(x, step.start) if x in known else step.start for x in step.stored]
        begin = min(begins, default=step.start)
        for load in (e for e in walk_all_exprs(step.body) if isinstance(e, Load)):
            name = load.buffer
            if name in known and name not in step.stored and name in last:
                if last[name] > n:
                    return {}
                turns = back.get(name, 0)
                if name in newest:
                    turns = -(-(newest[name] - (_place(load.index) or 0)) // moved[name])
                needed[name] = min(needed.get(name, begin - turns), begin - turns)
    return needed


def _is_made_anew(steps: list[_Step], name: str) -> bool:
    """Whether all that is read of an array is stored in the same turn."""
    stored, read = set[int](), set[int]()
    for step in steps:
        for x in walk_stmt(step.body):
            if isinstance(x, Store) and x.buffer == name:
                stored |= _elements(x.index, x.predicate)
        for e in walk_all_exprs(step.body):
            if isinstance(e, Load) and e.buffer == name:
                if name in step.stored or not (places := _elements(e.index, None)):
                    return False
                read |= places
    return read <= stored


def _elements(index: Expr, predicate: Expr | None) -> set[int]:
    """Which elements a vector is of; none if that is not known."""
    match index:
        case IntImm(value=n) if predicate is None:
            return {n}
        case Ramp(IntImm(value=n), IntImm(value=step), lanes) if predicate is None:
            return {n + step * i for i in range(lanes)}
        case _:
            return set()


def _rows(steps: list[_Step], name: str) -> Iterator[int]:
    """Where rows of an array begin that are stored."""
    for step in steps:
        for x in walk_stmt(step.body):
            if isinstance(x, Store) and x.buffer == name:
                yield _place(x.index) or 0


def _part(loop: For, low: int, high: int, name: str, needed: Mapping[str, int]) -> For:
    """The turns from one number to another one, where all conditions of numbers are known."""
    body = _known(loop.body, Var(loop.name), low, needed)
    body = substitute_stmt(body, {loop.name: Var(name)})
    return replace(loop, name=name, min=IntImm(low), extent=IntImm(high - low), body=body)


def _known(s: Stmt, v: Expr, low: int, needed: Mapping[str, int]) -> Stmt:
    match s:
        case Block(stmts):
            return Block(tuple(_known(x, v, low, needed) for x in stmts))
        case LetStmt():
            return replace(s, body=_known(s.body, v, low, needed))
        case IfThenElse(Compare(CompareOp.LE, IntImm(value=n), b), then, None) if b == v:
            return _known(then, v, low, needed) if n <= low else Block(())
        case _:
            stored = _targets(s)
            late = stored and all(needed.get(name, low) > low for name in stored)
            return Block(()) if late else s
