"""Pipelined loops around wgmma: a group of its own feeds the stages.

Every stage has two barriers. The producing group waits until all others have released a stage and
fills it (``feeding``); a group waits for that, issues its instructions, and releases the stage of
the iteration before, whose instructions are then complete. The producing group costs no registers:
it makes three warps of two on each of the four schedulers, as one warp more would.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from selector.diagnostics import ScheduleError, Where
from selector.gpu.codegen.shared_memory import Staging
from selector.gpu.codegen.units import Unit, consumer_unit, group_unit
from selector.gpu.codegen.warpgroups.clusters import Sharing
from selector.gpu.codegen.warpgroups.feeding import FedMainloop
from selector.gpu.codegen.warpgroups.iterations import (
    only_accumulates,
    read_by_threads,
    stage_readers,
    trailing_accumulators,
)
from selector.gpu.codegen.warpgroups.products import Slot
from selector.gpu.ir.expressions import (
    FIRST_OF_GROUP,
    THREAD,
    both,
    equal,
    flag,
    minus,
    number,
    plus,
    times,
)
from selector.gpu.ir.nodes import Assign, Drain, Leave, Let, State, Sync
from selector.gpu.passes.budget_registers import shares
from selector.ir.nodes import Expr, For, LetStmt, Store
from selector.ir.traverse import free_vars, walk_stmt
from selector.lowering.normalize import holds_tensor, is_read_out

LAST = "last"  # the barrier that frees the stage of the iteration before
FEED_ENDS = Leave("kernel", "so that accumulators take no registers here")


class WarpSpecialised(FedMainloop):
    """One pipelined loop of a kernel with wgmma."""

    persistent = False  # stages and barriers are there before and after the loop
    stores = False  # an iteration stores results

    def emit(self, unit: Unit, *, in_warp: bool) -> None:
        """The whole loop."""
        self._refuse(in_warp=in_warp)
        self.plan()
        groups = consumer_unit(self.context.block.consumers)
        alone = self.work.loop is self.emitter.pipelines.last  # what follows is for the groups
        with self.context.writer.block():  # another pipeline may follow
            self.feed.boxes = self._boxes()
            self._write(unit, groups, alone=alone)
            unit.join(groups)
            if alone and self.feed.boxes:
                self._leave_room()
            if self.emitter.pipelines.depth:
                self._end(unit)

    def _refuse(self, *, in_warp: bool) -> None:
        """``ScheduleError`` for a loop that cannot be one of these."""
        if in_warp:
            raise ScheduleError(
                "operands of wgmma are staged inside a warpgroup",
                "all groups of a block share what is staged ahead",
                "compute_at a loop outside of the gpu_thread loops",
                Where(func=self.work.staged[0].name),
            )

    def _write(self, unit: Unit, groups: Unit, *, alone: bool) -> None:
        """Barriers, who feeds, and what the ``groups`` do."""
        w, c = self.context.writer, self.context
        self._share(alone=alone)
        names = self.work.names
        early = self._early_stages and not names & (unit.read | unit.written)
        self.feed.early = self.feed.boxes is not None and bool(early)
        self._make()
        if c.block.cluster == 1 or unit.written or unit.copying or unit.panels:
            unit.wait(w)  # for the barriers, and what the loop reads besides its copies
        if c.block.cluster > 1:
            w.add(Sync("cluster"))
        self.feed.few = alone and shares(self._held(), c.block.warps) is not None
        with w.when(equal("group", c.block.warps)):
            self._feed()
            if alone:
                w.add(FEED_ENDS)
        with w.otherwise():
            if self.feed.sharing is not None:
                refilled = minus(c.number(self.work.loop.extent), self.stages)
                w.add(Let("int", ("refilled",), (refilled,)))
            self._consume(groups)
        self.emitter.pipelines.in_consumers = alone

    def _share(self, *, alone: bool) -> None:
        """Find what the blocks of a cluster share."""
        c = self.context
        if c.block.cluster == 1:
            return
        if not alone or self.emitter.pipelines.depth:
            raise ScheduleError(
                f"the blocks of `{c.name}` cannot form clusters",
                f"the loop `{self.work.loop.name}` stages operands ahead, and is not the last "
                "thing that all threads of a block do",
                "drop cluster(...), or compute the result at the innermost block loop",
            )
        self.feed.sharing = Sharing(self.feed.boxes or [], self.work.loop, c)

    def _held(self) -> int:
        """Registers of a thread that multiplies, for accumulators and kept operands."""
        accumulators = self.context.registers.accumulators.values()
        held = sum(a.fragments * (2 if a.half else 4) for a in accumulators)
        return held + self.emitter.placement.held()

    def plan(self) -> None:
        """What kinds of pipelines find out before they are written."""

    def _leave_room(self) -> None:
        """The stages' memory is free for what the groups store."""
        starts = {a.name: self.emitter.placement.offset(a.name) for a in self.work.staged}
        end = start = min(starts.values())
        for a in sorted(self.work.staged, key=lambda a: starts[a.name]):
            if starts[a.name] == end:
                end += self.emitter.placement.stage_elements(a) * a.type.bytes * a.stages
        self.context.shared.staging = Staging(start, end - start)

    def _make(self) -> None:
        """Two barriers a stage: one arrival fills it if the copy engine does, one of each group
        frees it.
        """
        full, free = self._fillers(self._feeders().size), self._releases()
        self.pipeline.make(self._first_feeder(), full, free, then=self._begin_early)

    def _first_feeder(self) -> Expr:
        """Who makes the barriers and asks for the first stages: the first thread that feeds."""
        return equal(THREAD, self.context.block.consumers)

    def _begin_early(self) -> None:
        self.pipeline.announce()
        if self.feed.early:
            self._ask_early()

    def _end(self, unit: Unit) -> None:
        """Nobody waits any more."""
        unit.wait(self.context.writer)
        self.pipeline.retire(self._first_feeder())

    def _releases(self) -> Expr:
        """Arrivals that free a stage: one of each group."""
        sharing = self.feed.sharing
        return number(self.context.block.warps) if sharing is None else sharing.releases()

    def _release(self, free: Expr | None = None, used: Expr | None = None) -> None:
        """A group does not need a stage any more, if it has ``used`` it."""
        if self.feed.sharing is not None:
            count = plus(times("round", self.stages), "slot")
            last = count if used is None else minus(count, 1)
            self.feed.sharing.release(self.pipeline, free, used, last)
            return
        with self.context.writer.when(both(used, FIRST_OF_GROUP)):
            self.pipeline.release(free=free)

    def _release_last(self) -> None:
        """The stage of the iteration before, if there was one."""
        self._release(number(LAST), flag(LAST))

    def _landed(self) -> None:
        """The first products of an iteration are complete, and all before them."""
        self._release_last()

    def _tiles_read(self) -> None:
        """Nor do later products of an iteration read tiles of which every turn has its own."""

    def _release_when_read(self) -> None:
        """All threads of a group are through before one of them says so for all."""
        if read_by_threads(self.work.consumers, self.work.names):
            self.context.writer.add(group_unit().barrier)
        self._release()

    def _consume(self, groups: Unit) -> None:
        w = self.context.writer
        names = self._in_flight()
        later = bool(names)
        trailing = self._trailing() if not names and self.stages > 1 else []
        if any(holds_tensor(x) for x in self.work.consumers) and self.emitter.fill_bands(groups):
            groups.wait(w)
        if not self.persistent:
            self.pipeline.begin()
        if later or trailing:
            w.add(State("u32", (LAST,), (number(0),)))
            self.emitter.groups.hold(names or trailing)  # ptxas: nothing else defines them inside
        left = 0 if later or trailing else self._readers()
        with self._iterations(stores=not later and not trailing):
            if left:  # what the rest of an iteration does needs no stage
                self.emitter.groups.slot = Slot(left, self._acquire, self._release)
            else:
                self._acquire()
            self._point("slot")
            self.emitter.begin_again(self.work.consumers, groups)
            self._use(groups, trailing, deferred=later)
            if later:
                self._release_last()
            if later or trailing:
                w.add(Assign(LAST, self.pipeline.freed()))
            elif not left:
                self._release_when_read()
            self.pipeline.advance()
        self.emitter.groups.slot = None
        self._all_issued()
        if later or trailing:
            self.emitter.groups.finish(names or trailing)
            if self.persistent:
                self._release_last()

    @contextmanager
    def _iterations(self, *, stores: bool) -> Generator[None]:
        """The loop of the groups, which may have room for what an iteration ``stores``."""
        self.stores = stores and self.feed.boxes is not None and self._room_for_results()
        before = dict(self.emitter.tiles.regions.known)
        self._prepare_fills(set())
        with self._turns():
            yield
        self.emitter.tiles.regions.known = before
        if self.stores:
            self.context.shared.staging = None

    def _in_flight(self) -> list[str] | None:
        """The accumulators, where the instructions of an iteration need not be complete before
        those of the next one are issued.
        """
        names = only_accumulates(self.work.consumers)
        return names if self.stages > 1 and not self._halves(names) else None

    def _trailing(self) -> list[str]:
        """Those whose last products of an iteration run on into the next one."""
        names = trailing_accumulators(self.work.consumers)
        return [] if self._halves(names) else names

    def _halves(self, names: list[str] | None) -> bool:
        """Whether an accumulator is of halves: ptxas would wait for each instruction (C7515)."""
        return any(self.context.registers.accumulators[n].half for n in names or ())

    def _all_issued(self) -> None:
        """Of this loop."""

    def _prepare_fills(self, varying: set[str]) -> None:
        """Load what all iterations fill accumulators with, a bias say, once, as far as it mentions
        nothing ``varying``.
        """
        stores = [s for x in self.work.consumers for s in walk_stmt(x) if isinstance(s, Store)]
        inside = {s.name for s in walk_stmt(self.work.loop) if isinstance(s, For | LetStmt)}
        for s in stores:
            if self.emitter.is_argument_fill(s) and not (inside | varying) & free_vars(s.value):
                self.emitter.tiles.regions.prepare_fill(s)

    def _acquire(self) -> None:
        self.pipeline.wait()

    def _readers(self) -> int:
        """How many statements read the stages; 0 if that does not say when they are free."""
        return stage_readers(self.work.consumers, self.work.names, self.context.block.warps)

    def _room_for_results(self) -> bool:
        """Shared memory for what an iteration stores; whether there is any."""
        c = self.context
        stores = [s for x in self.work.consumers for s in walk_stmt(x) if isinstance(s, Store)]
        found = [self.emitter.tiles.regions.boxes(s) for s in stores if is_read_out(s)]
        boxes = [b for part in found for b in part]
        sizes = {b.bytes for b in boxes}
        if len(sizes) != 1 or not all(found):
            return False
        one = max(sizes) * c.block.consumers // 32
        room = range(1, c.shared.left() // one + 1)
        slots = max((n for n in room if len(boxes) % n == 0), default=0)
        if slots:
            offset = c.shared.allocate(slots * one, "results", c.shared.layouts.alignment)
            c.shared.staging = Staging(offset, slots * one, own=True, evenly=True)
        return slots > 0

    def _use(self, groups: Unit, trailing: list[str], *, deferred: bool) -> None:
        emitter = self.emitter
        emitter.groups.trailing = trailing
        if trailing:
            emitter.groups.landed = self._landed
        before = emitter.pipelines.in_consumers
        emitter.pipelines.depth += 1
        emitter.pipelines.in_consumers, emitter.groups.deferred = True, deferred
        emitter.statements(self.work.consumers, groups, in_warp=False)
        emitter.pipelines.in_consumers, emitter.groups.deferred = before, False
        emitter.groups.trailing = []
        emitter.pipelines.depth -= 1
        if deferred:
            self.context.writer.add(Drain("matrix", 1))
