"""Tiles of which every turn of a persistent block has its own, and one alone: the queries of
attention, say.

The group that feeds the ring brings them as well, ahead of the turn's first slot, when the others
are through with those of the turn before. Two barriers say so: full and free.
"""

from __future__ import annotations

from dataclasses import dataclass

from selector.emit.copies import Copy, as_copy
from selector.emit.copy_code import emit_copy
from selector.emit.emitter import Emitter
from selector.emit.nests import as_nest
from selector.emit.units import block_unit, group_unit
from selector.emit.warpgroups.boxes import READY, Boxes, as_boxes
from selector.emit.warpgroups.way import Way
from selector.gpu.ir.expressions import (
    BARRIER_BYTES,
    FIRST_OF_GROUP,
    THREAD,
    both,
    chosen,
    equal,
    flag,
    minus,
    number,
    plus,
    shared_address,
)
from selector.gpu.ir.nodes import (
    Arrive,
    Assign,
    Await,
    Commit,
    Drain,
    Fence,
    Init,
    Let,
    State,
)
from selector.ir.nodes import Expr, For, Stmt
from selector.lowering.structure import loaded_names, stored_names

FULL, FREE, TURNS = "tile_full", "tile_free", "tiles"


@dataclass(frozen=True, slots=True)
class TurnTiles:
    """The statements that copy them, as ``copies`` and as ``boxes``."""

    emitter: Emitter
    stmts: list[Stmt]
    copies: list[Copy]
    boxes: list[Boxes]

    @property
    def names(self) -> frozenset[str]:
        """Of their memory."""
        return frozenset(copy.to for copy in self.copies)

    def make(self) -> None:
        """The barriers, by the thread that makes those of the ring next."""
        c, w = self.emitter.context, self.emitter.context.writer
        offset = c.shared.allocate(2 * BARRIER_BYTES, "barriers of tiles")
        w.add(Let("u32", (FULL,), (shared_address(offset),)))
        w.add(Let("u32", (FREE,), (plus(FULL, BARRIER_BYTES),)))
        with w.when(equal(THREAD, c.block.consumers)):
            w.add(Init(number(FULL), chosen(flag(READY), 1, group_unit().size)))
            w.add(Init(number(FREE), number(c.block.warps)))

    def begin(self) -> None:
        """Count turns: those whose tiles were asked for, or waited for."""
        self.emitter.context.writer.add(State("int", (TURNS,), (number(0),)))

    def ask(self) -> None:
        """Of the copy engine, by one thread."""
        c = self.emitter.context
        c.writer.add(Arrive(number(FULL), number(sum(b.bytes for b in self.boxes))))
        for boxes in self.boxes:
            boxes.write(c, number(FULL))

    def feed(self, *, engine: bool) -> None:
        """A turn's tiles, when those before are free. The ``engine`` was asked for the first ones
        before the block had met.
        """
        c, w = self.emitter.context, self.emitter.context.writer
        with w.when(flag(TURNS)):
            w.add(Await("asleep", number(FREE), minus(TURNS, 1)))
            if engine:
                self.ask()
        if not engine:
            unit = group_unit()
            for copy in self.copies:
                emit_copy(copy, c, unit.thread, unit.size, 1)
            w.add(Commit("copies"))
            w.add(Drain("copies", 0))
            w.add(Fence("proxy"))
            w.add(Arrive(number(FULL)))
        self.next()

    def acquire(self) -> None:
        """Until this turn's are there."""
        self.emitter.context.writer.add(Await("asleep", number(FULL), number(TURNS)))

    def release(self, last: Expr | None) -> None:
        """A group has read them, if this is the ``last`` time."""
        w = self.emitter.context.writer
        with w.when(both(last, FIRST_OF_GROUP)):
            w.add(Arrive(number(FREE)))

    def next(self) -> None:
        """On to the next turn."""
        self.emitter.context.writer.add(Assign(TURNS, plus(TURNS, 1)))


def find_turn_tiles(way: Way, ring: For, emitter: Emitter) -> TurnTiles | None:
    """What is copied on the ``way`` to the ring into shared memory that nothing but the ring reads,
    as far as the copy engine can bring it; None without any. Its memory is placed.
    """
    allocated = {a.name: a for a in way.shared}
    found = TurnTiles(emitter, [], [], [])
    for s in way.before:
        (name, *more) = stored_names(s) or ("",)
        a = allocated.get(name)
        others = (x for x in (*way.before, *way.after) if x is not s)
        used = any(name in loaded_names(x) | stored_names(x) for x in others)
        panels = name in emitter.context.layouts.panels
        if a is None or more or used or not panels or name not in loaded_names(ring):
            continue
        emitter.placement.place(a, block_unit(emitter.context.block.threads), in_warp=False)
        nest = as_nest(s)
        copy = as_copy(nest, emitter.context) if nest is not None else None
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
