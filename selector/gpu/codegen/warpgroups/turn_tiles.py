"""Tiles of which every turn of a persistent block has its own, and one alone: the queries of
attention, say.

The group that feeds the pipeline brings them as well, ahead of the turn's first stage, when the
others are through with those of the turn before. Two barriers say so: full and free. Where they
depend on some of the grid's loops alone, and a call has but one block along these, such as that of
all filters of a layer, the first turn's are those of all.

What every turn would do alike is done once, before the first: a filter's weights, say, are copied
into shared memory by statements that depend on no block of the grid. They stay there for all turns.
Both stand on the way from the kernel's body to the loop that every block comes to, once.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace

from selector.dataclass import dataclass
from selector.gpu.codegen.copies.forms import write_copy
from selector.gpu.codegen.copies.recognise import Copy, copy_of
from selector.gpu.codegen.emitter import Emitter
from selector.gpu.codegen.pipelines.pipeline import Pipeline
from selector.gpu.codegen.units import block_unit, group_unit
from selector.gpu.codegen.warpgroups.boxes import READY, Boxes, boxes_of
from selector.gpu.codegen.warpgroups.clusters import ask
from selector.gpu.ir.expressions import (
    FIRST_OF_GROUP,
    THREAD,
    both,
    chosen,
    either,
    equal,
    flag,
    negated,
    number,
    plus,
)
from selector.gpu.ir.nodes import Assign, State
from selector.ir.nodes import Allocate, Block, Expr, For, LetStmt, Memory, Stmt, Store, Var
from selector.ir.traverse import walk_all_exprs, walk_stmt
from selector.lowering.normalize import holds_tensor
from selector.lowering.structure import loaded_names, stored_names

TURNS = "tiles"


@dataclass(frozen=True, slots=True)
class TurnTiles:
    """The statements that copy them, as ``copies`` and as ``boxes``; a pipeline of one stage.
    ``differ``: whether turns have others than the first; None: that they do.
    """

    emitter: Emitter
    pipeline: Pipeline
    stmts: list[Stmt]
    copies: list[Copy]
    boxes: list[Boxes]
    differ: Expr | None = None

    @property
    def names(self) -> frozenset[str]:
        """Of their memory."""
        return frozenset(copy.to for copy in self.copies)

    def make(self) -> None:
        """The barriers, by the thread that makes those of the pipeline next."""
        block = self.emitter.context.block
        full, free = chosen(flag(READY), 1, group_unit().size), number(block.warps)
        self.pipeline.make(equal(THREAD, block.consumers), full, free, "barriers of tiles")

    def begin(self) -> None:
        """Count turns: those whose tiles were asked for, or waited for."""
        self.emitter.context.writer.add(State("int", (TURNS,), (number(0),)))

    def ask(self) -> None:
        """Of the copy engine, by one thread."""
        ask(self.boxes, self.pipeline, self.emitter.context)

    def feed(self, *, engine: bool) -> None:
        """A turn's tiles, when those before are free. The ``engine`` was asked for the first ones
        before the block had met.
        """
        c, w = self.emitter.context, self.emitter.context.writer
        others = None if self.differ is None else either(negated(flag(TURNS)), self.differ)
        with nullcontext() if others is None else w.when(others):
            with w.when(flag(TURNS)):
                self.pipeline.acquire()
                if engine:
                    self.ask()
            if not engine:
                unit = group_unit()
                for copy in self.copies:
                    write_copy(copy, c, unit.thread, unit.size, unroll=1)
                self.pipeline.commit_stores()
            w.add(Assign(TURNS, plus(TURNS, 1)))

    def release(self, last: Expr | None) -> None:
        """A group has read them, if this is the ``last`` time."""
        w = self.emitter.context.writer
        with w.when(both(self.differ, last, FIRST_OF_GROUP)):
            self.pipeline.release()

    def leave(self) -> None:
        """On to the next turn."""
        w = self.emitter.context.writer
        with nullcontext() if self.differ is None else w.when(self.differ):
            w.add(Assign(TURNS, plus(TURNS, 1)))


def find_turn_tiles(way: Way, loop: For, emitter: Emitter) -> TurnTiles | None:
    """What is copied on the ``way`` to the pipeline into shared memory that nothing but the
    pipeline reads, as far as the copy engine can bring it; None without any. Its memory is placed.
    """
    allocated = {a.name: a for a in way.shared}
    one = Pipeline(emitter.context, 1, full="tile_full", free="tile_free", slot="", phase=TURNS)
    found = TurnTiles(emitter, one, [], [], [])
    for s in way.before:
        (name, *more) = stored_names(s) or ("",)
        a = allocated.get(name)
        others = (x for x in (*way.before, *way.after) if x is not s)
        used = any(name in loaded_names(x) | stored_names(x) for x in others)
        panels = name in emitter.context.shared.layouts.panels
        if a is None or more or used or not panels or name not in loaded_names(loop):
            continue
        emitter.placement.place(a, block_unit(emitter.context.block.threads), in_warp=False)
        copy = copy_of(s, emitter.context)
        boxes = boxes_of(copy, emitter.context, emitter.exchanged)
        if copy is None or boxes is None:
            continue
        boxes.name_maps(emitter.context)
        emitter.placement.kept.add(name)
        emitter.exchanged.discard(name)  # the barriers order what touches it
        found.stmts.append(s)
        found.copies.append(copy)
        found.boxes.append(boxes)
    return found if found.stmts else None


@dataclass(frozen=True, slots=True)
class Way:
    """What is bound around the loop, shared memory around it, and the statements beside it."""

    lets: tuple[LetStmt, ...] = ()
    shared: tuple[Allocate, ...] = ()
    before: tuple[Stmt, ...] = ()
    after: tuple[Stmt, ...] = ()


def way_to(loop: For, body: Stmt) -> Way | None:
    """None where the loop stands in another one or in a condition."""
    match body:
        case Allocate(body=inner):
            found = way_to(loop, inner)
            if found is None or body.memory is not Memory.GPU_SHARED:
                return found
            return replace(found, shared=(body, *found.shared))
        case LetStmt(body=inner):
            found = way_to(loop, inner)
            return found and replace(found, lets=(body, *found.lets))
        case Block(stmts):
            for place, s in enumerate(stmts):
                found = way_to(loop, s)
                if found is not None:
                    before = (*stmts[:place], *found.before)
                    return replace(found, before=before, after=(*found.after, *stmts[place + 1 :]))
            return None
        case _:
            return Way() if body is loop else None


def without(body: Stmt, taken: list[Stmt]) -> Stmt:
    """The body without statements ``taken`` from beside the way."""
    match body:
        case Allocate() | LetStmt():
            return replace(body, body=without(body.body, taken))
        case Block(stmts):
            kept = tuple(without(x, taken) for x in stmts if not any(x is t for t in taken))
            return Block(kept) if len(kept) != 1 else kept[0]
        case _:
            return body


@dataclass(frozen=True, slots=True)
class Repeated:
    """The body of a kernel without the statements ``once``, which fill ``allocations``, and the
    ``way`` through it.
    """

    rest: Stmt
    way: Way
    once: tuple[Stmt, ...]
    allocations: tuple[Allocate, ...]


def split_repeated(body: Stmt, way: Way, grid: set[str]) -> Repeated:
    """Take out of the statements before the pipeline those that mention no variable of the ``grid``
    and nothing bound in the kernel, and fill shared memory that no other statement writes from
    arrays that the kernel only reads.
    """
    writers = _writers(body)
    varying = grid | {let.name for let in way.lets}
    allocated = {a.name for a in way.shared}

    def is_repeated(x: Stmt) -> bool:
        own = _writers(x)
        alone = all(n in allocated and writers[n] == count for n, count in own.items())
        mentioned = {e.name for e in walk_all_exprs(x) if isinstance(e, Var)}
        known = not mentioned & varying and not loaded_names(x) & writers.keys()
        return bool(own) and alone and known and not holds_tensor(x)

    once = [x for x in way.before if is_repeated(x)]
    filled = {name for x in once for name in _writers(x)}
    rest = tuple(x for x in way.before if not any(x is y for y in once))
    return Repeated(
        without(body, once),
        replace(way, before=rest),
        tuple(once),
        tuple(a for a in way.shared if a.name in filled),
    )


def _writers(s: Stmt) -> Counter[str]:
    """How many statements write each buffer."""
    return Counter(x.buffer for x in walk_stmt(s) if isinstance(x, Store))
