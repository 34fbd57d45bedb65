"""Tiles of which every turn of a persistent block has its own, and one alone: the queries of
attention, say.

The group that feeds the ring brings them as well, ahead of the turn's first slot, when the others
are through with those of the turn before. Two barriers say so: full and free.
"""

from __future__ import annotations

from dataclasses import dataclass

from selector.emit.copies import Copy, copy_of
from selector.emit.copy_code import emit_copy
from selector.emit.emitter import Emitter
from selector.emit.pipeline import Pipeline
from selector.emit.units import block_unit, group_unit
from selector.emit.warpgroups.boxes import READY, Boxes, as_boxes
from selector.emit.warpgroups.repeated import Way
from selector.gpu.ir.expressions import (
    FIRST_OF_GROUP,
    THREAD,
    both,
    chosen,
    equal,
    flag,
    number,
    plus,
)
from selector.gpu.ir.nodes import Assign, State
from selector.ir.nodes import Expr, For, Stmt
from selector.lowering.structure import loaded_names, stored_names

TURNS = "tiles"


@dataclass(frozen=True, slots=True)
class TurnTiles:
    """The statements that copy them, as ``copies`` and as ``boxes``; a pipeline of one stage."""

    emitter: Emitter
    pipeline: Pipeline
    stmts: list[Stmt]
    copies: list[Copy]
    boxes: list[Boxes]

    @property
    def names(self) -> frozenset[str]:
        """Of their memory."""
        return frozenset(copy.to for copy in self.copies)

    def make(self) -> None:
        """The barriers, by the thread that makes those of the ring next."""
        block = self.emitter.context.block
        full, free = chosen(flag(READY), 1, group_unit().size), number(block.warps)
        self.pipeline.make(equal(THREAD, block.consumers), full, free, "barriers of tiles")

    def begin(self) -> None:
        """Count turns: those whose tiles were asked for, or waited for."""
        self.emitter.context.writer.add(State("int", (TURNS,), (number(0),)))

    def ask(self) -> None:
        """Of the copy engine, by one thread."""
        c = self.emitter.context
        self.pipeline.expect(sum(b.bytes for b in self.boxes))
        for boxes in self.boxes:
            boxes.write(c, self.pipeline.filled())

    def feed(self, *, engine: bool) -> None:
        """A turn's tiles, when those before are free. The ``engine`` was asked for the first ones
        before the block had met.
        """
        c, w = self.emitter.context, self.emitter.context.writer
        with w.when(flag(TURNS)):
            self.pipeline.acquire()
            if engine:
                self.ask()
        if not engine:
            unit = group_unit()
            for copy in self.copies:
                emit_copy(copy, c, unit.thread, unit.size, 1)
            self.pipeline.commit_stores()
        self.next()

    def acquire(self) -> None:
        """Until this turn's are there."""
        self.pipeline.wait()

    def release(self, last: Expr | None) -> None:
        """A group has read them, if this is the ``last`` time."""
        w = self.emitter.context.writer
        with w.when(both(last, FIRST_OF_GROUP)):
            self.pipeline.release()

    def next(self) -> None:
        """On to the next turn."""
        self.emitter.context.writer.add(Assign(TURNS, plus(TURNS, 1)))


def find_turn_tiles(way: Way, ring: For, emitter: Emitter) -> TurnTiles | None:
    """What is copied on the ``way`` to the ring into shared memory that nothing but the ring reads,
    as far as the copy engine can bring it; None without any. Its memory is placed.
    """
    allocated = {a.name: a for a in way.shared}
    one = Pipeline(emitter.context, 1, full="tile_full", free="tile_free", slot="", phase=TURNS)
    found = TurnTiles(emitter, one, [], [], [])
    for s in way.before:
        (name, *more) = stored_names(s) or ("",)
        a = allocated.get(name)
        others = (x for x in (*way.before, *way.after) if x is not s)
        used = any(name in loaded_names(x) | stored_names(x) for x in others)
        panels = name in emitter.context.layouts.panels
        if a is None or more or used or not panels or name not in loaded_names(ring):
            continue
        emitter.placement.place(a, block_unit(emitter.context.block.threads), in_warp=False)
        copy = copy_of(s, emitter.context)
        boxes = as_boxes(copy, emitter.context) if copy is not None else None
        if copy is None or boxes is None or copy.source.buffer in emitter.exchanged:
            continue
        boxes.name_maps(emitter.context)
        emitter.placement.kept.add(name)
        emitter.exchanged.discard(name)  # the barriers order what touches it
        found.stmts.append(s)
        found.copies.append(copy)
        found.boxes.append(boxes)
    return found if found.stmts else None
