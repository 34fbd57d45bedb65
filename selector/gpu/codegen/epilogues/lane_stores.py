"""Stores of accumulators straight from the registers that hold them, lane by lane: 16 bytes at once
where they are aligned, else two neighbours, and guarded, one by one, only where a tile is ragged.
Of 16 bits two leave at once wherever they lie: lanes hand on what is ahead of an even element.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.epilogues.elements import COLUMN, ROW, ElementValues
from selector.gpu.codegen.epilogues.places import (
    IndexForm,
    ReadOut,
    chunk_flag,
    digits_of,
    eights,
    has_runs,
    pairs_of,
    quads,
    runs_of,
)
from selector.gpu.codegen.epilogues.regions import LANE_ROW, Element, Region
from selector.gpu.codegen.scalars.storage import Space, c_type
from selector.gpu.ir.expressions import all_of, both, element, number, pointer
from selector.gpu.ir.memory import Point, Store, StoreEight, StorePair, StoreQuad, StoreRun
from selector.gpu.ir.nodes import If
from selector.gpu.ir.views import View
from selector.ir.affine import Affine, to_affine
from selector.ir.lanes import Digits, lane
from selector.ir.nodes import Expr, Var
from selector.ir.nodes import Store as Statement
from selector.ir.traverse import free_vars
from selector.lowering.predicates import TRUE, holds_everywhere

Place = tuple[str, int]  # a pointer, elements from there


class LaneStores:
    """Writes such read-outs; ``values(plan, region, outer, guarded=...)`` are those of a region."""

    def __init__(self, context: KernelContext, values: Callable[..., ElementValues]) -> None:
        self.context = context
        self._values = values
        self._indices: dict[tuple[Affine | Var, ...], Expr] = {}

    def store(self, plan: ReadOut) -> None:
        """16 bytes at once where they are aligned, else two neighbours, else one by one."""
        whole, aligned = self._everywhere(plan), chunk_flag(plan, self.context)
        if whole is None or aligned is None:
            self._store_pairs(plan, whole)
            return
        w = self.context.writer
        with w.when(both(self._legal(whole), aligned)):
            self._write_chunks(plan)
        with w.otherwise():
            self._store_pairs(plan, whole, rows=_has_whole_rows(plan))

    def _legal(self, condition: Expr) -> Expr | None:
        """None for one that always holds."""
        return None if condition == TRUE else self.context.scalar.legal(condition)

    def _write_chunks(self, plan: ReadOut) -> None:
        w, four = self.context.writer, self.context.storages[plan.store.buffer].type.bytes == 4
        with w.block():
            pointers: dict[Affine, str] = {}
            for (region, outer), form in zip(plan.regions, plan.forms, strict=True):
                values = self._values(plan, region, outer, guarded=False)
                for places in quads(region) if four else eights(region):
                    to = self._place(plan, region, places[0], outer, form, pointers)
                    if four:
                        w.add(StoreQuad(_view(to), tuple(map(values.value, places))))
                        continue
                    below = self._place(plan, region, places[2], outer, form, pointers)
                    w.add(StoreEight(_view(to), _view(below), tuple(map(values.pair, places))))

    def _store_pairs(self, plan: ReadOut, whole: Expr | None, *, rows: bool = False) -> None:
        """Every lane stores what it has, two neighbours at once where they are aligned; all of
        them do under the condition ``whole``, if one is known. Or all of some ``rows`` do, whose
        neighbours are together in ragged tiles as well.
        """
        paired, w = self._pair_flag(plan), self.context.writer
        if whole is None:
            self._write_tiles(plan, guarded=True, wide=False)
            return
        aligned = None if paired in (None, TRUE) else paired
        inside, runs = self._legal(whole), has_runs(plan, self.context)
        rows = rows and paired is not None and inside is not None
        test = aligned if rows else all_of((inside, aligned))
        with nullcontext() if test is None else w.when(test):
            if rows:
                self._write_tiles(plan, guarded=True, wide=True)
            else:
                self._write_whole(plan, paired is not None, runs)
        if test is None:
            return
        with w.otherwise():
            if not runs or aligned is None:
                self._write_tiles(plan, guarded=inside is not None, wide=False)
            elif inside is None:
                self._write_runs(plan)
            else:
                with w.when(inside):
                    self._write_runs(plan)
                with w.otherwise():
                    self._write_tiles(plan, guarded=True, wide=False)

    def _write_whole(self, plan: ReadOut, paired: bool, runs: bool) -> None:
        """Without guards: pairs where they are aligned, else runs."""
        if paired or not runs:
            self._write_tiles(plan, guarded=False, wide=paired)
        else:
            self._write_runs(plan)

    def _write_runs(self, plan: ReadOut) -> None:
        """Rows of tiles, which begin at any element."""
        w = self.context.writer
        with w.block():
            pointers: dict[Affine, str] = {}
            for (region, outer), form in zip(plan.regions, plan.forms, strict=True):
                assert form is not None
                values = self._values(plan, region, outer, guarded=False)
                for lanes, run in runs_of(region, form):
                    stored = tuple(map(values.pair, run))
                    to = self._place(plan, region, run[0], outer, form, pointers)
                    w.add(StoreRun(_view(to), stored, lanes))

    def _everywhere(self, plan: ReadOut) -> Expr | None:
        """A uniform condition under which every lane is stored; None if none is known."""
        p = plan.store.predicate
        if p is None:
            return TRUE
        if p.type.lanes == 1:
            return p
        region, _ = plan.regions[0]
        digits = ((COLUMN, region.n), (ROW, region.m), (Var("$region"), len(plan.regions)))
        return holds_everywhere(plan.condition(p, digits), dict(digits))

    def _pair_flag(self, plan: ReadOut) -> Expr | None:
        """The uniform condition for storing two neighbours at once; ``TRUE`` if always, None if
        never.
        """
        buffer = plan.store.buffer
        storage = self.context.storages[buffer]
        for (region, _), form in zip(plan.regions, plan.forms, strict=True):
            if form is None or region.swapped or form.n.constant != 1:
                return None
            if not self.context.is_multiple(form.base + form.m * LANE_ROW, 2, buffer):
                return None
        return self.context.aligned_flag(buffer, 2) if storage.space is Space.GLOBAL else TRUE

    def _write_tiles(self, plan: ReadOut, *, guarded: bool, wide: bool) -> None:
        w = self.context.writer
        with w.block():
            pointers: dict[Affine, str] = {}
            for (region, outer), form in zip(plan.regions, plan.forms, strict=True):
                values = self._values(plan, region, outer, guarded=guarded)
                for i, j, half in pairs_of(region):
                    pair = [(i, j, e) for e in (half, half + 1)]
                    places = [self._place(plan, region, e, outer, form, pointers) for e in pair]
                    if wide:
                        together = values.paired
                        stored = (values.pair(pair[0]),) if together else map(values.value, pair)
                        store = StorePair(_view(places[0]), tuple(stored))
                        w.add(If(values.guard(pair[0]), (store,)) if guarded else store)
                        continue
                    for e, (name, apart) in zip(pair, places, strict=True):
                        value = values.value(e)
                        store = Store(element(value.type, pointer(name), apart), value)
                        w.add(If(values.guard(e), (store,)) if guarded else store)

    def _place(
        self,
        plan: ReadOut,
        region: Region,
        at: Element,
        outer: Digits,
        form: IndexForm | None,
        pointers: dict[Affine, str],
    ) -> Place:
        """Where an element goes."""
        if form is None:
            index = to_affine(lane(plan.store.index, digits_of(region, at, outer)))
            return self._pointer(plan.store, index - index.offset, pointers), index.offset
        symbolic, offset = form.at(region, at)
        return self._pointer(plan.store, symbolic, pointers), offset

    def _pointer(self, s: Statement, symbolic: Affine, pointers: dict[Affine, str]) -> str:
        """A pointer for each symbolic part of an index; what is constant comes on top."""
        if symbolic not in pointers:
            storage, name = self.context.storages[s.buffer], f"p{len(pointers)}"
            to = View(storage.base, storage.start, index=self._index(symbolic))
            self.context.writer.add(Point(name, c_type(storage.type), to))
            pointers[symbolic] = name
        return pointers[symbolic]

    def _index(self, symbolic: Affine) -> Expr:
        """A symbolic part, which read-outs share; its quotients are named by what the variables of
        threads are here."""
        place = (symbolic, *self.context.indices.units.values())
        if place not in self._indices:
            self._indices[place] = self.context.scalar.legal(symbolic.to_expr())
        return self._indices[place]


def _has_whole_rows(plan: ReadOut) -> bool:
    """Whether it is the row alone that says if an element is stored."""
    p, (region, outer) = plan.store.predicate, plan.regions[0]
    digits = ((COLUMN, region.n), (ROW, region.m), *outer)
    return p is not None and COLUMN.name not in free_vars(plan.condition(p, digits))


def _view(to: Place) -> View:
    name, apart = to
    return View(name, index=number(apart) if apart else None)
