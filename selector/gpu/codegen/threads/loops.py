"""Loops of one thread whose statement needs no test in their first iterations.

    for i: if (n - 32 i - x > 0) { v = a[...] as a vector, if all of it is inside; s += v }

becomes a loop over the iterations that are wholly inside, in which loads may go ahead of each
other, and the loop as it was over the rest. How many there are follows from what has to be at least
zero: it falls, or rises, by a constant with each iteration.
"""

from __future__ import annotations

from collections.abc import Callable

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.storage import Space
from selector.gpu.codegen.threads.vector_code import emit_vectors
from selector.gpu.codegen.threads.vectors import Vectors, as_vectors, is_kept
from selector.gpu.ir.expressions import all_of, at_least, chosen, least, moved, plus, quotient
from selector.gpu.ir.nodes import Let
from selector.ir.affine import Affine
from selector.ir.contents import holds, nodes_of
from selector.ir.nodes import (
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    Load,
    ReduceOp,
    Stmt,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.traverse import conjuncts, free_vars
from selector.lowering.normalize import sequence
from selector.lowering.predicates import is_predicated, slack
from selector.lowering.structure import loaded_names


@dataclass(frozen=True, slots=True)
class WholeIterations:
    """The first iterations of a loop: the statements that are done in them, maybe as ``vectors``,
    ``tests`` that do not depend on the loop, and what has to be at least zero in each.
    """

    stores: tuple[Store, ...]
    vectors: tuple[Vectors, ...]
    tests: tuple[Expr, ...]
    rooms: tuple[Affine, ...]


def whole_iterations(s: For, context: KernelContext) -> WholeIterations | None:
    """None where a loop is short, or does something else."""
    if s.kind is not ForKind.SERIAL or s.extent == IntImm(1):
        return None
    inner = _stores(s.body)
    if inner is None or any(context.storages[x.buffer].space is not Space.LOCAL for x in inner[1]):
        return None
    conditions, stores = inner
    vectors = _vectors(s.name, stores, context)
    if vectors is None or not (vectors or conditions):
        return None
    rooms = [*dict.fromkeys(r + n for v in vectors for r, n in v.needs.least.items())]
    tests = [*dict.fromkeys(t for v in vectors for t in v.needs.tests)]
    for c in (part for condition in conditions for part in conjuncts(condition)):
        room = slack(c) if s.name in free_vars(c) else None
        if room is not None:
            rooms.append(room)
        else:
            tests.append(c)
    if any(holds(e, Load) for e in (*tests, *(r.to_expr() for r in rooms))):
        return None  # what decides may change in the loop
    own = [room.coefficient(Var(s.name)).constant for room in rooms]
    if None in own or any(s.name in free_vars(t) for t in tests):
        return None
    if any(r.rest(Var(s.name)).mentions(s.name) for r in rooms):
        return None
    return WholeIterations(stores, tuple(vectors), tuple(tests), tuple(rooms))


def _vectors(
    loop: str, stores: tuple[Store, ...], context: KernelContext
) -> tuple[Vectors, ...] | None:
    """The stores as vectors, or none of them; None where some are neither."""
    found = list[Vectors]()
    for store in stores:
        if _in_registers(loop, store, context):
            return None
        if store.value.type.lanes == 1:
            if store.predicate is not None or holds(store.value, VectorReduce):
                return None
            continue
        v = as_vectors(store, context)
        if v is None or not _are_loaded(v):
            return None
        found.append(v)
    return tuple(found) if len(found) in (0, len(stores)) else None


def _in_registers(turn: str, s: Store, context: KernelContext) -> bool:
    """Whether elements of a thread's own arrays are chosen by the loop: it has to be unrolled."""
    places = [(s.buffer, s.index), *((e.buffer, e.index) for e in nodes_of(s.value, Load))]
    own = (i for name, i in places if context.storages[name].space is Space.LOCAL)
    return any(turn in free_vars(index) for index in own)


def _are_loaded(v: Vectors) -> bool:
    """Whether a statement is about vectors that it loads, and asks nothing of strides."""
    loads = bool(v.windows) and all(w.per > 1 and not w.anywhere for w in v.windows)
    return loads and not is_kept(v) and not v.given


def _stores(s: Stmt) -> tuple[list[Expr], tuple[Store, ...]] | None:
    """The stores of a statement, of different arrays if several, and the conditions under which
    they are done.
    """
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
    parts = sequence(s)
    stores = tuple(x for x in parts if isinstance(x, Store))
    names = {x.buffer for x in stores}
    if len(names) < len(parts):
        return None
    loaded = frozenset[str]().union(*(loaded_names(x) - {x.buffer} for x in stores))
    return None if names & loaded else (conditions, stores)


def emit_whole(
    found: WholeIterations, s: For, context: KernelContext, statement: Callable[[Stmt], None]
) -> None:
    """Write the loop as two; ``statement`` writes a statement. Where nothing but a condition that
    once failed fails in all further iterations is tested, there is none behind.
    """
    w, scalar, name = context.writer, context.scalar, context.names.get(s.name)
    start, count = scalar.number(s.min), scalar.number(s.extent)
    own = [(room, room.coefficient(Var(s.name)).constant or 0) for room in found.rooms]
    first = [room.rest(Var(s.name)) + Affine.of(s.min) * factor for room, factor in own]
    held = [scalar.legal(t) for t in found.tests]
    condition = all_of([*held, *(at_least(scalar.number(r.to_expr()), 0) for r in first)])
    some = count
    for room, (_, factor) in zip(first, own, strict=True):
        if factor < 0:
            some = least(some, plus(quotient(scalar.number(room.to_expr()), -factor), 1))
    whole = context.names.fresh("whole")
    w.add(Let("int", (whole,), (some if condition is None else chosen(condition, some, 0),)))
    with w.loop(name, start, moved(start, whole), "fours"):
        for v in found.vectors:
            emit_vectors(v, context)
        for x in () if found.vectors else found.stores:
            statement(x)
    if not found.vectors and all(factor <= 0 for _, factor in own):
        return
    with w.loop(name, moved(start, whole), moved(start, count), "rolled"):
        statement(s.body)
