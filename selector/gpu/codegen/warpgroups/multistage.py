"""Pipelined loops around wgmma whose groups fill the stages themselves.

All stages are filled before the loop, and each again when the instructions that read it are
complete and every group has said so. One thread asks the copy engine; where the arrays of a call
have no tensor maps, all threads copy.
"""

from __future__ import annotations

from selector.diagnostics import ScheduleError
from selector.gpu.codegen.pipelines.pipeline import Pipeline
from selector.gpu.codegen.units import Unit, consumer_unit
from selector.gpu.codegen.warpgroups.boxes import READY
from selector.gpu.codegen.warpgroups.warp_specialised import WarpSpecialised
from selector.gpu.ir.expressions import (
    THREAD,
    both,
    equal,
    flag,
    greater,
    less,
    negated,
    number,
    plus,
)
from selector.gpu.ir.nodes import Let
from selector.ir.nodes import Expr


class Multistage(WarpSpecialised):
    """One such loop."""

    chunks_in_flight = 1  # beside the accumulators
    leaves_out = False  # who multiplies fills stages ahead, whatever comes of them

    def _write(self, unit: Unit, groups: Unit, *, alone: bool) -> None:
        w = self.context.writer
        self._make()
        unit.wait(w)  # for the barriers, and what the first copies and the loop read
        with w.loop("slot", number(0), number(self.stages)):
            w.add(Let("int", (self.work.variable,), (plus(self.work.low, "slot"),)))
            with w.when(less(self.work.variable, self.work.stop)):
                self._fill(groups)
        self._consume(groups)

    def _refuse(self, *, in_warp: bool) -> None:
        c = self.context
        if in_warp or c.block.cluster > 1:
            raise ScheduleError(
                f"`{c.name}` cannot feed itself",
                "operands are staged inside a warpgroup"
                if in_warp
                else "blocks of a cluster wait for each other in a group of their own",
                "drop self_fed(...)",
            )

    def _make(self) -> None:
        """One barrier a stage: full. That it is free is known after a barrier of the groups."""
        self.pipeline = Pipeline(self.context, self.stages, self.how, free="")
        super()._make()

    def _first_feeder(self) -> Expr:
        return equal(THREAD, 0)

    def _feeders(self) -> Unit:
        return consumer_unit(self.context.block.consumers)

    def _fill(self, groups: Unit) -> None:
        """``slot``, for the iteration that the loop's variable names."""
        w = self.context.writer
        if self.feed.boxes:
            with w.when(both(flag(READY), equal(THREAD, 0))):
                self._ask()
        with w.when(negated(flag(READY))) if self.feed.boxes else w.block():
            self._produce(self.work.producers, "slot", groups)
            self._complete(groups)

    def _consume(self, groups: Unit) -> None:
        w = self.context.writer
        names = self._in_flight()
        if self.emitter.fill_bands(groups):
            groups.wait(w)
        self.pipeline.begin()
        if names:
            self.emitter.groups.hold(names)  # ptxas: nothing else may define them in the loop
        with self.emitter.loop_head(self.work.loop):
            self._acquire()
            self._point("slot")
            self.emitter.begin_again(self.work.consumers, groups)
            self._use(groups, [], deferred=bool(names))
            self._fill_again(groups, late=bool(names))
            self.pipeline.advance()
        if names:
            self.emitter.groups.finish(names)

    def _fill_again(self, groups: Unit, *, late: bool) -> None:
        """The stage whose instructions are complete: this one, or (``late``) the last one."""
        w, c = self.context.writer, self.context
        ahead = self.stages - 1 if late else self.stages
        w.add(groups.barrier)
        later, left = c.names.fresh("later"), c.names.fresh("left")
        w.add(Let("int", (later,), (plus(self.work.variable, ahead),)))
        w.add(Let("int", (left,), (self._before() if late else number("slot"),)))
        started = greater(self.work.variable, self.work.low) if late else None
        with w.when(both(started, less(later, self.work.stop))):
            w.add(Let("int", (self.work.variable, "slot"), (number(later), number(left))))
            self._fill(groups)
