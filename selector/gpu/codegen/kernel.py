"""One kernel: execution units, loops, shared memory, and the statements in between.

In a kernel with tensor statements the gpu_thread loops around them enumerate warps; a tensor
statement is executed by its warp. Every other statement is spread over the threads of the unit that
it stands in: the block outside thread loops, the warp inside, one thread inside thread loops that
hold no tensor statement. ``runs`` joins neighbours, ``units`` decides about barriers, ``pipelines``
and ``warpgroups`` write pipelined loops.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from math import prod

from selector.diagnostics import EmitError
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.emitter import Pipelines
from selector.gpu.codegen.epilogues.row_registers import assign_rows, row_arrays
from selector.gpu.codegen.epilogues.row_sums import row_sums
from selector.gpu.codegen.pipelines.box_mainloop import BoxMainloop, box_mainloop
from selector.gpu.codegen.pipelines.mainloop import Mainloop
from selector.gpu.codegen.placement import Placement, find_strips
from selector.gpu.codegen.products.accumulators import collect_accumulators
from selector.gpu.codegen.products.banded import BandTables
from selector.gpu.codegen.products.runs import Runs
from selector.gpu.codegen.products.tiles import TileEmitter
from selector.gpu.codegen.scalars.storage import c_type
from selector.gpu.codegen.threads.lanes import apart_loops, unconditional
from selector.gpu.codegen.threads.nest_code import NestCode
from selector.gpu.codegen.threads.nests import PLAIN_LOOPS
from selector.gpu.codegen.threads.plain import ThreadCode
from selector.gpu.codegen.threads.row_joins import holds_row_join
from selector.gpu.codegen.units import Unit, block_unit, group_unit, warp_unit
from selector.gpu.codegen.warpgroups.arrangement import last_for_all, refuse_unfed
from selector.gpu.codegen.warpgroups.iterations import is_loaded_fill
from selector.gpu.codegen.warpgroups.multistage import Multistage
from selector.gpu.codegen.warpgroups.persistent import Persistent, emit_persistent
from selector.gpu.codegen.warpgroups.products import GroupEmitter
from selector.gpu.codegen.warpgroups.tensor_mainloop import TensorMainloop
from selector.gpu.codegen.warpgroups.window_mainloop import WindowMainloop
from selector.gpu.codegen.warpgroups.window_products import WindowEmitter
from selector.gpu.codegen.warpgroups.windows import is_window
from selector.gpu.cuda.expressions import spell
from selector.gpu.ir.expressions import Number, equal, less, mixed_radix, moved, number
from selector.gpu.ir.nodes import Let
from selector.ir.contents import loaded
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
    Stmt,
    Store,
    Var,
)
from selector.ir.traverse import walk_stmt
from selector.lowering.kernels import Kernel
from selector.lowering.normalize import TENSOR_MEMORY, holds_tensor, is_tensor_store, sequence
from selector.lowering.row_folds import WARP
from selector.lowering.structure import (
    hoist_allocations,
    loaded_names,
    peel_threads,
    stored_names,
    thread_regions,
)
from selector.lowering.term_vectors import in_vectors

BANDS = "$bands"


class KernelEmitter:
    """Writes the body of one kernel into ``context.writer``."""

    def __init__(self, kernel: Kernel, context: KernelContext) -> None:
        self.kernel = kernel
        self.context = context
        self.tables = BandTables(context)
        self.tiles = TileEmitter(context, self.tables)
        self.groups = GroupEmitter(context, self.tiles.regions.fill)
        self.windows = WindowEmitter(context, self.tables)
        self.threads = ThreadCode(context)
        if not context.block.persistent:
            context.indices.counts.update(x.name for x in kernel.grid if x.min == IntImm(0))
            self.threads.grid = unconditional(sorted(context.indices.counts), kernel.body)
        self.nests = NestCode(context, self.threads)
        self.bands_filled = False
        self.pipelines = Pipelines()
        self.placement = Placement(kernel.body, context, kernel.own)
        self.exchanged = set(stored_names(kernel.body) & loaded_names(kernel.body))

    def emit(self) -> None:
        """The whole body."""
        c, body = self.context, self.kernel.body
        if c.block.group:
            self.pipelines.last = last_for_all(body)
        collect_accumulators(body, c, self.tables)
        self.windows.prepare(body)
        strips = c.shared.layouts.strips
        strips |= find_strips(body, engine=c.target.has("bulk"))
        self.placement.by_rows = row_arrays(body, c, self.tiles.regions.covered)
        strips |= {n: rows for n, rows in c.shared.layouts.windows.items() if rows.step > 1}
        self.exchanged -= c.registers.accumulators.keys() | self.placement.in_registers
        self.exchanged -= self.placement.by_rows.keys() | self.kernel.own
        if c.block.persistent or c.block.teams > 1:
            emit_persistent(self, TensorMainloop if c.block.tensor else Persistent)
        else:
            one_warp = holds_tensor(body) and not any(
                holds_tensor(s) for _, s in thread_regions(body)
            )
            unit = self._tensor_unit() if one_warp else block_unit(c.block.threads)
            self.statements(sequence(body), unit, in_warp=one_warp)
            unit.finish_copies(c.writer)
        if c.block.self_fed and not self.pipelines.fed:
            refuse_unfed(c.name)

    def _tensor_unit(self) -> Unit:
        return group_unit() if self.context.block.group else warp_unit()

    # ------------------------------------------------------------------ statements

    def statements(self, stmts: Iterable[Stmt], unit: Unit, *, in_warp: bool) -> None:
        """Statements in order, runs of tensor statements together."""
        Runs(self, unit, in_warp=in_warp).write(stmts)

    def sum_rows(self, stmts: tuple[Store, ...], unit: Unit) -> None:
        """Statements that are parts of one sum over rows."""
        self.groups.write_zeros()
        for s in stmts:
            self.before(s, unit)
        self.tiles.regions.sum_rows(stmts)

    def statement(self, s: Stmt, unit: Unit, *, in_warp: bool) -> None:
        """One that belongs to no run."""
        match s:
            case Block(stmts):
                self.statements(stmts, unit, in_warp=in_warp)
            case Allocate():
                self._allocate(s, unit, in_warp=in_warp)
            case Store() if is_tensor_store(s):
                self._tensor_store(s, unit)
            case For(kind=ForKind.GPU_THREAD):
                self._thread_region(s, unit)
            case For() if self.context.block.group and is_window(s):
                self.statements((s,), unit, in_warp=in_warp)
            case Store() if row_sums(s, self.context.registers.tiles):
                self.sum_rows((s,), unit)
            case Store(buffer) if buffer in self.context.registers.rows:
                self.before(s, unit)
                assign_rows(s, self.context)
            case For() | Store() | IfThenElse():
                self._loop_or_nest(s, unit, in_warp=in_warp)
            case LetStmt(name, value, body):
                self.before(Evaluate(value), unit)
                legal = self.context.scalar.legal(value)
                c_name = self.context.names.get(name)
                with self.context.writer.block():  # the same name may come again after it
                    self.context.writer.add(Let(c_type(value.type), (c_name,), (legal,)))
                    self.statement(body, unit, in_warp=in_warp)
            case Evaluate():
                pass
            case _:
                raise EmitError(f"a {type(s).__name__} statement has no form in a kernel")

    def _tensor_store(self, s: Store, unit: Unit) -> None:
        self.before(s, unit)
        if isinstance(s.value, Call) and s.value.name == "tile.fill":
            self.tiles.regions.fill(s)
        else:
            self.tiles.regions.read_out(s)

    def _loop_or_nest(self, s: Stmt, unit: Unit, *, in_warp: bool) -> None:
        nest = self.nests.find(s)
        if nest is not None:
            self.before(s, unit)
            self.nests.write(nest, unit)
            return
        match s:
            case For():
                self._uniform_loop(s, unit, in_warp=in_warp)
            case IfThenElse(c, t, f):
                self._branch(c, t, f, unit, in_warp=in_warp)
            case Store():
                self.before(s, unit)
                with self.context.writer.when(equal(unit.thread, 0)):
                    self.threads.statement(s)
            case _:
                raise EmitError(f"a {type(s).__name__} statement has no form in a kernel")

    def _branch(self, c: Expr, t: Stmt, f: Stmt | None, unit: Unit, *, in_warp: bool) -> None:
        if holds_tensor(t) or (f is not None and holds_tensor(f)):
            self.fill_bands(unit)
        w, other = self.context.writer, unit.state()
        with w.when(self.context.condition(c)):
            self.statements(sequence(t), unit, in_warp=in_warp)
        if f is not None:
            with w.otherwise():
                self.statements(sequence(f), other, in_warp=in_warp)
        unit.join(other)

    # ------------------------------------------------------------------ loops and thread regions

    def _uniform_loop(self, s: For, unit: Unit, *, in_warp: bool) -> None:
        """A serial loop that all threads of the unit run through together."""
        if self.pipelines.persistent is not None and s is self.pipelines.persistent.work.loop:
            self.pipelines.persistent.consume(unit)
            return
        if s.kind not in PLAIN_LOOPS:
            raise EmitError(f"a {s.kind.value} loop has no form here")
        allocations, body = hoist_allocations(s.body)
        staged = [a for a in allocations if self._is_staged(a)]
        read = self.context.shared.layouts.group_operands if self.context.block.group else ()
        operands = any(a.name in read for a in staged)  # of warpgroups
        if holds_tensor(s) and not operands:
            self.fill_bands(unit)
        boxed = box_mainloop(self, s, body, staged, in_warp=in_warp)
        for a in allocations:
            self.placement.place(a, unit, in_warp=in_warp)
        if staged:
            fed = Multistage if self.context.block.self_fed else WindowMainloop
            kind = fed if operands else Mainloop
            found = boxed or kind(self, s, body, staged)
            self.pipelines.fed |= isinstance(found, Multistage | BoxMainloop)
            found.emit(unit, in_warp=in_warp)
            return
        self.begin_again(body, unit)
        before = unit.state()
        self.pipelines.depth += 1
        with self.loop_head(s):
            self.statements(body, unit, in_warp=in_warp)
            unit.finish_copies(self.context.writer)  # what the next iteration may read first
        self.pipelines.depth -= 1
        if not isinstance(s.extent, IntImm):  # perhaps there was no iteration, and no barrier
            unit.join(before)

    def loop_head(self, s: For, skip: Number = 0) -> AbstractContextManager[None]:
        """The loop over the iterations of a serial loop but the first ``skip``; a context for its
        body.
        """
        name = self.context.names.get(s.name)
        low, extent = self.context.number(s.min), self.context.number(s.extent)
        return self.context.writer.loop(name, moved(low, skip), moved(low, extent), "rolled")

    def _thread_region(self, s: For, unit: Unit) -> None:
        loops, body = peel_threads(s)
        total = prod(e for _, e in loops)
        tensor = holds_tensor(body)
        if tensor:
            self.fill_bands(unit)
        tensor = tensor or bool(stored_names(body) & self.placement.by_rows.keys())
        nest = None if tensor else self.nests.find_fill(s, total, unit)
        if nest is not None:
            self.before(s, unit)
            self.nests.write(nest, unit)
            return
        self.before(s, unit)
        w = self.context.writer
        if tensor:
            with self.region(loops, body, unit) as inner:
                self.statements(sequence(body), inner, in_warp=True)
            return
        self.nests.note_threads(s, body, total, unit)
        own = self.kernel.own & (stored_names(body) | loaded_names(body))
        apart = frozenset[str]() if own else apart_loops(body, frozenset(name for name, _ in loops))
        self.threads.alone = {name: extent for name, extent in loops if name in apart}
        (first, count), *_ = loops
        self.threads.lane = first if first in apart and count == WARP else ""
        if own and in_vectors(body):
            self.context.indices.threads.update(name for name, _ in loops)
        if own or holds_row_join(body) or total <= unit.size:  # one turn a thread
            every = total == unit.size
            with w.block() if every else w.when(less(unit.thread, total)):
                w.add(Let("int", ("item",), (unit.thread,)))
                self._decode(loops, "item")
                self.threads.statement(body)
            return
        with w.loop("item", unit.thread, number(total), step=number(unit.size)):
            self._decode(loops, "item")
            self.threads.statement(body)

    @contextmanager
    def region(self, loops: list[tuple[str, int]], s: Stmt, unit: Unit) -> Generator[Unit]:
        """For statements, those of ``s``, that each warp or group does by itself, as loops over
        threads number it.
        """
        c, w, total = self.context, self.context.writer, prod(e for _, e in loops)
        every = total == c.block.warps and (self.pipelines.in_consumers or not c.block.producer)
        with w.block() if every else w.when(less(c.block.number, total)):
            c.indices.units.update(self._decode(loops, c.block.number))
            inner = self._tensor_unit()
            reads, writes = self._touched(s, set())
            own = {x.name for x in walk_stmt(s) if isinstance(x, Allocate)}
            inner.touch(own & unit.read, own & unit.written)
            yield inner
            inner.finish_copies(w)
            unit.touch(own & reads, own & writes)

    def _decode(self, loops: list[tuple[str, int]], numbered: str) -> dict[str, Var]:
        """Declare the variables of the loops; what stands for each: the digit that it is of the
        number ``numbered``.
        """
        found: dict[str, Var] = {}
        self.context.indices.few.update(name for name, extent in loops[:1] if extent < WARP)
        digits = mixed_radix(numbered, [extent for _, extent in loops[:-1]])
        for (name, _), digit in zip(loops, digits, strict=True):
            self.context.writer.add(Let("int", (self.context.names.get(name),), (digit,)))
            self.context.indices.counts.add(name)
            found[name] = self.context.names.stand(f"({spell(digit)})", digit)
        return found

    # ------------------------------------------------------------------ memory and barriers

    def _allocate(self, s: Allocate, unit: Unit, *, in_warp: bool) -> None:
        """Accumulators get a scope of their own: the same name may come again after it."""
        if s.memory in TENSOR_MEMORY:
            with self.context.writer.block():
                self.placement.place(s, unit, in_warp=in_warp)
                self.statements(sequence(s.body), unit, in_warp=in_warp)
            return
        self.placement.place(s, unit, in_warp=in_warp)
        self.statements(sequence(s.body), unit, in_warp=in_warp)

    def touched(self, s: Stmt) -> tuple[set[str], set[str]]:
        """Memory that a statement reads and writes, of what it and others of the kernel do."""
        return self._touched(s, {x.name for x in walk_stmt(s) if isinstance(x, Allocate)})

    def begin_again(self, stmts: Iterable[Stmt], unit: Unit) -> None:
        """Before an iteration of ``stmts``: the one before it may not be over. Memory allocated
        inside is the same in all of them; only pipelines are left when nobody uses them any more.
        """
        for s in stmts:
            unit.touch(*self._touched(s, self._kept_ahead(s)))

    def _kept_ahead(self, s: Stmt) -> set[str]:
        """What loops in it fill ahead. Of an allocation that a loop does not begin with nothing
        is, however many stages were asked for.
        """
        loops = (x for x in walk_stmt(s) if isinstance(x, For) and x.kind in PLAIN_LOOPS)
        return {a.name for x in loops for a in hoist_allocations(x.body)[0] if self._is_staged(a)}

    def _is_staged(self, a: Allocate) -> bool:
        return a.stages > 1 or a.name in self.context.block.slots

    def _touched(self, s: Stmt, without: set[str]) -> tuple[set[str], set[str]]:
        exchanged = self.exchanged - without
        reads = exchanged & loaded_names(s)
        return (reads | {BANDS}) if holds_tensor(s) else reads, exchanged & stored_names(s)

    def is_argument_fill(self, s: Store) -> bool:
        """Whether a statement fills an accumulator with numbers from few places of arrays that the
        kernel does not write: a bias, say.
        """
        read_only = self.context.host.params.keys() - self.exchanged
        filled = s.buffer in self.context.registers.accumulators and is_loaded_fill(s)
        return filled and loaded(s.value) <= read_only

    def before(self, s: Stmt, unit: Unit) -> None:
        """The barrier that a statement needs before it, and what it touches."""
        if is_tensor_store(s):
            self.fill_bands(unit)
        reads, writes = self.touched(s)
        if unit.must_wait(reads, writes):
            unit.wait(self.context.writer, reads | writes)
        unit.touch(reads, writes)
        panels = self.context.shared.layouts.panels
        rounding = {name for name in writes if name in panels and panels[name].rounds}
        unit.unrounded |= {name: self.context.storages[name] for name in rounding}

    def fill_bands(self, unit: Unit) -> bool:
        """Write the bands once, as late as their first use allows: copies are on their way. Whether
        this is the time.
        """
        if not self.tables or self.bands_filled:
            return False
        if unit.must_wait(self.tables.sources & self.exchanged, {BANDS}):
            unit.wait(self.context.writer)
        self.tables.fill(unit)
        if self.windows:
            self.context.writer.add(unit.barrier)
            self.windows.fill_bands(unit)
            unit.panels = True
        unit.written.add(BANDS)
        self.bands_filled = True
        return True
