"""Tiles of which every turn of a persistent block has its own, and one alone: the queries of
attention, say.

The group that feeds the ring brings them as well, ahead of the turn's first slot, when the others
are through with those of the turn before. Two barriers say so: full and free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from selector.emit.copies import Copy, as_copy
from selector.emit.copy_code import emit_copy
from selector.emit.emitter import Emitter
from selector.emit.nests import as_nest
from selector.emit.units import block_unit, group_unit
from selector.emit.warpgroups.boxes import READY, Boxes, as_boxes
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
from selector.ir.nodes import Allocate, Block, Expr, For, LetStmt, Memory, Stmt
from selector.ir.traverse import walk_stmt
from selector.lowering.structure import loaded_names, stored_names

FULL, FREE, TURNS = "tile_full", "tile_free", "tiles"


@dataclass(frozen=True, slots=True)
class TurnTiles:
    """The ``copies`` and their ``boxes``; ``rest``: the body of the kernel without them."""

    emitter: Emitter
    copies: tuple[Copy, ...]
    boxes: tuple[Boxes, ...]
    rest: Stmt

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


def find_turn_tiles(body: Stmt, ring: For, emitter: Emitter) -> TurnTiles | None:
    """What is copied before the ``ring`` into shared memory that nothing but the ring reads, as far
    as the copy engine can bring it; None without any. Its memory is placed.
    """
    allocated: dict[str, Allocate] = {}
    before: list[Stmt] = []
    others: list[Stmt] = []
    _look(body, ring, allocated, before, others)
    copies: list[Copy] = []
    found: list[Boxes] = []
    taken: list[Stmt] = []
    for s in before:
        (name, *more) = stored_names(s) or ("",)
        a = allocated.get(name)
        used = any(name in loaded_names(x) | stored_names(x) for x in others if x is not s)
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
        copies.append(copy)
        found.append(boxes)
        taken.append(s)
    if not taken:
        return None
    return TurnTiles(emitter, tuple(copies), tuple(found), _without(body, taken))


def _look(
    s: Stmt, ring: For, allocated: dict[str, Allocate], before: list[Stmt], others: list[Stmt]
) -> bool:
    """Collect shared memory around the ring, and the statements beside it, with those ``before``.
    Whether the ring stands here.
    """
    match s:
        case Allocate():
            if s.memory is Memory.GPU_SHARED:
                allocated[s.name] = s
            return _look(s.body, ring, allocated, before, others)
        case LetStmt():
            return _look(s.body, ring, allocated, before, others)
        case Block(stmts):
            holding = (i for i, x in enumerate(stmts) if any(y is ring for y in walk_stmt(x)))
            place = next(holding, 0)
            before += stmts[:place]
            others += [x for i, x in enumerate(stmts) if i != place]
            return _look(stmts[place], ring, allocated, before, others)
        case _:
            return s is ring


def _without(s: Stmt, taken: list[Stmt]) -> Stmt:
    match s:
        case Allocate() | LetStmt():
            return replace(s, body=_without(s.body, taken))
        case Block(stmts):
            kept = tuple(_without(x, taken) for x in stmts if not any(x is t for t in taken))
            return Block(kept) if len(kept) != 1 else kept[0]
        case _:
            return s
