"""Pipelined loops: staged buffers are rings of slots that copies fill ahead of their use.

The loop waits for a slot, uses it, and refills the one that the last iteration has left. With
signals there is no barrier for the whole block: a slot is full when all its copies have arrived and
free when every thread has said so: warps may drift apart by most of an iteration. The copies
are written among the tensor instructions where those are all that an iteration does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from selector.diagnostics import ScheduleError
from selector.emit.bulk_copies import emit_rows, takes_rows
from selector.emit.copies import Copy, as_copy
from selector.emit.copy_code import emit_copy, split_copy
from selector.emit.nests import as_nest, independent
from selector.emit.units import Unit
from selector.ir.affine import Affine
from selector.ir.nodes import Allocate, For, ForKind, Stmt, Store, Var
from selector.ir.traverse import substitute_stmt
from selector.lowering.normalize import sequence
from selector.lowering.structure import peel_threads, stored_names
from selector.lowering.tiles import as_accumulate

if TYPE_CHECKING:
    from selector.emit.kernel import KernelEmitter

Piece = Callable[[], None]


class Ring:
    """One pipelined loop. ``signals``: barriers in shared memory instead of one for the block."""

    def __init__(
        self, emitter: KernelEmitter, loop: For, body: list[Stmt], staged: list[Allocate]
    ) -> None:
        names = {a.name for a in staged}
        self.emitter, self.loop, self.staged = emitter, loop, staged
        self.context = emitter.context
        self.producers = [x for x in body if stored_names(x) & names]
        self.consumers = [x for x in body if not stored_names(x) & names]
        self.stages = staged[0].stages
        if {a.stages for a in staged} != {self.stages} or not self.producers:
            raise ScheduleError(
                "buffers staged in one loop need one number of pipeline stages",
                ", ".join(f"`{a.name}` has {a.stages}" for a in staged),
                "give pipeline_stages(...) the same number for all of them",
            )
        self.signals = False
        self.slot = ""  # that copies are written for
        scalar = self.context.scalar
        self.variable = self.context.names.get(loop.name)
        self.low, extent = scalar.index(loop.min), scalar.index(loop.extent)
        self.stop = extent if self.low == "0" else f"{self.low} + {extent}"

    def emit(self, unit: Unit, *, in_warp: bool) -> None:
        """The whole loop."""
        alone = not in_warp and self.emitter.loop_depth == 0
        self.signals = alone and not self._consumers_wait()
        with self.context.writer.block(""):  # another ring may follow
            self._emit(unit, in_warp=in_warp)

    def _consumers_wait(self) -> bool:
        """Whether consumers hand memory to each other, so that the block waits in every iteration
        anyway: signals would only be more to do.
        """
        touched = [self.emitter.touched(x) for x in self.consumers]
        written = {name for _, writes in touched for name in writes}
        return bool(written & {name for reads, _ in touched for name in reads})

    def _emit(self, unit: Unit, *, in_warp: bool) -> None:
        if unit.must_wait(set(), {a.name for a in self.staged}):  # zeros lie beside the copies
            unit.wait(self.context.writer)
        self.start(unit)
        if not self.signals:  # copies made before are of the first group, which arrives first
            unit.copying = False
            unit.copied.clear()
        self.emitter.fill_bands(unit)
        if self.signals and unit.written:  # what the loop reads besides its copies
            unit.wait(self.context.writer)
        self.run(unit, in_warp=in_warp)
        self.context.writer.line("copy_wait<0>();")
        self.context.writer.line(unit.barrier)

    def start(self, unit: Unit) -> None:
        """The copies of the first ``stages - 1`` iterations."""
        w = self.context.writer
        if self.signals:
            self._make_barriers()
        w.line("#pragma unroll")
        with w.block(f"for (int ahead = 0; ahead < {self.stages - 1}; ++ahead)"):
            w.line(f"const int {self.variable} = {self.low} + ahead;")
            with w.block(f"if ({self.variable} < {self.stop})"):
                self._produce(self.producers, "ahead", unit)
            w.line("barrier_arrive_copies(full + 8 * ahead);" if self.signals else "copy_commit();")

    def _make_barriers(self) -> None:
        """Two barriers a slot. Every thread arrives at both: one arrival for a warp would do where
        it is free, and gains less than 1 %, but racecheck follows single threads only.
        """
        c, w = self.context, self.context.writer
        offset = c.allocate_shared(16 * self.stages, "barriers")
        w.line(f"const u32 full = shared_address(smem + {offset});")
        w.line(f"const u32 free_ = full + {8 * self.stages};")
        loop = f"for (int i = 0; i < {self.stages}; ++i)"
        with w.block("if (threadIdx.x == 0)"), w.block(loop):
            w.line(f"barrier_init(full + 8 * i, {2 * c.threads});")
            w.line(f"barrier_init(free_ + 8 * i, {c.threads});")
        if c.target.has("bulk"):
            w.line("barriers_made();")
        w.line("__syncthreads();")

    def run(self, unit: Unit, *, in_warp: bool) -> None:
        """The loop itself."""
        c, w, last = self.context, self.context.writer, self.stages - 1
        w.line("int slot = 0, round = 0;" if self.signals else "int slot = 0;")
        with self.emitter.loop_head(self.loop):
            if self.signals:
                w.line("barrier_wait(full + 8 * slot, round & 1);")
            else:
                w.line(f"copy_wait<{self.stages - 2}>();")
                w.line(unit.barrier)
            self._point("slot")
            unit.forget()
            if self.signals:  # no barrier: other threads may still be in the last iteration
                self.emitter.begin_again(self.consumers, unit)
            pieces = self._refill(unit)
            if self._every_warp_multiplies() and not c.group:
                c.interleaved = pieces
            else:
                with w.block(""):
                    for piece in pieces:
                        piece()
            self.emitter.loop_depth += 1
            self.emitter.statements(self.consumers, unit, in_warp=in_warp)
            self.emitter.loop_depth -= 1
            if self.signals:
                w.line("barrier_arrive(free_ + 8 * slot);")
                w.line(f"if (slot == {last}) ++round;")
            w.line(f"slot = slot == {last} ? 0 : slot + 1;")

    def _refill(self, unit: Unit) -> list[Piece]:
        """The copies of a later iteration, into the slot that the last one has left, in pieces."""
        w, ahead = self.context.writer, self.stages - 1
        later = (Affine.of(Var(self.loop.name)) + ahead).to_expr()
        producers = [substitute_stmt(x, {self.loop.name: later}) for x in self.producers]
        split = self._split_copies(producers, unit)

        def head() -> None:
            w.line(f"const int next = slot == 0 ? {ahead} : slot - 1;")
            w.line(f"const bool more = {self.variable} + {ahead} < {self.stop};")
            if self.signals:
                used = f"more && {self.variable} > {self.low}"
                w.line(f"if ({used}) barrier_wait(free_ + 8 * next, (round - (slot == 0)) & 1);")
            self._point("next")
            for pieces in split or []:
                pieces[0]()
            if split is None:
                with w.block("if (more)"):
                    self._produce(producers, "next", unit)
            self._point("slot")

        def tail() -> None:
            w.line("barrier_arrive_copies(full + 8 * next);" if self.signals else "copy_commit();")

        return [head, *(step for pieces in split or [] for step in pieces[1:]), tail]

    def _split_copies(self, producers: list[Stmt], unit: Unit) -> list[list[Piece]] | None:
        """Every producer as a split copy; None if one of them is none."""
        found: list[list[Piece]] = []
        for x in producers:
            nest = as_nest(x)
            copy = as_copy(nest, self.context) if nest is not None else None
            pieces = copy and split_copy(copy, self.context, unit.rank, unit.size, "more")
            if pieces is None:
                return None
            found.append(pieces)
        return found

    def _point(self, slot: str) -> None:
        """Let the buffers' names stand for one slot of their rings."""
        for a in self.staged:
            base = self.emitter.placement.pointers[a.name]
            pointer = f"({base} + {slot} * {self.emitter.placement.slot_elements(a)})"
            storage = self.context.storages[a.name]
            self.context.storages[a.name] = replace(storage, pointer=pointer)

    def _every_warp_multiplies(self) -> bool:
        """Whether the consumers are one run of accumulates that all warps execute."""
        match self.consumers:
            case [For(kind=ForKind.GPU_THREAD) as region]:
                loops, body = peel_threads(region)
                parts = [as_accumulate(x) for x in sequence(body) if isinstance(x, Store)]
                alone = len(parts) == len(sequence(body)) and None not in parts
                return alone and prod(e for _, e in loops) == self.context.warps
            case _:
                return False

    def _copy(self, copy: Copy, unit: Unit) -> None:
        """By the copy engine where it takes the rows, of arrays that the kernel does not write."""
        c = self.context
        read_only = copy.source.buffer not in self.emitter.exchanged
        if self.signals and c.target.has("bulk") and read_only and takes_rows(copy, c):
            emit_rows(copy, c, unit.rank, unit.size, f"full + 8 * {self.slot}")
        else:
            emit_copy(copy, c, unit.rank, unit.size)

    def _produce(self, producers: list[Stmt], slot: str, unit: Unit) -> None:
        self.slot = slot
        self._point(slot)
        for x in producers:
            nest = as_nest(x)
            copy = as_copy(nest, self.context) if nest is not None else None
            if copy is not None:
                self._copy(copy, unit)
            elif nest is not None and independent(nest, None):
                self.emitter.threads.spread(nest, unit.rank, unit.size)
            else:
                raise ScheduleError(
                    f"`{min(stored_names(x))}` cannot be produced ahead of its use",
                    "only copies and element-wise stages can be pipelined",
                    "drop its pipeline_stages(...)",
                )
