"""Pipelined loops: staged buffers are pipelines of stages that copies fill ahead of their use.

The loop waits for a stage, uses it, and refills the one that the last iteration has left. With
signals there is no barrier for the whole block: a stage is full when all its copies have arrived
and free when every thread has said so: warps may drift apart by most of an iteration. The copies
are written among the tensor instructions where those are all that an iteration does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from selector.diagnostics import ScheduleError
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.copies.code import split_copy
from selector.gpu.codegen.copies.forms import write_copy
from selector.gpu.codegen.copies.recognise import Copy, as_copy, copy_of
from selector.gpu.codegen.emitter import Emitter
from selector.gpu.codegen.pipelines.pipeline import Pipeline
from selector.gpu.codegen.pipelines.staged import staged_loop
from selector.gpu.codegen.threads.made_fills import fill
from selector.gpu.codegen.threads.nests import as_nest, independent
from selector.gpu.codegen.units import Unit
from selector.gpu.codegen.warpgroups.iterations import only_accumulates, only_region
from selector.gpu.ir.expressions import (
    THREAD,
    as_number,
    both,
    chosen,
    equal,
    flag,
    greater,
    less,
    minus,
    number,
    plus,
    times,
)
from selector.gpu.ir.nodes import Advance, Commit, Drain, Let, State, Sync
from selector.ir.affine import Affine
from selector.ir.nodes import Allocate, Expr, For, Stmt, Var
from selector.ir.traverse import substitute_stmt
from selector.lowering.structure import stored_names

Piece = Callable[[], None]


class Mainloop:
    """One pipelined loop. ``signals``: barriers in shared memory instead of one for the block;
    ``how`` threads wait at them.
    """

    how = "spinning"

    def __init__(
        self, emitter: Emitter, loop: For, body: list[Stmt], staged: list[Allocate]
    ) -> None:
        self.emitter = emitter
        self.work = staged_loop(loop, body, staged, emitter.context)
        self.pipeline = Pipeline(self.context, staged[0].stages, self.how)
        self.signals = False

    @property
    def context(self) -> KernelContext:
        return self.emitter.context

    @property
    def stages(self) -> int:
        return self.pipeline.stages

    def emit(self, unit: Unit, *, in_warp: bool) -> None:
        """The whole loop."""
        alone = not in_warp and self.emitter.pipelines.depth == 0
        self.signals = alone and not self.consumers_wait()
        with self.context.writer.block():  # another pipeline may follow
            self._emit(unit, in_warp=in_warp)

    def consumers_wait(self) -> bool:
        """Whether consumers hand memory to each other, so that the block waits in every iteration
        anyway: signals would only be more to do.
        """
        touched = [self.emitter.touched(x) for x in self.work.consumers]
        written = {name for _, writes in touched for name in writes}
        return bool(written & {name for reads, _ in touched for name in reads})

    def _emit(self, unit: Unit, *, in_warp: bool) -> None:
        if unit.must_wait(set(), self.work.names):  # zeros lie beside the copies
            unit.wait(self.context.writer)
        self.start(unit)
        if not self.signals:  # copies made before are of the first group, which arrives first
            unit.copying = False
            unit.copied.clear()
        self.emitter.fill_bands(unit)
        if self.signals and unit.written:  # what the loop reads besides its copies
            unit.wait(self.context.writer)
        self.run(unit, in_warp=in_warp)
        self.context.writer.add(Drain("copies", 0))
        self.context.writer.add(unit.barrier)

    def start(self, unit: Unit) -> None:
        """The copies of the first ``stages - 1`` iterations."""
        w = self.context.writer
        if self.signals:
            self._make_barriers()
        with w.loop("ahead", number(0), number(self.stages - 1), "unrolled"):
            w.add(Let("int", (self.work.variable,), (plus(self.work.low, "ahead"),)))
            self._ahead(unit)

    def _ahead(self, unit: Unit) -> None:
        """Those of one of them."""
        with self.context.writer.when(less(self.work.variable, self.work.stop)):
            self._produce(self.work.producers, "ahead", unit)
        self._copied("ahead")

    def _copied(self, slot: str) -> None:
        """Copies into a stage are issued."""
        if self.signals:
            self.pipeline.commit("copies", slot)
        else:
            self.context.writer.add(Commit("copies"))

    def _make_barriers(self) -> None:
        """Two barriers a stage. Every thread arrives at both: one arrival for a warp would do where
        it is free, and gains less than 1 %, but racecheck follows single threads only.
        """
        c, threads = self.context, self.context.block.threads
        self.pipeline.make(equal(THREAD, 0), self._fillers(threads), number(threads))
        if c.target.has("bulk"):
            self.pipeline.announce()
        c.writer.add(Sync("block"))

    def _fillers(self, threads: int) -> Expr:
        """Arrivals that fill a stage, of so many threads."""
        return number(2 * threads)

    def run(self, unit: Unit, *, in_warp: bool) -> None:
        """The loop itself."""
        c, w = self.context, self.context.writer
        if self.signals:
            self.pipeline.begin()
        else:
            w.add(State("int", ("slot",), (number(0),)))
        with self.emitter.loop_head(self.work.loop):
            if self.signals:
                self.pipeline.wait()
            else:
                w.add(Drain("copies", self.stages - 2))
                w.add(unit.barrier)
            self._point("slot")
            unit.forget()
            if self.signals:  # no barrier: other threads may still be in the last iteration
                self.emitter.begin_again(self.work.consumers, unit)
            pieces = self._refill(unit)
            if self._every_warp_multiplies() and not c.block.group:
                self.emitter.tiles.interleaved = pieces
            else:
                with w.block():
                    for piece in pieces:
                        piece()
            self.emitter.pipelines.depth += 1
            self.emitter.statements(self.work.consumers, unit, in_warp=in_warp)
            self.emitter.pipelines.depth -= 1
            if self.signals:
                self.pipeline.release()
                self.pipeline.advance("select")
            else:
                w.add(Advance("select", "", self.stages))

    def _refill(self, unit: Unit) -> list[Piece]:
        """The copies of a later iteration, into the stage that the last one has left, in pieces."""
        w, ahead = self.context.writer, self.stages - 1
        later = (Affine.of(Var(self.work.loop.name)) + ahead).to_expr()
        producers = [substitute_stmt(x, {self.work.loop.name: later}) for x in self.work.producers]
        split = self._split_copies(producers, unit)

        def head() -> None:
            w.add(Let("int", ("next",), (self._before(),)))
            w.add(Let("bool", ("more",), (less(plus(self.work.variable, ahead), self.work.stop),)))
            if self.signals:
                with w.when(both(flag("more"), greater(self.work.variable, self.work.low))):
                    self._acquire_next()
            self._point("next")
            for pieces in split or []:
                pieces[0]()
            if split is None:
                with w.when(flag("more")):
                    self._produce(producers, "next", unit)
            self._point("slot")

        def tail() -> None:
            self._copied("next")

        return [head, *(step for pieces in split or [] for step in pieces[1:]), tail]

    def _before(self) -> Expr:
        """The stage of the last iteration."""
        return chosen(equal("slot", 0), self.stages - 1, minus("slot", 1))

    def _acquire_next(self) -> None:
        """That stage, ``next``, from those who read it then."""
        self.pipeline.acquire("next", minus("round", as_number(equal("slot", 0))))

    def _split_copies(self, producers: list[Stmt], unit: Unit) -> list[list[Piece]] | None:
        """Every producer as a split copy; None if one of them is none."""
        found: list[list[Piece]] = []
        for x in producers:
            copy = copy_of(x, self.context)
            pieces = copy and split_copy(copy, self.context, unit.thread, unit.size, flag("more"))
            if pieces is None:
                return None
            found.append(pieces)
        return found

    def _point(self, slot: str) -> None:
        """Let the buffers' names stand for one stage of their pipelines."""
        for a in self.work.staged:
            start = times(slot, self.emitter.placement.stage_elements(a))
            self.context.storages[a.name] = replace(self.context.storages[a.name], start=start)

    def _every_warp_multiplies(self) -> bool:
        """Whether the consumers are one run of accumulates that all warps execute."""
        every = prod(e for _, e in only_region(self.work.consumers)[0]) == self.context.block.warps
        return every and only_accumulates(self.work.consumers) is not None

    def _copy(self, copy: Copy, slot: str, unit: Unit) -> None:
        """Into a stage, by the copy engine where it takes the rows, of arrays that the kernel does
        not write.
        """
        c, written = self.context, self.emitter.exchanged
        engine = self.signals and c.target.has("bulk") and copy.source.buffer not in written
        full = self.pipeline.filled(slot) if engine else None
        write_copy(copy, c, unit.thread, unit.size, full=full)

    def _produce(self, producers: list[Stmt], slot: str, unit: Unit) -> None:
        self._point(slot)
        for x in producers:
            nest = as_nest(x)
            copy = as_copy(nest, self.context) if nest is not None else None
            if copy is not None:
                self._copy(copy, slot, unit)
            elif nest is not None and independent(nest, None):
                fill(nest, unit.thread, unit.size, self.emitter.threads)
            else:
                raise ScheduleError(
                    f"`{min(stored_names(x))}` cannot be produced ahead of its use",
                    "only copies and element-wise stages can be pipelined",
                    "drop its pipeline_stages(...)",
                )
