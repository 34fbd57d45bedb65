"""Loops of one thread whose vector statement needs no test in their first iterations.

    for i: if (n - 32 i - x > 0) { v = a[...] as a vector, if all of it is inside; s += v }

becomes a loop over the iterations that are wholly inside, in which loads may go ahead of each
other, and the loop as it was over the rest. How many there are follows from what has to be at least
zero: it falls, or rises, by a constant with each iteration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from selector.emit.context import KernelContext
from selector.emit.scalar import Space
from selector.emit.thread_vector_code import emit_vectors
from selector.emit.thread_vectors import Vectors, as_vectors, is_kept, is_predicated
from selector.gpu.ir.expressions import all_of, at_least, chosen, least, moved, plus, quotient
from selector.gpu.ir.nodes import Let
from selector.ir.affine import Affine
from selector.ir.nodes import (
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    ReduceOp,
    Stmt,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.traverse import conjuncts, free_vars
from selector.lowering.predicates import slack


@dataclass(frozen=True, slots=True)
class WholeIterations:
    """The first iterations of a loop: what is done in them, ``tests`` that do not depend on the
    loop, and what has to be at least zero in each.
    """

    vectors: Vectors
    tests: tuple[Expr, ...]
    rooms: tuple[Affine, ...]


def whole_iterations(s: For, context: KernelContext) -> WholeIterations | None:
    """None where a loop is short, or does something else."""
    if s.kind is not ForKind.SERIAL or s.extent == IntImm(1):
        return None
    inner = _store(s.body)
    if inner is None or inner[1].value.type.lanes == 1:
        return None
    conditions, store = inner
    if context.storages[store.buffer].space is not Space.LOCAL:
        return None
    vectors = as_vectors(store, context)
    if vectors is None or is_kept(vectors) or vectors.given:
        return None
    if not vectors.windows or any(w.per == 1 or w.anywhere for w in vectors.windows):
        return None
    rooms = [r + n for r, n in vectors.needs.least.items()]
    tests = list(vectors.needs.tests)
    for c in (part for condition in conditions for part in conjuncts(condition)):
        room = slack(c) if s.name in free_vars(c) else None
        if room is not None:
            rooms.append(room)
        else:
            tests.append(c)
    own = [room.coefficient(Var(s.name)).constant for room in rooms]
    if None in own or any(s.name in free_vars(t) for t in tests):
        return None
    if any(r.rest(Var(s.name)).mentions(s.name) for r in rooms):
        return None
    return WholeIterations(vectors, tuple(tests), tuple(rooms))


def _store(s: Stmt) -> tuple[list[Expr], Store] | None:
    """The only store of a statement, and the conditions under which it is done."""
    conditions = list[Expr]()
    while isinstance(s, IfThenElse):
        match s:
            case IfThenElse(condition, then, None):
                conditions.append(condition)
                s = then
            case IfThenElse(VectorReduce(ReduceOp.AND, lanes, 1), then, other) if (
                other is not None and is_predicated(then, lanes, other)
            ):
                s = other
            case _:
                return None
    return (conditions, s) if isinstance(s, Store) else None


def emit_whole(found: WholeIterations, s: For, start: Expr, context: KernelContext) -> Expr:
    """Write these iterations; where the others begin."""
    w, scalar, name = context.writer, context.scalar, context.names.get(s.name)
    held = [scalar.legal(t) for t in found.tests]
    held += [at_least(scalar.number(r.to_expr()), 0) for r in _at_start(found, s)]
    condition = all_of(held)
    count = scalar.number(s.extent)
    for room in _falling(found, s):
        by = -(room.coefficient(Var(s.name)).constant or 0)
        count = least(count, plus(quotient(scalar.number(_first(room, s).to_expr()), by), 1))
    whole = context.names.fresh("whole")
    w.add(Let("int", (whole,), (count if condition is None else chosen(condition, count, 0),)))
    stop = moved(start, whole)
    with w.loop(name, start, stop, "fours"):
        emit_vectors(found.vectors, context)
    return stop


def _falling(found: WholeIterations, s: For) -> Iterator[Affine]:
    return (r for r in found.rooms if (r.coefficient(Var(s.name)).constant or 0) < 0)


def _at_start(found: WholeIterations, s: For) -> Iterator[Affine]:
    """What there is room for in the first iteration."""
    return (_first(room, s) for room in found.rooms)


def _first(room: Affine, s: For) -> Affine:
    factor = room.coefficient(Var(s.name)).constant or 0
    return room.rest(Var(s.name)) + Affine.of(s.min) * factor
