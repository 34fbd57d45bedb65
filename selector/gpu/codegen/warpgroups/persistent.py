"""Kernels whose blocks do the work of several blocks of the grid, one after the other.

The group that feeds the pipeline goes on to the next block's work while the others still store
results: the pipeline's stages and barriers last for the whole kernel, and results have shared
memory of their own. The other groups are the block for everything else.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

from selector.diagnostics import ScheduleError
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.emitter import Emitter
from selector.gpu.codegen.shared_memory import Staging
from selector.gpu.codegen.units import Unit, block_unit, consumer_unit, team_unit
from selector.gpu.codegen.warpgroups.ahead_mainloop import AheadMainloop
from selector.gpu.codegen.warpgroups.boxes import READY
from selector.gpu.codegen.warpgroups.iterations import read_first
from selector.gpu.codegen.warpgroups.turn_tiles import (
    Repeated,
    TurnTiles,
    Way,
    find_turn_tiles,
    split_repeated,
    way_to,
    without,
)
from selector.gpu.codegen.warpgroups.turns import Turns
from selector.gpu.codegen.warpgroups.warp_specialised import FEED_ENDS
from selector.gpu.ir.expressions import (
    BARRIER_BYTES,
    BLOCK,
    BLOCKS,
    FIRST_LANE,
    THREAD,
    as_number,
    at_least,
    barrier,
    chosen,
    equal,
    flag,
    greater,
    minus,
    negated,
    number,
    plus,
    quotient,
    remainder,
    shared_address,
    times,
)
from selector.gpu.ir.nodes import Arrive, Assign, Await, Fence, Init, Leave, Let, State, Sync
from selector.ir.nodes import Allocate, For, Memory, Stmt
from selector.ir.traverse import free_vars, walk_stmt
from selector.lowering.normalize import sequence
from selector.lowering.structure import hoist_allocations

EARLY = "early"
STAGING_BYTES = 4096  # for the results of a warp: two boxes of 16 rows of 128 bytes


class Persistent(AheadMainloop):
    """The pipeline of such a kernel."""

    persistent = True
    tiles: TurnTiles | None = None
    tiles_read = False  # they are left in the last iteration

    def __init__(
        self, emitter: Emitter, loop: For, body: list[Stmt], staged: list[Allocate], turns: Turns
    ) -> None:
        super().__init__(emitter, loop, body, staged)
        self.turns = turns

    def open(self, repeated: Repeated) -> None:
        """The barriers, what all turns have in common, and the group that feeds the stages."""
        c, w = self.context, self.context.writer
        self.feed.boxes = self._boxes()
        self.feed.early = self.feed.boxes is not None
        if self.feed.boxes and self.context.block.cluster == self.context.block.teams == 1:
            found = find_turn_tiles(repeated.way, self.work.loop, self.emitter)
            if found is not None:
                self.tiles = replace(found, differ=self.turns.differing(found.stmts))
        self._share(alone=True)
        if self.feed.early and self._early_stages:
            note = "slots that are asked for before the block has met"
            w.add(State("int", (EARLY,), (number(0),), note))
        self._make()
        self._do_once(repeated)
        w.add(Sync("cluster" if c.block.cluster > 1 else "block"))
        with w.when(equal("group", c.block.teams * c.block.warps)):
            self._feed()
            w.add(FEED_ENDS)

    def _make(self) -> None:
        """One more barrier for each team: it completes when all warps of the one before have issued
        all. One thread of a group would not do: its other warps might not have seen yet that it is
        their turn, when that of the same team comes again.
        """
        c, w = self.context, self.context.writer
        if c.block.teams > 1:
            offset = c.shared.allocate(8 * c.block.teams, "turns of teams")
            w.add(Let("u32", ("order",), (shared_address(offset),)))
            with (
                w.when(equal(THREAD, c.block.consumers)),
                w.loop("i", number(0), number(c.block.teams)),
            ):
                w.add(Init(barrier("order", "i"), number(4 * c.block.warps)))
        if self.tiles:
            self.tiles.make()
        super()._make()

    def take_part(self) -> None:
        """Declare a team's place in the pipeline."""
        c, w = self.context, self.context.writer
        if self.feed.sharing is not None:
            left = minus(plus(minus(self.turns.total, BLOCK), BLOCKS), 1)
            extent = c.number(self.work.loop.extent)
            slots = times(quotient(left, BLOCKS), extent)
            w.add(Let("int", ("refilled",), (minus(slots, self.stages),)))
        if c.block.teams == 1:
            self.pipeline.begin()
            if self.tiles:
                self.tiles.begin()
            return
        team, member = quotient("group", c.block.warps), remainder("group", c.block.warps)
        w.add(Let("int", ("team", "member"), (team, member)))
        w.add(Let("int", ("others",), (c.number(self.work.loop.extent),), "slots of a turn"))
        before = times("team", "others")
        w.add(State("int", ("slot",), (remainder(before, self.stages),)))
        w.add(State("int", ("round", "turns"), (quotient(before, self.stages), number(0))))

    def _await_turn(self) -> None:
        """Until the team before has come to the end of its loop: else a wait for a stage could take
        the phase before the last for the one that it waits for.
        """
        c, w = self.context, self.context.writer
        if c.block.teams > 1:
            phase = minus("turns", as_number(negated(flag("team"))))
            with w.when(greater(plus("turns", "team"), 0)):
                w.add(Await("asleep", barrier("order", "team"), phase))
            w.add(Assign("turns", plus("turns", 1)))

    def _all_issued(self) -> None:
        c, w = self.context, self.context.writer
        if c.block.teams > 1:
            after = plus(times(BARRIER_BYTES, "team"), BARRIER_BYTES)
            following = plus("order", chosen(equal("team", c.block.teams - 1), 0, after))
            w.add(Sync("warp"))
            with w.when(FIRST_LANE):
                w.add(Arrive(following))

    def skip(self, teams: int) -> None:
        """Over the stages of other teams' turns."""
        if teams:
            self.pipeline.advance(by=times(teams, "others"))

    def prepare(self) -> None:
        """What the turns of the other groups have in common."""
        names = {loop.name for loop in self.turns.grid} | {let.name for let in self.turns.lets}
        self._prepare_fills(names)

    def _do_once(self, repeated: Repeated) -> None:
        """What every turn would do alike, by all threads of the block; it is waited for next."""
        emitter, unit = self.emitter, block_unit(self.context.block.threads)
        for a in repeated.allocations:
            emitter.placement.place(a, unit, in_warp=False)
            emitter.placement.kept.add(a.name)
        emitter.statements(repeated.once, unit, in_warp=False)
        unit.finish_copies(self.context.writer)
        if unit.panels:
            self.context.writer.add(Fence("proxy"))

    def consume(self, groups: Unit) -> None:
        """The loop, for the other groups."""
        reads, writes = self.emitter.touched(self.work.loop)
        if groups.must_wait(reads, writes):
            groups.wait(self.context.writer)
        self._await_turn()
        if self.tiles:
            self.tiles.pipeline.wait()
        self._consume(groups)
        if self.tiles:
            left = at_least(self.work.low, self.work.stop) if self.tiles_read else None
            self.tiles.release(left)
            self.tiles.leave()
        if self.feed.boxes and not self.stores:
            self._make_room()

    def _landed(self) -> None:
        super()._landed()
        self._tiles_read()

    def _tiles_read(self) -> None:
        known = self.work.counts is None  # which iteration is the last one
        if self.tiles and known and read_first(self.work.consumers, self.tiles.names):
            self.tiles_read = True
            self.tiles.release(equal(self.work.variable, minus(self.work.stop, 1)))

    def _make_room(self) -> None:
        """Shared memory for results, as far as there is any."""
        c = self.context
        warps = c.block.consumers // 32
        for room in (STAGING_BYTES, STAGING_BYTES // 2):
            if c.shared.left() >= warps * room:
                offset = c.shared.allocate(warps * room, "results", c.shared.layouts.alignment)
                c.shared.staging = Staging(offset, warps * room, own=True)
                return

    def _ask_early(self) -> None:
        w = self.context.writer
        with w.when(flag(READY)):
            self.turns.first()
            if self.tiles:
                self.tiles.ask()
            if not self._early_stages:
                return
            with w.loop(EARLY, None, number(self._early_stages), "rolled"):
                at = (plus(self.work.low, EARLY), number(EARLY))
                w.add(Let("int", (self.work.variable, "slot"), at))
                with w.when(at_least(self.work.variable, self.work.stop)):
                    w.add(Leave("loop"))
                self._ask(early=True)

    @contextmanager
    def _free_stages(self, *, early: bool = False) -> Generator[None]:
        w = self.context.writer
        begun = early and self._early_stages > 0
        first = number(EARLY if begun else 0)
        if begun:
            self.pipeline.begin(remainder(first, self.stages), quotient(first, self.stages))
        else:
            self.pipeline.begin()
        if self.tiles:
            self.tiles.begin()
        with self.turns.each(lets=True):
            if self.tiles:
                self.tiles.feed(engine=early)
            with self._turns(first):
                with w.when(flag("round")):
                    self.pipeline.acquire()
                self._point("slot")
                yield
            if begun:
                w.add(Assign(EARLY, number(0)))


def emit_persistent(emitter: Emitter, kind: type[Persistent] = Persistent) -> None:
    """The body of a kernel of such blocks, whose pipeline is of a ``kind``."""
    c, kernel = emitter.context, emitter.kernel
    loop, way = _only_mainloop(kernel.body, c)
    allocations, body = hoist_allocations(loop.body)
    for a in allocations:
        emitter.placement.place(a, block_unit(c.block.threads), in_warp=False)
    staged = [a for a in allocations if a.stages > 1]
    # Barriers of the pipeline order what touches these.
    emitter.exchanged -= {a.name for a in staged}
    turns = Turns(kernel.grid, way.lets, c)
    _check_teams(loop, kernel.body, staged, c)
    mainloop = kind(emitter, loop, body, staged, turns)
    repeated = split_repeated(kernel.body, way, {g.name for g in kernel.grid})
    mainloop.open(repeated)
    threads = c.block.warps * c.block.unit_threads  # of a team
    groups = consumer_unit(threads) if c.block.teams == 1 else team_unit(threads)
    emitter.pipelines.persistent, emitter.pipelines.in_consumers = mainloop, True
    statements = sequence(without(repeated.rest, mainloop.tiles.stmts if mainloop.tiles else []))
    mainloop.take_part()
    mainloop.prepare()
    with turns.each(teams=c.block.teams):
        emitter.begin_again(statements, groups)
        emitter.statements(statements, groups, in_warp=False)
        groups.finish_copies(c.writer)
        mainloop.skip(c.block.teams - 1)


def _only_mainloop(body: Stmt, c: KernelContext) -> tuple[For, Way]:
    """The pipelined loop of a kernel, and the way to it."""
    found = [
        s
        for s in walk_stmt(body)
        if isinstance(s, For) and any(a.stages > 1 for a in hoist_allocations(s.body)[0])
    ]
    if len(found) != 1 or not c.block.producer:
        raise ScheduleError(
            f"the blocks of `{c.name}` cannot be persistent",
            "one group of warps feeds the others while they finish what they do: that takes one "
            f"loop that stages operands of wgmma ahead, and there are {len(found)}",
            "give the staged operands pipeline_stages(...), in one loop; else drop persistent(...)",
        )
    way = way_to(found[0], body)
    if way is None:
        raise ScheduleError(
            f"the blocks of `{c.name}` cannot be persistent",
            "the loop that stages operands ahead stands inside another loop or condition",
            "compute the result at the innermost block loop",
        )
    return found[0], way


def _check_teams(loop: For, body: Stmt, staged: list[Allocate], c: KernelContext) -> None:
    """Teams know how many stages each other's turns take, and share nothing but the pipeline."""
    if c.block.teams == 1:
        return
    hint = "drop teams(...)"
    if not c.block.persistent:
        raise ScheduleError(
            f"`{c.name}` has {c.block.teams} teams and nothing that they could do in turn",
            "a block does the work of one block of the grid",
            f"ask for persistent(...), too, or {hint}",
        )
    if not free_vars(loop.extent) <= c.host.sizes:
        raise ScheduleError(
            f"the teams of `{c.name}` cannot do its work in turn",
            f"how often `{loop.name}` runs differs from block to block",
            hint,
        )
    own = [
        s.name
        for s in walk_stmt(body)
        if isinstance(s, Allocate) and s.memory is Memory.GPU_SHARED and s not in staged
    ]
    if own:
        raise ScheduleError(
            f"the teams of `{c.name}` cannot do its work in turn",
            f"`{own[0]}` lies in shared memory, once for all of them",
            hint,
        )
