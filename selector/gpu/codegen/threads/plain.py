"""Plain code: nests spread over threads, and whole statements executed by one thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from math import prod

from selector.diagnostics import EmitError
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.epilogues.named_parts import named_parts
from selector.gpu.codegen.scalars.storage import Space, Storage, c_type
from selector.gpu.codegen.threads.bounds import emit_tested
from selector.gpu.codegen.threads.edges import (
    beside,
    emit_at_edges,
    emit_beside,
    reaches_edges,
)
from selector.gpu.codegen.threads.ends import Row, deal_out, emit_ends, whole_block
from selector.gpu.codegen.threads.fills import Flight, bring, brings, flight_of
from selector.gpu.codegen.threads.groups import emit_ahead, emit_together
from selector.gpu.codegen.threads.halos import with_halos
from selector.gpu.codegen.threads.interleaved import emit_interleaved
from selector.gpu.codegen.threads.lanes import dealt, is_short
from selector.gpu.codegen.threads.loops import emit_whole, whole_iterations
from selector.gpu.codegen.threads.neighbours import emit_neighbours
from selector.gpu.codegen.threads.nests import Nest, vector_digits
from selector.gpu.codegen.threads.reduced import expanded, lane_of
from selector.gpu.codegen.threads.row_joins import join_row
from selector.gpu.codegen.threads.row_vectors import (
    emit_row_number,
    emit_row_vectors,
    holds_row_vectors,
)
from selector.gpu.codegen.threads.runs import as_run, emit_run, is_copy
from selector.gpu.codegen.threads.scatters import as_scatter, emit_scatter
from selector.gpu.codegen.threads.sums import emit_sums, side_by_side
from selector.gpu.codegen.threads.tiles import emit_tile, tiles_of
from selector.gpu.codegen.threads.unrolled import emit_behind_one, emit_unrolled
from selector.gpu.codegen.threads.vector_code import (
    condition_of,
    emit_vectors,
    strides_flag,
    vector_flags,
)
from selector.gpu.codegen.threads.vector_fills import bring_rows, rows_of
from selector.gpu.codegen.threads.vectors import (
    Vectors,
    as_vectors,
    inner_vectors,
    thread_of,
    vectors_ahead,
)
from selector.gpu.ir.expressions import all_of, mixed_radix, number, plus, times
from selector.gpu.ir.memory import Array
from selector.gpu.ir.nodes import Let, Sync
from selector.ir.lanes import lane, no_index_of, own_lane, same_index
from selector.ir.nodes import (
    Allocate,
    Block,
    Call,
    Evaluate,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    LetStmt,
    Load,
    ReduceOp,
    Stmt,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.traverse import walk_expr
from selector.lowering.carried import hands_on
from selector.lowering.kept_rows import KEPT
from selector.lowering.predicates import is_predicated, test_of_all
from selector.lowering.row_marks import MEET
from selector.lowering.rows_ahead import AHEAD
from selector.lowering.sliding import is_short_text, slides
from selector.targets import VECTOR_BYTES

UNROLLED_STEPS = 32
TOGETHER = (  # statements that stand side by side
    emit_sums,
    emit_interleaved,
    emit_unrolled,
    emit_behind_one,
)


class ThreadCode:
    """Writes statements for single threads."""

    def __init__(self, context: KernelContext) -> None:
        self.context = context
        self.alone: dict[str, int] = {}  # loops over threads that do nothing but store
        self.lane = ""  # the loop over a warp's lanes, if it is one of those
        self.grid: tuple[str, ...] = ()  # loops over blocks, each from 0 on
        self.tiles: frozenset[str] = frozenset()  # arrays that come as vectors (``threads.tiles``)
        self.by_lanes = False  # where such do not
        self.whole: set[tuple[Store, ...]] = set()  # sums that need no test (``threads.sums``)

    # ------------------------------------------------------------------ spread over a unit

    def spread(self, nest: Nest, thread: Expr, size: int) -> None:
        """A nest whose iterations are independent, over ``size`` threads; ``thread``: the number of
        this one.
        """
        counts = [d.count for d in nest.digits if d.count is not None]
        most, whole = flight_of(nest), False
        if len(counts) == len(nest.digits):
            count = prod(counts)
            few = count % size == 0 and 1 < count // size <= UNROLLED_STEPS
            if few and self._copies_shared(nest):
                flight = Flight(thread, size, None, count // size)
                bring(nest, flight, self.context, self.digits, self._guarded)
                return
            total = number(count)
            rounds = -(-count // size)
            whole = count == size * min(rounds, most)
        else:
            total = reduce(times, (self.context.scalar.number(d.extent) for d in nest.digits))
            rounds = most
        if (rows := rows_of(nest, size, self.context)) is not None:
            bring_rows(rows, thread, size, self.context, self.digits)
            return
        if rounds > 1 and brings(nest, self.context):
            flight = Flight(thread, size, None if whole else total, min(rounds, most))
            bring(nest, flight, self.context, self.digits, self._guarded)
            return
        with self.context.writer.loop("i", thread, total, step=number(size)):
            self.digits(nest)
            self._guarded(nest.store, nest.condition)

    def digits(self, nest: Nest, values: Iterable[Expr] | None = None) -> None:
        """Declare the digits of iteration ``i``, or those of the given values."""
        extents = [self.context.scalar.number(digit.extent) for digit in nest.digits]
        values = mixed_radix("i", extents[:-1]) if values is None else values
        for digit, value in zip(nest.digits, values, strict=False):
            name = self.context.names.get(digit.var.name)
            self.context.writer.add(Let("int", (name,), (value,)))

    def _copies_shared(self, nest: Nest) -> bool:
        """Whether a nest stores elements of shared memory as they are."""
        value = nest.store.value
        known = self.context.storages.get(value.buffer) if isinstance(value, Load) else None
        return known is not None and known.space is Space.SHARED

    def _guarded(self, s: Store, condition: Expr | None, held: Expr | None = None) -> None:
        """A scalar store where the condition holds; ``held``: the value, if a thread has it."""
        scalar, w = self.context.scalar, self.context.writer
        test = all_of([scalar.legal(t) for t in (condition, s.predicate) if t is not None])
        to = scalar.access(self.context.storages[s.buffer], s.index)
        value = scalar.legal(s.value) if held is None else held
        with nullcontext() if test is None else w.when(test):
            w.store(to, named_parts(value, self.context))

    # ------------------------------------------------------------------ one thread

    def statement(self, s: Stmt) -> None:
        """A statement as one thread executes it."""
        w, scalar, names = self.context.writer, self.context.scalar, self.context.names
        match s:
            case Block(stmts):
                self._block(stmts)
            case Store():
                self._store(s)
            case For():
                self._loop(s)
            case IfThenElse(VectorReduce(ReduceOp.AND, lanes, 1), t, f) if (
                f is not None and is_predicated(t, lanes, f)
            ):
                self.statement(f)
            case IfThenElse(c, t, f):
                with w.when(scalar.legal(test_of_all(c))):
                    self.statement(t)
                if f is not None:
                    with w.otherwise():
                        self.statement(f)
            case LetStmt(name, value, body):
                with w.block():  # the same name may come again after it
                    own = names.get(name)
                    if not emit_row_number(s, self.context):
                        w.add(Let(c_type(value.type), (own,), (scalar.legal(value),)))
                    self.statement(body)
            case Allocate():
                self._allocated(s)
            case Evaluate(Call(_, name)) if name == MEET:
                w.add(Sync("cluster"))
            case Evaluate():
                pass
            case _:
                raise EmitError(f"a {type(s).__name__} statement has no form in a thread")

    def _block(self, stmts: Sequence[Stmt]) -> None:
        if self.by_lanes:
            for x in stmts:
                self.statement(x)
            return
        for part in () if emit_together(stmts, self) else side_by_side(stmts):
            if not (self._tiled(part) or any(emit(part, self) for emit in TOGETHER)):
                for x in part:
                    self.statement(x)

    def _loop(self, s: For) -> None:
        if (scatter := as_scatter(s, self.context)) is not None:
            emit_scatter(scatter, self.context)
            return
        if emit_neighbours(s, self):
            return
        name, scalar = self.context.names.get(s.name), self.context.scalar
        start, count = scalar.number(s.min), scalar.number(s.extent)
        stop = count if start == IntImm(0) else plus(start, count)
        rest = isinstance(s.min, IntImm) and s.min.value > 0  # behind one that is unrolled
        if (whole := whole_iterations(s, self.context)) is not None:
            emit_whole(whole, s, self.context, self.statement)
            return
        how = "unrolled" if s.kind is ForKind.UNROLLED else "rolled" if rest else "plain"
        if holds_row_vectors(s) and s.min == IntImm(0):
            how = "fours" if s.kind is ForKind.SERIAL else how
        if hands_on(s) or (s.min == IntImm(0) and slides(s) and is_short_text(s)):
            how = "fours"  # what turns do not wait for is loaded ahead, rows change their names
        if not emit_tested(s, start, stop, self):
            with self.context.writer.loop(name, start, stop, how):
                self.statement(s.body)

    def _allocated(self, s: Allocate) -> None:
        """With tiles among what is allocated, all of it twice: as vectors, and lane by lane."""
        tiles = None if self.tiles or self.by_lanes else tiles_of(s, self.context)
        if tiles is None:
            self._local(s)
            return
        w = self.context.writer
        with w.when(tiles.condition):
            self.tiles = tiles.names
            self._local(s)
            self.tiles = frozenset()
        with w.otherwise(), nullcontext() if tiles.stored is None else w.when(tiles.stored):
            self.by_lanes = True
            self._local(s)
            self.by_lanes = False

    def _tiled(self, stmts: Sequence[Stmt]) -> bool:
        return bool(self.tiles) and emit_tile(stmts, self.context)

    def _local(self, s: Allocate) -> None:
        total = 1
        for extent in s.extents:
            if not isinstance(extent, IntImm):
                raise EmitError(f"`{s.name}` is local to a thread and has no constant size")
            total *= extent.value
        name = self.context.names.get(s.name)
        self.context.storages[s.name] = Storage(name, s.type.element, Space.LOCAL)
        with self.context.writer.block():
            whole = s.name.startswith((KEPT, AHEAD)) or s.name in self.tiles
            alignment = VECTOR_BYTES if whole else 0
            self.context.writer.add(Array(name, c_type(s.type.element), total, alignment))
            self.statement(s.body)

    def _store(self, s: Store) -> None:
        lanes = s.value.type.lanes
        if join_row(s, self.context) or emit_row_vectors(s, self.context):
            return
        if lanes == 1:
            self._guarded(expanded(s, self.context), None)
            return
        extents = vector_digits(lanes, s.index)
        if self.by_lanes:
            self.each(s, extents, "rolled")
            return
        if self._tiled((s,)):
            return
        own = any(
            isinstance(e, Load)
            and e.buffer == s.buffer
            and not (same_index(e.index, s.index) or no_index_of(e.index, s.index))
            for e in walk_expr(s.value)
        )
        if own:
            raise EmitError(f"a vector of `{s.buffer}` is made from other elements of itself")
        run = as_run(s, self.context)
        copied = run is not None and is_copy(run, self.context)
        vectors = None if copied else as_vectors(s, self.context)
        if run is not None and (vectors is None or not vectors.windows):
            emit_run(run, self.context)
        elif vectors is not None:
            self._vectors(vectors, s, extents)
        else:
            self.each(s, extents)

    def _vectors(self, vectors: Vectors, s: Store, extents: tuple[int, ...]) -> None:
        """Rows that are not aligned are dealt out, so that neighbours store side by side."""
        thread = thread_of(vectors, self.alone)
        flags = vector_flags(vectors, self.context) if thread is not None else None
        if thread is None or flags is None:
            self._aligned(vectors, s, extents, thread)
            return
        with self.context.writer.when(flags):
            self._aligned(vectors, s, extents, thread)
        own = {vectors.lane.buffer, *(window.buffer for window in vectors.windows)}
        with self.context.writer.otherwise():
            self._unaligned(s, thread, given=not own.isdisjoint(self.context.host.params))

    def _unaligned(self, s: Store, thread: str, *, given: bool) -> None:
        """Rows that are not aligned. A thread begins where a vector may be stored; what is left, at
        both ends of what a row of threads has, they take one by one. Rows of what is not ``given``
        by the caller are.
        """
        w, several = self.context.writer, self.alone[thread] > 1
        vectors = vectors_ahead(s, thread, self.context) if several and given else None
        if vectors is None:
            deal_out(s, thread, self)
            return
        strides = strides_flag(vectors, self.context)
        with nullcontext() if strides is None else w.when(strides):
            emit_ahead((vectors,), (s,), thread, self)
        if strides is not None:
            with w.otherwise():
                deal_out(s, thread, self)

    def turns(self, s: Store, thread: str, turn: Expr, loop: AbstractContextManager[None]) -> None:
        """Elements one by one, by their numbers among those of a row of threads."""
        with loop:
            name = self.context.names.fresh("turn")
            self.context.writer.add(Let("int", (name,), (turn,)))
            self._guarded(dealt(s, thread, self.context.names.variable(name)), None)

    def _aligned(self, v: Vectors, s: Store, extents: tuple[int, ...], thread: str | None) -> None:
        """Blocks that read nothing beyond an edge do so at once; elsewhere, vectors of the threads
        whose lanes are all as they have to be, and what is left.
        """
        w, own = self.context.writer, self._in_registers(s)
        parts = with_halos(v, s, self.context) if own else ()
        for part in parts:
            self.statement(part)
        if parts:
            return
        near = None if own and isinstance(s.value, Load) else beside(v, self.context)
        edges = near is None and reaches_edges(v)
        inner = inner_vectors(s, self.context) if thread and not own and (near or edges) else None
        whole = None if inner is None else whole_block(inner.needs, self.alone, self.context)
        if inner is not None and whole is not None:
            with w.when(whole):
                emit_vectors(inner, self.context)
        with nullcontext() if whole is None else w.otherwise():
            needs, ended = near.needs if near else v.needs, False
            condition = condition_of(needs, v.given, self.context)
            if condition is not None and thread and not (edges or own or v.given):
                row, apart = Row(thread, self.alone[thread]), whole is not None
                condition, ended = emit_ends(needs, condition, (v,), (s,), row, self, apart=apart)
            with w.block() if condition is None else w.when(condition):
                if near is None:
                    emit_vectors(v, self.context)
                else:
                    emit_beside(v, near, self.context)
            if condition is None or ended:
                return
            with w.otherwise():
                left = emit_at_edges(v, self.context) if edges else None
                if left is not None or not edges:
                    with nullcontext() if left is None else w.otherwise():
                        self.each(s, extents, "unrolled" if own else "rolled")

    def _in_registers(self, s: Store) -> bool:
        """Whether its lanes are in arrays of the thread's own, whose places have to be known."""
        loads = (e for e in walk_expr(s.value) if isinstance(e, Load) and e.type.lanes > 1)
        loaded = {e.buffer for e in loads}
        places = (self.context.storages[name].space for name in {s.buffer, *loaded})
        return any(space is Space.LOCAL for space in places)

    def each(self, s: Store, extents: tuple[int, ...], how: str = "") -> None:
        """Lane by lane."""
        with self.context.writer.block():
            digits = tuple((Var(f"$l{i}"), n) for i, n in enumerate(extents))
            how = how or ("unrolled" if is_short(s) else "rolled")
            self._lanes(s, digits, len(digits) - 1, how)

    def _lanes(self, s: Store, digits: tuple[tuple[Var, int], ...], level: int, how: str) -> None:
        if level < 0:
            p = s.predicate
            scalar = Store(
                s.buffer,
                lane(s.index, digits),
                lane_of(s.value, digits, self.context),
                None if p is None else own_lane(p, digits),
            )
            self._guarded(scalar, None)
            return
        var, extent = digits[level]
        name = self.context.names.get(var.name)
        with self.context.writer.loop(name, number(0), number(extent), how):
            self._lanes(s, digits, level - 1, how)
