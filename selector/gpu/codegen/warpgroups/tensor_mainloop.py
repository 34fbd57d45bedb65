"""Kernels with accumulators in tensor memory, by three kinds of threads: three warps of a group
bring operands, a thread of its last one asks for all products, and the other groups take complete
sums out and store results.

A stage of the pipeline is free when the products that read it are complete: the thread's commits
say so to the group that feeds. They say the same of a run's sums to the groups, which tell the
thread when they have loaded them. Two runs' sums lie side by side where 512 columns hold them, so
that products go on while groups store.

Source: PTX ISA, ``tcgen05.commit``, ``tcgen05.alloc``.
"""

from __future__ import annotations

from math import prod

from selector.diagnostics import ScheduleError, Where
from selector.gpu.codegen.emitter import Emitter
from selector.gpu.codegen.units import Unit, named_sync
from selector.gpu.codegen.warpgroups.iterations import only_accumulates, read_by_threads
from selector.gpu.codegen.warpgroups.persistent import Persistent
from selector.gpu.codegen.warpgroups.products import is_zero_fill
from selector.gpu.codegen.warpgroups.tensor_sums import BEFORE, MEMORY, TILE, TensorEmitter, sums_of
from selector.gpu.codegen.warpgroups.turn_tiles import Repeated
from selector.gpu.codegen.warpgroups.turns import Turns
from selector.gpu.ir.expressions import (
    FIRST_LANE,
    THREAD,
    THREAD_OF_GROUP,
    equal,
    flag,
    less,
    minus,
    number,
    plus,
    quotient,
    shifted,
    signed,
)
from selector.gpu.ir.nodes import Assign, Fence, Leave, Let, State, Sync
from selector.gpu.ir.tensor import TensorAlloc, TensorFree, TensorMemory
from selector.ir.nodes import Allocate, Call, Expr, For, Stmt, Store
from selector.ir.traverse import walk_stmt

MORE = "more"  # whether sums were begun
WARP_ENDS = Leave("kernel")
FEEDERS = 3  # warps of the group of which the last one asks for products


class TensorMainloop(Persistent):
    """The pipeline of such a kernel."""

    leaves_out = False  # who takes sums out waits for those of all iterations

    def __init__(
        self, emitter: Emitter, loop: For, body: list[Stmt], staged: list[Allocate], turns: Turns
    ) -> None:
        super().__init__(emitter, loop, body, staged, turns)
        c = self.context
        self.sums = TensorEmitter(c, emitter.tiles.regions.fill)
        emitter.groups = self.sums
        self.runs = sums_of(self.work.consumers, c)
        self.sums.fresh = self._zeroed()
        self._check()
        self.sums.address = c.shared.allocate(16, "the address of tensor memory")

    @property
    def inside(self) -> bool:
        """Whether every iteration has sums of its own, which it also takes out; else all iterations
        add to one run's.
        """
        return only_accumulates(self.work.consumers) is None

    def _split(self) -> None:
        """One thread asks for products: nothing of an iteration is ahead."""

    def _check(self) -> None:
        c = self.context
        names = self.work.names
        every = all(prod(n for _, n in run.loops) == c.block.warps for run in self.runs)
        why = ""
        if read_by_threads(self.work.consumers, names):
            why = "threads read what is staged, which is free when products have read it"
        elif not self.runs or not every or (len(self.runs) > 1 and not self.inside):
            why = "not all groups have a part of every product"
        if why:
            raise ScheduleError(
                f"`{c.name}` cannot have its accumulators in tensor memory",
                why,
                "place them in MemoryType.WMMAAccumulator, or compile for sm_90a",
                Where(func=self.work.staged[0].name),
            )

    def _zeroed(self) -> frozenset[str]:
        """Accumulators that nothing but zeros is in when a run's sums are taken out."""
        names = [s.accumulator for run in self.runs for s in run.statements[:1]]
        body = self.emitter.kernel.body
        own = {s.name for x in self.work.consumers for s in walk_stmt(x) if isinstance(s, Allocate)}
        filled = {
            s.buffer
            for s in walk_stmt(body)
            if isinstance(s, Store) and _is_fill(s) and not is_zero_fill(s)
        }
        once = {name for name in names if names.count(name) == 1}
        return frozenset(n for n in once - filled if not self.inside or n in own)

    # ------------------------------------------------------------------ memory and barriers

    def _make(self) -> None:
        """Two barriers for each run's sums: they are complete, and all warps have loaded them."""
        c, w = self.context, self.context.writer
        arrivals = number(1), number(4 * c.block.warps)
        self.sums.pipeline.make(self._first_feeder(), *arrivals, "barriers of tensor memory")
        with w.when(self._asking()):
            w.add(TensorAlloc(self.sums.address, self.sums.columns.allocated))
            w.add(Fence("tensor_before"))
        super()._make()

    def _asking(self) -> Expr:
        """Whether this is the warp that asks for products."""
        return equal(shifted(THREAD, 5), 4 * self.context.block.warps + FEEDERS)

    def _feeders(self) -> Unit:
        """The other warps of its group."""
        threads = 32 * FEEDERS
        return Unit(signed(THREAD_OF_GROUP), threads, named_sync(plus(2, "group"), threads))

    def _releases(self) -> Expr:
        return number(1)

    def open(self, repeated: Repeated) -> None:
        super().open(repeated)
        self._find_memory()

    def _find_memory(self) -> None:
        """Where it is, for those who have met the warp that has allocated it."""
        w = self.context.writer
        w.add(Fence("tensor_after"))
        w.add(TensorMemory(MEMORY, self.sums.address, self.sums.columns.allocated))

    def _feed(self) -> None:
        w = self.context.writer
        with w.when(self._asking()):
            self._find_memory()
            with w.when(FIRST_LANE):
                self.pipeline.begin()
                w.add(State("int", (TILE,), (number(0),)))
                with self.turns.each(lets=True):
                    self._multiply()
                self._await_all()
            w.add(Sync("warp"))
            w.add(TensorFree(MEMORY, self.sums.columns.allocated))
            w.add(WARP_ENDS)
        super()._feed()

    # ------------------------------------------------------------------ the thread that asks

    def _multiply(self) -> None:
        """All products of a turn."""
        w = self.context.writer
        if not self.inside:
            self._begin_sums()
            w.add(State("int", (MORE,), (number(0),)))
        with self.emitter.loop_head(self.work.loop):
            self.pipeline.wait()
            w.add(Fence("tensor_after"))
            self._point("slot")
            for run in self.runs:
                if not self.inside:
                    self.sums.multiply(run, MORE)
                    w.add(Assign(MORE, number(1)))
                    continue
                with w.block():
                    self._begin_sums()
                    w.add(Fence("tensor_after"))
                    self.sums.multiply(run, "fresh")
                    self._end_sums()
            self.pipeline.release("matrix")
            self.pipeline.advance()
        if not self.inside:
            self._end_sums()

    def _begin_sums(self) -> None:
        """Where groups have loaded those of an earlier run."""
        self.sums.open_stage()
        with self.context.writer.when(flag(BEFORE)):
            self.sums.pipeline.acquire()

    def _end_sums(self) -> None:
        self.sums.pipeline.commit("matrix")
        self.context.writer.add(Assign(TILE, plus(TILE, 1)))

    def _await_all(self) -> None:
        """Nobody loads from tensor memory any more."""
        w, stages = self.context.writer, self.sums.columns.stages
        with w.loop("stage", number(0), number(stages)):
            uses = quotient(minus(plus(TILE, stages - 1), "stage"), stages)
            w.add(Let("int", ("uses",), (uses,)))
            with w.when(flag("uses")):
                self.sums.pipeline.acquire(phase=minus("uses", 1))
        w.add(Fence("tensor_after"))

    # ------------------------------------------------------------------ groups

    def take_part(self) -> None:
        self.context.writer.add(State("int", (TILE,), (number(0),)))

    def consume(self, groups: Unit) -> None:
        """Instead of the loop: take out its sums, or those of each iteration."""
        reads, writes = self.emitter.touched(self.work.loop)
        if groups.must_wait(reads, writes):
            groups.wait(self.context.writer)
        if self.inside:
            self._take_out(groups)
        else:
            (run,) = self.runs
            self.sums.load(list(run.statements), less(self.work.low, self.work.stop))
        if self.feed.boxes and not self.stores:
            self._make_room()

    def _take_out(self, groups: Unit) -> None:
        """What every iteration does besides its products."""
        with self._iterations(stores=True):
            self.emitter.begin_again(self.work.consumers, groups)
            self._use(groups, [], deferred=False)
        if self.sums.loaded != [run.statements for run in self.runs]:
            raise ScheduleError(
                f"`{self.context.name}` reads its accumulators between their products",
                "one thread asks for all products of a run, and groups wait for all of them",
                "define what is added to a tile without other statements in between",
            )


def _is_fill(s: Store) -> bool:
    return isinstance(s.value, Call) and s.value.name == "tile.fill"
