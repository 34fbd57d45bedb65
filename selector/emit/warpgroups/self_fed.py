"""Pipelined loops around wgmma without a group of their own for copies: multistage kernels.

The groups that multiply fill the slots themselves: all of them before the loop, and each again when
the instructions that read it are complete and every group has said so. One thread asks the copy
engine; where the arrays of a call have no tensor maps, all threads copy.
"""

from __future__ import annotations

from selector.diagnostics import ScheduleError
from selector.emit.pipeline import Pipeline
from selector.emit.units import Unit, consumer_unit
from selector.emit.warpgroups.boxes import READY
from selector.emit.warpgroups.rings import GroupRing
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


class SelfFedRing(GroupRing):
    """One such loop."""

    chunks_in_flight = 1  # beside the accumulators

    def emit(self, unit: Unit, *, in_warp: bool) -> None:
        """The whole loop."""
        self._refuse(in_warp=in_warp)
        w, c = self.context.writer, self.context
        groups = consumer_unit(c.block.consumers)
        with w.block():  # another ring may follow
            self.boxes = self._boxes()
            self._make()
            unit.wait(w)  # for the barriers, and what the first copies and the loop read
            with w.loop("slot", number(0), number(self.stages)):
                w.add(Let("int", (self.variable,), (plus(self.low, "slot"),)))
                with w.when(less(self.variable, self.stop)):
                    self._fill(groups)
            self._consume(groups)
            unit.join(groups)
            alone = self.loop is self.emitter.pipelines.last
            if alone and self.boxes:
                self._leave_room()
            if self.emitter.pipelines.depth:
                self._end(unit)

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
        """One barrier a slot: full. That it is free is known after a barrier of the groups."""
        self.pipeline = Pipeline(self.context, self.stages, self.how, free="")
        super()._make()

    def _first_feeder(self) -> Expr:
        return equal(THREAD, 0)

    def _feeders(self) -> Unit:
        return consumer_unit(self.context.block.consumers)

    def _fill(self, groups: Unit) -> None:
        """``slot``, for the iteration that the loop's variable names."""
        w = self.context.writer
        if self.boxes:
            with w.when(both(flag(READY), equal(THREAD, 0))):
                self._ask()
        with w.when(negated(flag(READY))) if self.boxes else w.block():
            self._produce(self.producers, "slot", groups)
            self.pipeline.commit_stores()

    def _consume(self, groups: Unit) -> None:
        w = self.context.writer
        names = self._in_flight()
        if self.emitter.fill_bands(groups):
            groups.wait(w)
        self.pipeline.begin()
        if names:
            self.emitter.groups.hold(names)  # ptxas: nothing else may define them in the loop
        with self.emitter.loop_head(self.loop):
            self._acquire()
            self._point("slot")
            self.emitter.begin_again(self.consumers, groups)
            self._use(groups, [], deferred=bool(names))
            self._fill_again(groups, late=bool(names))
            self.pipeline.advance()
        if names:
            self.emitter.groups.finish(names)

    def _fill_again(self, groups: Unit, *, late: bool) -> None:
        """The slot whose instructions are complete: this one, or (``late``) the last one."""
        w, c = self.context.writer, self.context
        ahead = self.stages - 1 if late else self.stages
        w.add(groups.barrier)
        later, left = c.names.fresh("later"), c.names.fresh("left")
        w.add(Let("int", (later,), (plus(self.variable, ahead),)))
        w.add(Let("int", (left,), (self._before() if late else number("slot"),)))
        started = greater(self.variable, self.low) if late else None
        with w.when(both(started, less(later, self.stop))):
            w.add(Let("int", (self.variable, "slot"), (number(later), number(left))))
            self._fill(groups)
