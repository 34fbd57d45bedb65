"""Pipelined loops around wgmma without a group of their own for copies: multistage kernels.

The groups that multiply fill the slots themselves: all of them before the loop, and each again when
the instructions that read it are complete and every group has said so. One thread asks the copy
engine; where the arrays of a call have no tensor maps, all threads copy.
"""

from __future__ import annotations

from selector.diagnostics import ScheduleError
from selector.emit.units import Unit, consumer_unit
from selector.emit.warpgroups.boxes import READY
from selector.emit.warpgroups.rings import GroupRing


class SelfFedRing(GroupRing):
    """One such loop."""

    chunks_in_flight = 1  # beside the accumulators

    def emit(self, unit: Unit, *, in_warp: bool) -> None:
        """The whole loop."""
        self._refuse(in_warp=in_warp)
        w, c = self.context.writer, self.context
        groups = consumer_unit(c.consumers)
        with w.block(""):  # another ring may follow
            self.boxes = self._boxes()
            self._make()
            unit.wait(w)  # for the barriers, and what the first copies and the loop read
            with w.block(f"for (int slot = 0; slot < {self.stages}; ++slot)"):
                w.line(f"const int {self.variable} = {self.low} + slot;")
                with w.block(f"if ({self.variable} < {self.stop})"):
                    self._fill(groups)
            self._consume(groups)
            unit.join(groups)
            alone = self.loop is self.emitter.last_loop
            if alone and self.boxes:
                self._leave_room()
            if self.emitter.loop_depth:
                self._end(unit)

    def _refuse(self, *, in_warp: bool) -> None:
        c = self.context
        if in_warp or c.cluster > 1:
            raise ScheduleError(
                f"`{c.name}` cannot feed itself",
                "operands are staged inside a warpgroup"
                if in_warp
                else "blocks of a cluster wait for each other in a group of their own",
                "drop self_fed(...)",
            )

    def _make(self) -> None:
        """One barrier a slot: full. That it is free is known after a barrier of the groups."""
        c, w = self.context, self.context.writer
        offset = c.allocate_shared(16 * self.stages, "barriers")
        w.line(f"const u32 full = shared_address(smem + {offset});")
        arrivals = f"{READY} ? 1 : {c.consumers}" if self.boxes else str(c.consumers)
        with w.block("if (threadIdx.x == 0)"):
            w.line(
                f"for (int i = 0; i < {self.stages}; ++i) barrier_init(full + 8 * i, {arrivals});"
            )
            w.line("barriers_made();")

    def _fill(self, groups: Unit) -> None:
        """``slot``, for the iteration that the loop's variable names."""
        w = self.context.writer
        if self.boxes:
            with w.block(f"if ({READY} && threadIdx.x == 0)"):
                self._ask()
        with w.block(f"if (!{READY})" if self.boxes else ""):
            self._produce(self.producers, "slot", groups)
            w.line("copy_commit();")
            w.line("copy_wait<0>();")
            w.line("async_fence();")
            w.line("barrier_arrive(full + 8 * slot);")

    def _consume(self, groups: Unit) -> None:
        w = self.context.writer
        names = self._in_flight()
        if self.emitter.fill_bands(groups):
            groups.wait(w)
        w.line("int slot = 0, round = 0;")
        if names:
            self.emitter.groups.hold(names)  # ptxas: nothing else may define them in the loop
        with self.emitter.loop_head(self.loop):
            self._acquire()
            self._point("slot")
            self.emitter.begin_again(self.consumers, groups)
            self._use(groups, [], deferred=bool(names))
            self._fill_again(groups, late=bool(names))
            self._advance()
        if names:
            self.emitter.groups.finish(names)

    def _fill_again(self, groups: Unit, *, late: bool) -> None:
        """The slot whose instructions are complete: this one, or (``late``) the last one."""
        w, c = self.context.writer, self.context
        ahead = self.stages - 1 if late else self.stages
        w.line(f"group_sync(1, {c.consumers});")
        later, left = c.names.fresh("later"), c.names.fresh("left")
        w.line(f"const int {later} = {self.variable} + {ahead};")
        number = f"slot == 0 ? {self.stages - 1} : slot - 1" if late else "slot"
        w.line(f"const int {left} = {number};")
        started = f"{self.variable} > {self.low} && " if late else ""
        with w.block(f"if ({started}{later} < {self.stop})"):
            w.line(f"const int {self.variable} = {later}, slot = {left};")
            self._fill(groups)

    def _end(self, unit: Unit) -> None:
        """Nobody waits any more: the barriers may be made anew."""
        w = self.context.writer
        unit.wait(w)
        with w.block("if (threadIdx.x == 0)"):
            w.line(f"for (int i = 0; i < {self.stages}; ++i) barrier_end(full + 8 * i);")
