"""Pipelined loops of warps whose stages the copy engine fills by tensor maps.

The tiles lie as the engine writes them, in panels of swizzled rows (``warpgroups.panels``), which
``ldmatrix`` reads without bank conflicts and without padding. One thread says how many bytes will
come and asks for the boxes; everybody waits for the stage and says when it is free, as in any
pipeline. Where the arrays of a call have no tensor maps all threads copy into the same layout: both
ways are in the kernel, and the runtime says which.
"""

from __future__ import annotations

from dataclasses import replace

from selector.diagnostics import ScheduleError, Where
from selector.gpu.codegen.copies.forms import write_copy
from selector.gpu.codegen.copies.recognise import Copy, as_copy
from selector.gpu.codegen.emitter import Emitter
from selector.gpu.codegen.pipelines.mainloop import Mainloop, Piece
from selector.gpu.codegen.scalars.storage import Space, Storage
from selector.gpu.codegen.threads.nests import as_nest
from selector.gpu.codegen.units import Unit
from selector.gpu.codegen.warpgroups.boxes import READY, Boxes, as_boxes
from selector.gpu.codegen.warpgroups.clusters import ask
from selector.gpu.codegen.warpgroups.panels import ALIGNMENT, Panels
from selector.gpu.ir.expressions import (
    BARRIER_BYTES,
    THREAD,
    both,
    chosen,
    equal,
    flag,
    greater,
    less,
    number,
    plus,
)
from selector.gpu.ir.layouts import GROUP_ROWS
from selector.gpu.ir.nodes import Let
from selector.ir.nodes import Allocate, Expr, For, IntImm, Stmt, Store
from selector.ir.traverse import walk_stmt
from selector.lowering.normalize import is_tensor_store
from selector.lowering.structure import constant_elements, loaded_names
from selector.lowering.tiles import Access, as_accumulate

FIRST = equal(THREAD, 0)  # who asks
BOXES = "boxes"  # the feature of targets on which this is done without being asked for


class BoxMainloop(Mainloop):
    """One such loop; ``boxes`` are those of its producers."""

    boxes: tuple[Boxes, ...] = ()

    def emit(self, unit: Unit, *, in_warp: bool) -> None:
        """The whole loop."""
        for boxes in self.boxes:
            boxes.name_maps(self.context)
        super().emit(unit, in_warp=in_warp)

    def _fillers(self, threads: int) -> Expr:
        return chosen(flag(READY), 1, super()._fillers(threads))

    def _ahead(self, unit: Unit) -> None:
        w, there = self.context.writer, less(self.work.variable, self.work.stop)
        with w.when(flag(READY)), w.when(both(FIRST, there)):
            self._ask("ahead")
        with w.otherwise():
            with w.when(there):
                self._produce(self.work.producers, "ahead", unit)
            self._copied("ahead")

    def _copy(self, copy: Copy, slot: str, unit: Unit) -> None:
        """Not unrolled: rows that no map describes come element by element, as a rule."""
        write_copy(copy, self.context, unit.thread, unit.size, unroll=1)

    def _ask(self, slot: str) -> None:
        """All boxes of one stage, for one thread."""
        self._point(slot)
        ask(self.boxes, self.pipeline, self.context, slot=slot)

    def _refill(self, unit: Unit) -> list[Piece]:
        """One piece, since little is to be written; so it stands where the others are likely to
        have freed the stage.
        """
        w, ahead = self.context.writer, self.stages - 1

        def write() -> None:
            later = self.context.names.fresh("later")
            w.add(Let("int", ("next", later), (self._before(), plus(self.work.variable, ahead))))
            with w.when(flag(READY)), w.when(both(FIRST, less(later, self.work.stop))):
                self._begin_next(later)
                self._ask("next")
            with w.otherwise():
                with w.when(less(later, self.work.stop)):
                    self._begin_next(later)
                    self._produce(self.work.producers, "next", unit)
                self._copied("next")
            self._point("slot")

        def scoped() -> None:
            with w.block():
                write()

        return [scoped]

    def _begin_next(self, later: str) -> None:
        """When it is free, the stage for a later iteration."""
        with self.context.writer.when(greater(self.work.variable, self.work.low)):
            self._acquire_next()
        self.context.writer.add(Let("int", (self.work.variable,), (number(later),)))


def box_mainloop(
    emitter: Emitter, loop: For, body: list[Stmt], staged: list[Allocate], *, in_warp: bool
) -> BoxMainloop | None:
    """The loop as one whose stages are filled so, before its buffers have their places: from here
    on these are panels. None where the schedule or the target does not ask for it, or the tiles are
    no boxes; ``ScheduleError`` if the schedule does.
    """
    c = emitter.context
    asked = c.block.self_fed
    if not staged or c.block.group or not (asked or c.target.has(BOXES)):
        return None
    mainloop = BoxMainloop(emitter, loop, body, staged)
    found = _why_not(mainloop, in_warp=in_warp) or _boxes(mainloop)
    if not isinstance(found, str):
        mainloop.boxes = tuple(found)
        c.shared.layouts.panels.update({b.to: b.panels for b in found})
        return mainloop
    if asked:
        raise ScheduleError(
            f"`{c.name}` cannot have its operands brought by tensor maps",
            found,
            "drop self_fed(...)",
            Where(func=staged[0].name),
        )
    return None


def _why_not(mainloop: BoxMainloop, *, in_warp: bool) -> str:
    """Why a loop cannot be one of these, whatever it copies; empty if it can."""
    c = mainloop.context
    if not c.target.has("bulk"):
        return f"{c.target.name} has no copy engine"
    if in_warp or mainloop.emitter.pipelines.depth:
        return f"the loop `{mainloop.work.loop.name}` stands inside another loop, or is one warp's"
    if mainloop.consumers_wait():
        return f"the block meets in every iteration of `{mainloop.work.loop.name}` anyway"
    return "blocks of a cluster do not share what warps stage" if c.block.cluster > 1 else ""


def _boxes(mainloop: BoxMainloop) -> list[Boxes] | str:
    """The boxes of every producer; or why there are none."""
    c, found = mainloop.context, list[Boxes]()
    for x in mainloop.work.producers:
        nest = as_nest(x)
        to = None if nest is None else nest.store.buffer
        a = next((a for a in mainloop.work.staged if a.name == to), None)
        boxes = None if a is None else _tried(x, a, mainloop)
        if boxes is None:
            return f"`{(a or mainloop.work.staged[0]).name}` is no box of an array, row by row"
        if not _read_by_rows(boxes.to, mainloop):
            return f"`{boxes.to}` is no matrix of a product that ldmatrix reads"
        found.append(boxes)
    bytes_ = sum(b.panels.size for b in found) * mainloop.stages
    room = c.target.shared_memory - 2 * ALIGNMENT - c.shared.bytes
    if bytes_ + 2 * BARRIER_BYTES * mainloop.stages > room:
        return f"{bytes_} bytes, aligned to {ALIGNMENT}, are more than the {room} that are left"
    return found


def _tried(s: Stmt, a: Allocate, mainloop: BoxMainloop) -> Boxes | None:
    """The boxes that fill a buffer which has no place yet; None if none do, or rows of panels would
    have ends that nobody fills.
    """
    c, nest = mainloop.context, as_nest(s)
    assert nest is not None
    before = c.storages.get(a.name)
    storage = Storage(a.name, a.type.element, Space.SHARED)
    c.storages[a.name] = storage
    try:
        copy = as_copy(nest, c)
        if copy is None or copy.source.buffer in mainloop.emitter.exchanged:
            return None
        panels = _panels(a, copy, mainloop.emitter.kernel.body)
        if panels is None:
            return None
        c.storages[a.name] = replace(storage, panels=panels)
        return as_boxes(copy, c)
    finally:
        if before is None:
            del c.storages[a.name]
        else:
            c.storages[a.name] = before


def _panels(a: Allocate, copy: Copy, body: Stmt) -> Panels | None:
    """Those that a copy fills row by row."""
    pitch = a.extents[0]
    if not isinstance(pitch, IntImm):
        return None
    rows = -(-constant_elements(a) // pitch.value // GROUP_ROWS) * GROUP_ROWS
    panels = Panels(pitch.value, copy.length, rows, a.type.element.bytes)
    return panels if panels.count * panels.width == copy.length else None


def _read_by_rows(name: str, mainloop: BoxMainloop) -> bool:
    """Whether all that reads a buffer are products of matrices, by ``ldmatrix`` (neighbours in
    memory are those of the depth, or two bytes each), and what is computed on accumulators.
    """
    readers = [
        s
        for x in mainloop.work.consumers
        for s in walk_stmt(x)
        if isinstance(s, Store) and name in loaded_names(s)
    ]
    return bool(readers) and all(_by_rows(s, name) for s in readers)


def _by_rows(s: Store, name: str) -> bool:
    statement = as_accumulate(s)
    if statement is None:
        return is_tensor_store(s)
    for o in (statement.a, statement.b):
        if not isinstance(o, Access):
            return False
        across = o.row_stride.constant == 1 and o.type.bytes == 2
        if o.buffer == name and o.depth_stride.constant != 1 and not across:
            return False
    return True
