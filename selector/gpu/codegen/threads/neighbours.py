"""Loops of one thread over neighbours: what it reads side by side is loaded as vectors.

    for v < 8: for u < 8: s[0] += a[8*x + u + w*v]

is eight loads of eight elements where all of them are inside of their arrays, which is tested once,
ahead of all turns; elsewhere the loops stay as they are. Each statement is executed in the turn in
which it was, so that what it adds up comes in the same order.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.storage import Space
from selector.gpu.codegen.threads.lanes import LANE
from selector.gpu.codegen.threads.needs import Needs, Unknown
from selector.gpu.codegen.threads.nests import where
from selector.gpu.codegen.threads.sums import ThreadStatements
from selector.gpu.codegen.threads.vector_code import (
    declare,
    load_pieces,
    vector_condition,
    vector_flags,
)
from selector.gpu.codegen.threads.vectors import Vectors, vectors_of
from selector.gpu.codegen.threads.windows import Windows
from selector.gpu.ir.expressions import all_of, number
from selector.ir.contents import holds
from selector.ir.nodes import For, ForKind, IntImm, Load, Stmt, Store, Var, VectorReduce
from selector.ir.traverse import free_vars
from selector.lowering.normalize import sequence
from selector.targets import THREAD_LANES

WORD = 4  # bytes: smaller vectors are not worth it
BYTES = 256  # of a thread's registers that vectors of one turn take at most


@dataclass(frozen=True, slots=True)
class _Nest:
    """Loops, outermost first, whose lengths are known, and what they repeat."""

    outer: tuple[For, ...]
    inner: For
    stores: tuple[Store, ...]

    @property
    def lanes(self) -> int:
        return _length(self.inner)


def emit_neighbours(s: For, code: ThreadStatements) -> bool:
    """Write a loop if it is one over neighbours that a thread reads."""
    context, nest = code.context, _nest(s)
    vectors = () if nest is None else _as_vectors(nest, context)
    if nest is None or not vectors:
        return False
    w, names = context.writer, context.names
    last = vectors[-1]
    condition = all_of((vector_flags(last, context), vector_condition(last, context)))
    with w.block() if condition is None else w.when(condition), ExitStack() as turns:
        for loop in nest.outer:
            own = w.loop(names.get(loop.name), number(0), number(_length(loop)), "fours")
            turns.enter_context(own)
        for window in last.windows:
            declare(window, context)
            load_pieces(window, context)
        with w.loop(names.get(LANE.name), number(0), number(nest.lanes), "unrolled"):
            for v in vectors:
                code.statement(v.lane)
    if condition is None:
        return True
    with w.otherwise(), ExitStack() as turns:
        for loop in (*nest.outer, nest.inner):
            own = w.loop(names.get(loop.name), number(0), number(_length(loop)), "plain")
            turns.enter_context(own)
        for x in nest.stores:
            code.statement(x)
    return True


def _as_vectors(nest: _Nest, context: KernelContext) -> tuple[Vectors, ...]:
    """The statements with loads of windows, all of which the last one has; none where nothing is
    gained, or it cannot be told ahead of all turns when all of it is inside.
    """
    if any(context.storages[x.buffer].space is not Space.LOCAL for x in nest.stores):
        return ()
    windows = Windows(context, Needs(nest.lanes))
    ones = [where(x, {nest.inner.name: LANE}) for x in nest.stores]
    found = [v for one in ones if (v := vectors_of(one, nest.lanes, windows)) is not None]
    held = sum((w.high - w.first) * w.storage.type.bytes for w in windows.found)
    needs = _in_all_turns(windows.needs, nest)
    wide = any(w.per * w.storage.type.bytes >= WORD for w in windows.found) and held <= BYTES
    if len(found) < len(ones) or found[-1].given or needs is None or not wide:
        return ()
    return (*found[:-1], replace(found[-1], needs=needs))


def _in_all_turns(needs: Needs, nest: _Nest) -> Needs | None:
    """What has to hold in each turn of the outer loops; None where that is not known ahead."""
    found, turns = Needs(needs.lanes, tests=needs.tests), {x.name: _length(x) for x in nest.outer}
    asked = [*needs.tests, *(room.to_expr() for room in needs.least)]
    if any(holds(e, Load) for e in asked) or any(free_vars(t) & turns.keys() for t in needs.tests):
        return None
    try:
        for room, least in needs.least.items():
            room += least
            for name, count in turns.items():
                factor = room.coefficient(Var(name)).constant
                if factor is None:
                    return None
                room = room.rest(Var(name)) + min(0, factor * (count - 1))
            if any(room.mentions(name) for name in turns):
                return None
            found.everywhere(room)
    except Unknown:
        return None
    return found


def _nest(s: For) -> _Nest | None:
    """None where a loop is another one."""
    loops: list[For] = []
    body: Stmt = s
    while isinstance(body, For):
        known = isinstance(body.extent, IntImm) and body.min == IntImm(0)
        if body.kind is not ForKind.SERIAL or not known:
            return None
        loops.append(body)
        body = body.body
    stores = tuple(x for x in sequence(body) if isinstance(x, Store))
    if len(stores) < len(sequence(body)) or not 1 < _length(loops[-1]) <= THREAD_LANES:
        return None
    plain = all(x.predicate is None and x.value.type.lanes == 1 for x in stores)
    summed = any(holds(x.value, VectorReduce) for x in stores)
    return _Nest(tuple(loops[:-1]), loops[-1], stores) if plain and not summed else None


def _length(s: For) -> int:
    assert isinstance(s.extent, IntImm)
    return s.extent.value
