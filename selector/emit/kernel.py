"""One kernel: grid, execution units, shared memory, barriers, and the statements in between.

Execution units. In a kernel with tensor statements the gpu_thread loops around them enumerate
warps; a tensor statement is executed by its warp. Every other statement is spread over the threads
of the unit it stands in: the block outside thread loops, the warp inside, one thread inside thread
loops that hold no tensor statement.

Barriers. Within a unit, a statement that touches memory which the unit has written (or overwrites
what it has read) since the last barrier is preceded by one. At the entry of a loop everything the
loop touches counts as touched, so that the state is the same for every iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import prod

from selector.diagnostics import EmitError, ScheduleError, Where
from selector.emit.banded import BandTables
from selector.emit.context import Accumulator, KernelContext, Region, slice_offset
from selector.emit.copies import as_copy, emit_copy, split_copy
from selector.emit.instructions import accumulator_declaration
from selector.emit.nests import PLAIN_LOOPS, as_nest, independent
from selector.emit.scalar import Space, Storage, c_type
from selector.emit.threads import ThreadCode
from selector.emit.tiles import TileEmitter
from selector.ir.affine import Affine
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
    Memory,
    Stmt,
    Store,
    Var,
)
from selector.ir.traverse import substitute_stmt, walk_all_exprs, walk_stmt
from selector.lowering.fragments import is_swapped
from selector.lowering.kernels import Kernel
from selector.lowering.normalize import TENSOR_MEMORY, holds_tensor, is_tensor_store, sequence
from selector.lowering.tiles import Accumulate, Banded, as_accumulate

BANDS = "$bands"


@dataclass(slots=True)
class Unit:
    """Threads that execute statements together: their number within it, how many, their barrier."""

    rank: str
    size: int
    barrier: str
    written: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    copying: bool = False  # asynchronous copies are in flight

    def touch(self, reads: set[str], writes: set[str]) -> None:
        self.read |= reads
        self.written |= writes


@dataclass(frozen=True, slots=True)
class Ring:
    """A loop whose staged buffers are rings of ``stages`` slots; with or without signals in shared
    memory.
    """

    loop: For
    staged: list[Allocate]
    producers: list[Stmt]
    stages: int
    signals: bool


class KernelEmitter:
    """Writes the body of one kernel into ``context.writer``."""

    def __init__(self, kernel: Kernel, context: KernelContext) -> None:
        self.kernel = kernel
        self.context = context
        self.tables = BandTables(context)
        self.tiles = TileEmitter(context, self.tables)
        self.threads = ThreadCode(context)
        self.tensor = holds_tensor(kernel.body)
        self.bands_filled = False
        self.loop_depth = 0
        self._offsets: dict[str, tuple[int, int]] = {}
        self._exchanged = _stored_names(kernel.body) & _loaded_names(kernel.body)

    def emit(self) -> None:
        """The whole body."""
        c = self.context
        regions = list(_thread_regions(self.kernel.body))
        warps = [prod(e for _, e in loops) for loops, body in regions if holds_tensor(body)]
        threads = [prod(e for _, e in loops) for loops, body in regions if not holds_tensor(body)]
        self._check_tensor_placement(bool(warps))
        c.warps = max(warps, default=1)
        c.threads = 32 * c.warps if self.tensor else max([1, *threads])
        if c.threads > c.target.max_threads:
            raise ScheduleError(
                f"`{c.name}` asks for {c.threads} threads per block; the limit is {c.target.max_threads}",
                "in a kernel with tensor statements a gpu_thread loop counts warps of 32 threads"
                if self.tensor
                else "",
                "use fewer or smaller gpu_thread loops",
            )
        self._collect_accumulates()
        self._exchanged -= self.context.accumulators.keys()
        unit = Unit("(int)threadIdx.x", c.threads, "__syncthreads();")
        if self.tensor and not warps:
            unit = Unit("lane", 32, "__syncwarp();")
        self._statements(sequence(self.kernel.body), unit, in_warp=self.tensor and not warps)
        if unit.copying:
            self._finish_copies(unit)

    def _check_tensor_placement(self, has_warps: bool) -> None:
        if not has_warps:
            return
        for s in _outside_threads(self.kernel.body):
            if is_tensor_store(s):
                assert isinstance(s, Store)
                raise ScheduleError(
                    f"a tensor statement of `{s.buffer}` stands outside the warps",
                    "other statements of its kernel are inside gpu_thread loops, which enumerate warps",
                    f"mark a loop of every stage of `{s.buffer}` with gpu_threads(...)",
                    Where(func=s.buffer),
                )

    # ------------------------------------------------------------------ accumulators and bands,
    # before the body

    def _collect_accumulates(self) -> None:
        """Find the shape of every accumulator and make room for the bands."""
        for name, allocation in self._tensor_allocations().items():
            self.context.accumulators[name] = Accumulator(
                self.context.names.fresh(name),
                str(allocation.type),
                0,
                {},
                allocation.type.bits == 16,
            )
        self._visit(self.kernel.body, {}, {})
        for name, a in list(self.context.accumulators.items()):
            total = max((r.offset + r.m * r.n for r in a.regions.values()), default=0)
            self.context.accumulators[name] = Accumulator(
                a.register, a.type_name, total // 128, _from_zero(a.regions), a.half
            )

    def _tensor_allocations(self) -> dict[str, Allocate]:
        found: dict[str, Allocate] = {}
        for s in walk_stmt(self.kernel.body):
            if isinstance(s, Allocate) and s.memory in TENSOR_MEMORY:
                found[s.name] = s
        return found

    def _visit(self, s: Stmt, loops: dict[str, tuple[Expr, Expr]], warps: dict[str, int]) -> None:
        match s:
            case For(name, low, IntImm(extent), ForKind.GPU_THREAD, body):
                self.context.thread_vars[name] = extent
                self._visit(body, loops, {**warps, name: extent})
            case For(name, low, extent, _, body):
                self._visit(body, {**loops, name: (low, extent)}, warps)
            case Block(stmts):
                for x in stmts:
                    self._visit(x, loops, warps)
            case Allocate(body=body) | LetStmt(body=body):
                self._visit(body, loops, warps)
            case IfThenElse(_, t, f):
                self._visit(t, loops, warps)
                if f is not None:
                    self._visit(f, loops, warps)
            case Store():
                statement = as_accumulate(s)
                if statement is not None:
                    self._register(statement, loops)
            case _:
                pass

    def _register(self, s: Accumulate, loops: dict[str, tuple[Expr, Expr]]) -> None:
        offset = slice_offset(s.offset, self.context, s.accumulator)
        regions = self.context.accumulators[s.accumulator].regions
        region = Region(offset, s.m, s.n, is_swapped(s))
        known = regions.setdefault(offset, region)
        if known != region:
            raise EmitError(
                f"`{s.accumulator}` is used with tiles of {known.m} x {known.n} and {s.m} x {s.n} at one place",
                hint="give all its updates one shape",
            )
        for operand in (s.a, s.b):
            if isinstance(operand, Banded):
                self.tables.add(operand, loops)

    # ------------------------------------------------------------------ statements

    def _statements(self, stmts: Iterable[Stmt], unit: Unit, *, in_warp: bool) -> None:
        run: list[Accumulate] = []
        for s in stmts:
            accumulate = as_accumulate(s) if isinstance(s, Store) else None
            if accumulate is not None:
                if not run:
                    self._before(s, unit)
                else:
                    self._join(s, unit)
                run.append(accumulate)
                continue
            self._flush(run)
            self._statement(s, unit, in_warp=in_warp)
        self._flush(run)

    def _join(self, s: Stmt, unit: Unit) -> None:
        reads, writes = self._touched(s)
        if self._needs_barrier(unit, reads, writes):
            raise EmitError("memory is written between the parts of one run of tensor statements")
        unit.touch(reads, writes)

    def _flush(self, run: list[Accumulate]) -> None:
        if run:
            self.tiles.accumulate(run)
            run.clear()

    def _statement(self, s: Stmt, unit: Unit, *, in_warp: bool) -> None:
        match s:
            case Block(stmts):
                self._statements(stmts, unit, in_warp=in_warp)
            case Allocate():
                self._allocate(s, unit, in_warp=in_warp)
            case Store() if is_tensor_store(s):
                self._tensor_store(s, unit)
            case For(kind=ForKind.GPU_THREAD):
                self._thread_region(s, unit)
            case For() | Store() | IfThenElse():
                self._loop_or_nest(s, unit, in_warp=in_warp)
            case LetStmt(name, value, body):
                text = self.context.scalar.expr(value)
                c_name = self.context.names.get(name)
                self.context.writer.line(f"const {c_type(value.type)} {c_name} = {text};")
                self._statement(body, unit, in_warp=in_warp)
            case Evaluate():
                pass
            case _:
                raise EmitError(f"a {type(s).__name__} statement has no form in a kernel")

    def _tensor_store(self, s: Store, unit: Unit) -> None:
        self._before(s, unit)
        if isinstance(s.value, Call) and s.value.name == "tile.fill":
            self.tiles.fill(s)
        else:
            self.tiles.read_out(s)

    def _loop_or_nest(self, s: Stmt, unit: Unit, *, in_warp: bool) -> None:
        nest = None if holds_tensor(s) else as_nest(s)
        if nest is not None:
            storage = self.context.storages.get(nest.store.buffer)
            if storage is not None and independent(nest, storage.param):
                self._before(s, unit)
                copy = as_copy(nest, self.context) if self.context.target.has("cp.async") else None
                if copy is not None:
                    emit_copy(copy, self.context, unit.rank, unit.size)
                    unit.copying = True
                else:
                    self.threads.spread(nest, unit.rank, unit.size)
                return
        match s:
            case For():
                self._uniform_loop(s, unit, in_warp=in_warp)
            case IfThenElse(c, t, f):
                self._branch(c, t, f, unit, in_warp=in_warp)
            case Store():
                self._before(s, unit)
                with self.context.writer.block(f"if ({unit.rank} == 0)"):
                    self.threads.statement(s)
            case _:
                raise EmitError(f"a {type(s).__name__} statement has no form in a kernel")

    def _branch(self, c: Expr, t: Stmt, f: Stmt | None, unit: Unit, *, in_warp: bool) -> None:
        reads, writes = self._touched(t)
        if f is not None:
            more_reads, more_writes = self._touched(f)
            reads, writes = reads | more_reads, writes | more_writes
        if holds_tensor(t) or (f is not None and holds_tensor(f)):
            self._fill_bands(unit)
        w = self.context.writer
        with w.block(f"if ({self.context.scalar.expr(c)})"):
            self._statements(sequence(t), unit, in_warp=in_warp)
        if f is not None:
            with w.block("else"):
                self._statements(sequence(f), unit, in_warp=in_warp)
        unit.touch(reads, writes)

    # ------------------------------------------------------------------ loops

    def _uniform_loop(self, s: For, unit: Unit, *, in_warp: bool) -> None:
        """A serial loop that all threads of the unit run through together."""
        if s.kind not in PLAIN_LOOPS:
            raise EmitError(f"a {s.kind.value} loop has no form here")
        if holds_tensor(s):
            self._fill_bands(unit, before_copies=False)
        allocations, body = _hoist_allocations(s.body)
        staged = [a for a in allocations if a.stages > 1]
        for a in allocations:
            self._place(a, unit, in_warp=in_warp)
        if staged:
            self._pipelined_loop(s, body, staged, unit, in_warp=in_warp)
            return
        for x in body:
            unit.touch(*self._touched(x))
        self.loop_depth += 1
        with self._loop_head(s):
            self._statements(body, unit, in_warp=in_warp)
        self.loop_depth -= 1

    def _loop_head(self, s: For, start: str | None = None):
        scalar, name = self.context.scalar, self.context.names.get(s.name)
        low, extent = scalar.index(s.min), scalar.index(s.extent)
        stop = extent if low == "0" else f"{low} + {extent}"
        self.context.writer.line("#pragma unroll 1")
        return self.context.writer.block(
            f"for (int {name} = {start or low}; {name} < {stop}; ++{name})"
        )

    def _pipelined_loop(
        self, s: For, body: list[Stmt], staged: list[Allocate], unit: Unit, *, in_warp: bool
    ) -> None:
        """Copies run ``stages - 1`` iterations ahead in a ring of buffers."""
        names = {a.name for a in staged}
        producers = [x for x in body if _stored_names(x) & names]
        rest = [x for x in body if not _stored_names(x) & names]
        if {a.stages for a in staged} != {staged[0].stages} or not producers:
            raise ScheduleError(
                "buffers staged in one loop need one number of pipeline stages",
                ", ".join(f"`{a.name}` has {a.stages}" for a in staged),
            )
        signals = not in_warp and self.loop_depth == 0
        ring = Ring(s, staged, producers, staged[0].stages, signals)
        self._start_ring(ring, unit)
        self._fill_bands(unit)
        self._run_ring(ring, rest, unit, in_warp=in_warp)
        w = self.context.writer
        w.line("copy_wait<0>();")
        w.line(unit.barrier)

    def _start_ring(self, ring: Ring, unit: Unit) -> None:
        """The first ``stages - 1`` iterations' copies."""
        c, w = self.context, self.context.writer
        loop, low, stop = self._bounds(ring.loop)
        if ring.signals:
            count = 2 * ring.stages
            offset = c.allocate_shared(8 * count, "barriers")
            w.line(
                f"const u32 full = shared_address(smem + {offset}), free_ = full + {8 * ring.stages};"
            )
            with w.block("if (threadIdx.x == 0)"):
                with w.block(f"for (int i = 0; i < {ring.stages}; ++i)"):
                    w.line(f"barrier_init(full + 8 * i, {2 * c.threads});")
                    w.line(f"barrier_init(free_ + 8 * i, {c.threads // 32});")
            w.line("__syncthreads();")
        w.line("#pragma unroll")
        with w.block(f"for (int ahead = 0; ahead < {ring.stages - 1}; ++ahead)"):
            w.line(f"const int {loop} = {low} + ahead;")
            with w.block(f"if ({loop} < {stop})"):
                self._produce(ring.producers, ring.staged, "ahead", unit)
            w.line("barrier_arrive_copies(full + 8 * ahead);" if ring.signals else "copy_commit();")

    def _bounds(self, s: For) -> tuple[str, str, str]:
        """Variable, first value and end of a loop, as text."""
        scalar = self.context.scalar
        loop, low, extent = (
            self.context.names.get(s.name),
            scalar.index(s.min),
            scalar.index(s.extent),
        )
        return loop, low, extent if low == "0" else f"{low} + {extent}"

    def _run_ring(self, ring: Ring, rest: list[Stmt], unit: Unit, *, in_warp: bool) -> None:
        """The loop: wait for a slot, use it, refill the one that the last iteration has left.

        With signals there is no barrier for the whole block: a slot is full when all its copies
        have arrived and free when every warp has said so, so that warps may drift apart by most of
        an iteration.
        """
        c, w = self.context, self.context.writer
        w.line("int slot = 0, round = 0;" if ring.signals else "int slot = 0;")
        with self._loop_head(ring.loop):
            if ring.signals:
                w.line("barrier_wait(full + 8 * slot, round & 1);")
            else:
                w.line(f"copy_wait<{ring.stages - 2}>();")
                w.line(unit.barrier)
            for a in ring.staged:
                self._point(a, "slot")
            unit.written.clear()
            unit.read.clear()
            pieces = self._refill(ring, unit)
            if self._every_warp_multiplies(rest):
                c.interleaved = pieces
            else:
                with w.block(""):
                    for piece in pieces:
                        piece()
            self.loop_depth += 1
            self._statements(rest, unit, in_warp=in_warp)
            self.loop_depth -= 1
            if ring.signals:
                w.line("__syncwarp();")
                w.line("if ((threadIdx.x & 31) == 0) barrier_arrive(free_ + 8 * slot);")
                w.line(f"if (slot == {ring.stages - 1}) ++round;")
            w.line(f"slot = slot == {ring.stages - 1} ? 0 : slot + 1;")

    def _refill(self, ring: Ring, unit: Unit) -> list[Callable[[], None]]:
        """The copies of a later iteration, into the slot that the last one has left, in pieces."""
        w, stages = self.context.writer, ring.stages
        loop, low, stop = self._bounds(ring.loop)
        ahead = (Affine.of(Var(ring.loop.name)) + (stages - 1)).to_expr()
        producers = [substitute_stmt(x, {ring.loop.name: ahead}) for x in ring.producers]
        split = self._split_copies(producers, unit)

        def head() -> None:
            w.line(f"const int next = slot == 0 ? {stages - 1} : slot - 1;")
            w.line(f"const bool more = {loop} + {stages - 1} < {stop};")
            if ring.signals:
                left = "round - (slot == 0)"
                w.line(f"if (more && {loop} > {low}) barrier_wait(free_ + 8 * next, ({left}) & 1);")
            for a in ring.staged:
                self._point(a, "next")
            for pieces in split or []:
                pieces[0]()
            if split is None:
                with w.block("if (more)"):
                    self._produce(producers, ring.staged, "next", unit)
            for a in ring.staged:
                self._point(a, "slot")

        def tail() -> None:
            w.line("barrier_arrive_copies(full + 8 * next);" if ring.signals else "copy_commit();")

        return [head, *(step for pieces in split or [] for step in pieces[1:]), tail]

    def _split_copies(
        self, producers: list[Stmt], unit: Unit
    ) -> list[list[Callable[[], None]]] | None:
        """Every producer as a split copy; None if one of them is none."""
        found: list[list[Callable[[], None]]] = []
        for x in producers:
            nest = as_nest(x)
            copy = as_copy(nest, self.context) if nest is not None else None
            pieces = copy and split_copy(copy, self.context, unit.rank, unit.size, "more")
            if pieces is None:
                return None
            found.append(pieces)
        return found

    def _point(self, a: Allocate, slot: str) -> None:
        """Let the buffer's name stand for one slot of its ring."""
        storage = self.context.storages[a.name]
        base = storage.pointer.split("[")[0].split(" +")[0].strip("(")
        pointer = f"({base} + {slot} * {_elements(a)})"
        self.context.storages[a.name] = _with_pointer(storage, pointer)

    def _every_warp_multiplies(self, stmts: list[Stmt]) -> bool:
        """Whether the statements are one run of accumulates that all warps execute."""
        match stmts:
            case [For(kind=ForKind.GPU_THREAD) as region]:
                loops, body = _peel_threads(region)
                parts = [as_accumulate(x) for x in sequence(body) if isinstance(x, Store)]
                alone = len(parts) == len(sequence(body)) and None not in parts
                return alone and prod(e for _, e in loops) == self.context.warps
            case _:
                return False

    def _produce(
        self, producers: list[Stmt], staged: list[Allocate], slot: str, unit: Unit
    ) -> None:
        for a in staged:
            self._point(a, slot)
        for x in producers:
            nest = as_nest(x)
            copy = as_copy(nest, self.context) if nest is not None else None
            if copy is not None:
                emit_copy(copy, self.context, unit.rank, unit.size)
            elif nest is not None and independent(nest, None):
                self.threads.spread(nest, unit.rank, unit.size)
            else:
                raise ScheduleError(
                    f"`{next(iter(_stored_names(x)))}` cannot be produced ahead of its use",
                    "only copies and element-wise stages can be pipelined",
                    "drop its pipeline_stages(...)",
                )

    # ------------------------------------------------------------------ thread loops

    def _thread_region(self, s: For, unit: Unit) -> None:
        loops, body = _peel_threads(s)
        total = prod(e for _, e in loops)
        tensor = holds_tensor(body)
        if tensor:
            self._fill_bands(unit)
        self._before(s, unit)
        w = self.context.writer
        if tensor:
            with w.block("" if total == self.context.warps else f"if (warp < {total})"):
                self._decode(loops, "warp")
                inner = Unit("lane", 32, "__syncwarp();")
                self._statements(sequence(body), inner, in_warp=True)
                if inner.copying:
                    self._finish_copies(inner)
            return
        with w.block(f"for (int item = {unit.rank}; item < {total}; item += {unit.size})"):
            self._decode(loops, "item")
            self.threads.statement(body)

    def _decode(self, loops: list[tuple[str, int]], number: str) -> None:
        rest = number
        for position, (name, extent) in enumerate(loops):
            last = position == len(loops) - 1
            text = rest if last else f"{rest} % {extent}"
            self.context.writer.line(f"const int {self.context.names.get(name)} = {text};")
            rest += f" / {extent}"

    # ------------------------------------------------------------------ memory and barriers

    def _allocate(self, s: Allocate, unit: Unit, *, in_warp: bool) -> None:
        """Accumulators get a scope of their own: the same name may come again after it."""
        if s.memory in TENSOR_MEMORY:
            with self.context.writer.block(""):
                self._place(s, unit, in_warp=in_warp)
                self._statements(sequence(s.body), unit, in_warp=in_warp)
            return
        self._place(s, unit, in_warp=in_warp)
        self._statements(sequence(s.body), unit, in_warp=in_warp)

    def _place(self, s: Allocate, unit: Unit, *, in_warp: bool) -> None:
        c = self.context
        if s.memory in TENSOR_MEMORY:
            a = c.accumulators[s.name]
            c.writer.line(accumulator_declaration(s.type.element, a.register, a.fragments))
            return
        if s.memory is Memory.AMX_TILE:
            raise ScheduleError(f"`{s.name}` is stored in an AMX tile; {c.target.name} has none")
        elements = _elements(s)
        copies = c.warps if in_warp and unit.rank == "lane" else 1
        size = -(-elements * s.type.bytes // 16) * 16
        total = size * copies * s.stages
        known = self._offsets.get(s.name)  # an earlier allocation of that name is over by now
        offset = known[0] if known and known[1] >= total else c.allocate_shared(total, s.name)
        self._offsets[s.name] = (offset, max(total, known[1] if known else 0))
        pointer = c.names.fresh(s.name)
        move = f" + warp * {size}" if copies > 1 else ""
        kind = c_type(s.type.element)
        c.writer.line(f"{kind}* const {pointer} = ({kind}*)(smem + {offset}{move});")
        c.storages[s.name] = Storage(pointer, s.type.element, Space.SHARED)

    def _touched(self, s: Stmt) -> tuple[set[str], set[str]]:
        """Memory that a statement reads and writes, of what the kernel both reads and writes."""
        exchanged = self._exchanged - {x.name for x in walk_stmt(s) if isinstance(x, Allocate)}
        reads = _loaded_names(s) & exchanged
        return (reads | {BANDS}) if holds_tensor(s) else reads, _stored_names(s) & exchanged

    def _needs_barrier(self, unit: Unit, reads: set[str], writes: set[str]) -> bool:
        return bool(reads & unit.written or writes & (unit.written | unit.read))

    def _before(self, s: Stmt, unit: Unit) -> None:
        """The barrier that a statement needs before it, and what it touches."""
        if is_tensor_store(s):
            self._fill_bands(unit)
        reads, writes = self._touched(s)
        if self._needs_barrier(unit, reads, writes):
            self._barrier(unit)
        unit.touch(reads, writes)

    def _barrier(self, unit: Unit) -> None:
        if unit.copying:
            self._finish_copies(unit)
        self.context.writer.line(unit.barrier)
        unit.written.clear()
        unit.read.clear()

    def _finish_copies(self, unit: Unit) -> None:
        self.context.writer.line("copy_commit();")
        self.context.writer.line("copy_wait<0>();")
        unit.copying = False

    def _fill_bands(self, unit: Unit, *, before_copies: bool = True) -> None:
        """Write the bands once, as late as their first use allows: copies are already on their way."""
        if self.tables and not self.bands_filled:
            self.tables.fill()
            self.bands_filled = True
            unit.written.add(BANDS)


def _elements(s: Allocate) -> int:
    total = 1
    for extent in s.extents:
        if not isinstance(extent, IntImm):
            raise ScheduleError(
                f"`{s.name}` has no constant size",
                "memory inside a kernel is laid out when it is compiled",
                "bound the extents it is computed over, or split by constants",
            )
        total *= extent.value
    return total


def _with_pointer(storage: Storage, pointer: str) -> Storage:
    from dataclasses import replace

    return replace(storage, pointer=pointer)


def _from_zero(regions: dict[int, Region]) -> dict[int, Region]:
    return dict(sorted(regions.items()))


def _stored_names(s: Stmt) -> set[str]:
    return {x.buffer for x in walk_stmt(s) if isinstance(x, Store)}


def _loaded_names(s: Stmt) -> set[str]:
    return {e.buffer for e in walk_all_exprs(s) if isinstance(e, Load)}


def _hoist_allocations(s: Stmt) -> tuple[list[Allocate], list[Stmt]]:
    """Allocations at the head of a loop body, and the statements below them in order."""
    allocations: list[Allocate] = []
    body: list[Stmt] = []
    for x in sequence(s):
        if isinstance(x, Allocate) and x.memory not in TENSOR_MEMORY:
            more, inner = _hoist_allocations(x.body)
            allocations += [x, *more]
            body += inner
        else:
            body.append(x)
    return allocations, body


def _peel_threads(s: For) -> tuple[list[tuple[str, int]], Stmt]:
    """(variable, extent) of directly nested thread loops, innermost first, and their body."""
    loops: list[tuple[str, int]] = []
    body: Stmt = s
    while isinstance(body, For) and body.kind is ForKind.GPU_THREAD:
        if not isinstance(body.extent, IntImm) or body.min != IntImm(0):
            raise ScheduleError(
                f"the thread loop {body.name} has no constant extent",
                hint="split by a constant and mark the inner loop with gpu_threads(...)",
            )
        loops.insert(0, (body.name, body.extent.value))
        body = body.body
    return loops, body


def _thread_regions(s: Stmt) -> Iterable[tuple[list[tuple[str, int]], Stmt]]:
    match s:
        case For(kind=ForKind.GPU_THREAD):
            yield _peel_threads(s)
        case _:
            from selector.ir.traverse import stmt_children

            for child in stmt_children(s):
                yield from _thread_regions(child)


def _outside_threads(s: Stmt) -> Iterable[Stmt]:
    from selector.ir.traverse import stmt_children

    if isinstance(s, For) and s.kind is ForKind.GPU_THREAD:
        return
    yield s
    for child in stmt_children(s):
        yield from _outside_threads(child)
