"""How the stages of a pipelined loop around wgmma are filled.

One thread waits until a stage is free, says how many bytes will come, and asks the copy engine for
the boxes. Where the arrays of a call have no tensor maps (rows that start at odd addresses), all
threads of the producing group copy into the same layout: both ways are in the kernel, and the
runtime says which.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from selector.dataclass import dataclass
from selector.gpu.codegen.copies.forms import Shifting, write_copy
from selector.gpu.codegen.copies.recognise import Copy, copy_of
from selector.gpu.codegen.emitter import Emitter
from selector.gpu.codegen.pipelines.mainloop import Mainloop
from selector.gpu.codegen.units import Unit, group_unit
from selector.gpu.codegen.warpgroups.boxes import READY, Boxes, boxes_of
from selector.gpu.codegen.warpgroups.clusters import EARLY_STAGES, Sharing, ask
from selector.gpu.codegen.warpgroups.shifted_copies import TOGETHER
from selector.gpu.ir.expressions import (
    FIRST_OF_GROUP,
    Number,
    at_least,
    chosen,
    flag,
    negated,
    number,
    plus,
)
from selector.gpu.ir.nodes import Commit, Drain, Leave, Let
from selector.gpu.passes.budget_registers import equal_share
from selector.ir.nodes import Allocate, Call, Expr, For, IntImm, Stmt
from selector.ir.types import INT32

ADDRESSES = 2  # copies whose addresses a thread that feeds keeps from one iteration to the next

# Bytes. Sixteen chunks of shifted rows in one text take NVRTC a quarter of its time; a stage of
# this size has the copy engine bring them, or other kernels copy them before, where there is much
# to do.
LARGE_STAGE = 32 << 10
CHUNK, AROUND = 12, 24  # registers of a chunk on its way; of a thread beside them


@dataclass(slots=True)
class Feed:
    """How stages are filled: by ``boxes`` where every producer is one, of which blocks of a cluster
    bring each other some (``sharing``), the first ones ``early``, before the block has met; by a
    group that has ``few`` registers.
    """

    boxes: list[Boxes] | None = None
    sharing: Sharing | None = None
    early: bool = False
    few: bool = False


class FedMainloop(Mainloop):
    """Such a loop, as far as what fills its stages goes."""

    how = "asleep"
    chunks_in_flight = TOGETHER[0]  # of a thread of the group that feeds, which has room for them
    leaves_out = True  # only iterations that count have a stage

    def __init__(
        self, emitter: Emitter, loop: For, body: list[Stmt], staged: list[Allocate]
    ) -> None:
        super().__init__(emitter, loop, body, staged)
        alone = self.context.block.cluster == self.context.block.teams == 1
        if alone and self.leaves_out:
            self.work = self.work.counted(emitter.exchanged)
        self.feed = Feed()

    @property
    def _early_stages(self) -> int:
        """How many stages are asked for before the block has met."""
        if self.work.counts is not None:
            return 0
        return self.stages if self.feed.sharing is None else min(self.stages, EARLY_STAGES)

    def _boxes(self) -> list[Boxes] | None:
        """Every producer as boxes; None if one of them is none."""
        c, written = self.context, self.emitter.exchanged
        tried = [boxes_of(copy_of(x, c), c, written) for x in self.work.producers]
        found = [boxes for boxes in tried if boxes is not None]
        if len(found) < len(tried):
            return None
        for boxes in found:
            boxes.name_maps(self.context)
        return found

    def _fillers(self, threads: int) -> Expr:
        """Arrivals that fill a stage: one, if the copy engine does, or those of all who copy."""
        return chosen(flag(READY), 1, threads) if self.feed.boxes else number(threads)

    def _ask_early(self) -> None:
        w = self.context.writer
        with w.when(flag(READY)), w.loop("slot", number(0), number(self._early_stages), "rolled"):
            w.add(Let("int", (self.work.variable,), (plus(self.work.low, "slot"),)))
            with w.when(at_least(self.work.variable, self.work.stop)):
                w.add(Leave("loop"))
            self._ask(early=True)

    def _ask(self, *, early: bool = False) -> None:
        """All boxes of one stage."""
        self._point("slot")
        sharing = None if early else self.feed.sharing
        ask(self.feed.boxes or (), self.pipeline, self.context, sharing)

    def _feed(self) -> None:
        """What the producing group does."""
        w = self.context.writer
        if not self.feed.boxes:
            self._copy_rows()
            return
        with w.when(negated(flag(READY))):
            self._copy_rows()
        with w.otherwise(), w.when(FIRST_OF_GROUP), self._free_stages(early=self.feed.early):
            self._ask()
            self.pipeline.advance()

    def _feeders(self) -> Unit:
        """Who copies where no engine does."""
        return group_unit()

    def _copy_rows(self) -> None:
        """Every stage by ordinary copies, as the copy engine would have filled it."""
        w, unit = self.context.writer, self._feeders()
        with self._free_stages():
            if self.feed.few and len(self.work.producers) > ADDRESSES:
                w.add(Let("int", ("rank",), (Call(INT32, "anew", (unit.thread,)),)))
                unit = replace(unit, thread=number("rank"))
            self._fill_stage(unit)
            self.pipeline.advance()

    def _fill_stage(self, unit: Unit) -> None:
        self._produce(self.work.producers, "slot", unit)
        self._complete(unit)

    def _complete(self, unit: Unit) -> None:
        """What threads have copied is there, single floats rounded as the copy engine does it."""
        w, staged = self.context.writer, [self.context.storages[a.name] for a in self.work.staged]
        rounded = [x for x in staged if x.panels is not None and x.panels.rounds]
        if rounded:
            w.add(Commit("copies"))
            w.add(Drain("copies", 0))
            w.add(unit.barrier)
        for x in rounded:
            unit.round(w, x)
        self.pipeline.commit_stores()

    def _copy(self, copy: Copy, slot: str, unit: Unit) -> None:
        """Not unrolled: addresses of more steps would not fit beside the accumulators."""
        read_only = copy.source.buffer not in self.emitter.exchanged
        full = self.pipeline.filled(slot) if read_only else None
        large = sum(b.bytes for b in self.feed.boxes or ()) > LARGE_STAGE
        most = min(self.chunks_in_flight, TOGETHER[1]) if large else self.chunks_in_flight
        most = min(most, self._chunks_beside())
        how = Shifting(most, self._counted(), bool(self.feed.boxes), self.feed.few)
        c, size = self.context, unit.size
        write_copy(copy, c, unit.thread, size, full=full, unroll=1, shifting=how)

    def _chunks_beside(self) -> int:
        """Chunks that a thread has registers for, where blocks stay beside its own."""
        block = self.context.block
        if block.persistent < 2:
            return TOGETHER[0]
        return (equal_share(block.threads, block.persistent) - AROUND) // CHUNK

    def _counted(self) -> set[str]:
        """Variables of the grid and of this loop that start at 0 or more."""
        loops = [*self.emitter.kernel.grid, self.work.loop]
        return {x.name for x in loops if isinstance(x.min, IntImm) and x.min.value >= 0}

    @contextmanager
    def _turns(self, skip: Number = 0) -> Generator[None]:
        """The iterations that count, but those of the first ``skip``."""
        w = self.context.writer
        with self.emitter.loop_head(self.work.loop, skip):
            if self.work.counts is None:
                yield
                return
            with w.when(self.context.condition(self.work.counts)):
                yield

    @contextmanager
    def _free_stages(self, *, early: bool = False) -> Generator[None]:
        """The loop of a producer, at a stage that is free; ``early``: from the second round on."""
        w = self.context.writer
        round_, slot = divmod(self._early_stages if early else 0, self.stages)
        self.pipeline.begin(number(slot), number(round_))
        with self._turns(self._early_stages if early else 0):
            with nullcontext() if round_ else w.when(flag("round")):
                self.pipeline.acquire()
            self._point("slot")
            yield
