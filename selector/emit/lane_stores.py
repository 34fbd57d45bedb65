"""Stores of accumulators straight from the registers that hold them, lane by lane: four neighbours
at once where they are aligned, else two, else one by one, and guarded only where a tile is ragged.
"""

from __future__ import annotations

from collections.abc import Callable

from selector.emit.context import LANE_ROW, Element, KernelContext, Region
from selector.emit.elements import COLUMN, ROW, ElementTexts
from selector.emit.places import IndexForm, ReadOut, digits_of, pairs_of, quad_flag, quads
from selector.emit.scalar import Space, c_type
from selector.gpu.cuda.expressions import spell
from selector.ir.affine import Affine, to_affine
from selector.ir.lanes import Digits, lane
from selector.ir.nodes import Expr, Store, Var
from selector.lowering.predicates import TRUE, holds_everywhere


class LaneStores:
    """Writes such read-outs; ``texts(plan, region, outer, guarded=...)`` are those of a region."""

    def __init__(self, context: KernelContext, texts: Callable[..., ElementTexts]) -> None:
        self.context = context
        self._texts = texts
        self._addresses: dict[tuple[Affine | str, ...], str] = {}

    def store(self, plan: ReadOut) -> None:
        """Four neighbours at once where they are aligned, else two, else one by one."""
        whole, flag = self._everywhere(plan), quad_flag(plan, self.context)
        if whole is None or flag is None:
            self._store_pairs(plan, whole)
            return
        w = self.context.writer
        tests = [*([] if whole == TRUE else [self.context.scalar.expr(whole)]), spell(flag, {})]
        with w.block(f"if ({' && '.join(tests)})"):
            self._write_quads(plan)
        with w.block("else"):
            self._store_pairs(plan, whole)

    def _write_quads(self, plan: ReadOut) -> None:
        w = self.context.writer
        with w.block(""):
            pointers: dict[Affine, str] = {}
            for (region, outer), form in zip(plan.regions, plan.forms, strict=True):
                text = self._texts(plan, region, outer, guarded=False)
                for places in quads(region):
                    found = [
                        self._write_one(plan, region, at, outer, form, pointers, text)
                        for at in places
                    ]
                    values = ", ".join(value for _, value in found)
                    w.line(f"store4_of_two({found[0][0]}, q, {values});")

    def _store_pairs(self, plan: ReadOut, whole: Expr | None) -> None:
        """Every lane stores what it has, two neighbours at once where they are aligned; all of
        them do under the condition ``whole``, if one is known."""
        s = plan.store
        paired = self._pair_flag(plan)
        tests = [] if whole in (None, TRUE) else [self.context.scalar.expr(whole)]
        tests += [] if paired in (None, TRUE) else [spell(paired, {})]
        w = self.context.writer
        if whole is None:
            self._write_tiles(plan, guarded=True, wide=False)
        elif not tests:
            self._write_tiles(plan, guarded=False, wide=paired is not None)
        else:
            with w.block(f"if ({' && '.join(tests)})"):
                self._write_tiles(plan, guarded=False, wide=paired is not None)
            with w.block("else"):
                self._write_tiles(plan, guarded=s.predicate is not None, wide=False)

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
        with w.block(""):
            pointers: dict[Affine, str] = {}
            for (region, outer), form in zip(plan.regions, plan.forms, strict=True):
                text = self._texts(plan, region, outer, guarded=guarded)
                for i, j, half in pairs_of(region):
                    pair = [
                        self._write_one(plan, region, (i, j, e), outer, form, pointers, text)
                        for e in (half, half + 1)
                    ]
                    if wide and text.paired:
                        w.line(f"*(u32*)({pair[0][0]}) = {text.pair((i, j, half))};")
                        continue
                    if wide:
                        w.line(f"store2({pair[0][0]}, {pair[0][1]}, {pair[1][1]});")
                        continue
                    for e, (target, value) in zip((half, half + 1), pair, strict=True):
                        test = f"if ({text.guard((i, j, e))}) " if guarded else ""
                        w.line(f"{test}*({target}) = {value};")

    def _write_one(
        self,
        plan: ReadOut,
        region: Region,
        element: Element,
        outer: Digits,
        form: IndexForm | None,
        pointers: dict[Affine, str],
        text: ElementTexts,
    ) -> tuple[str, str]:
        """(address, value) of one element."""
        value = text.value(element)
        if form is None:
            index = to_affine(lane(plan.store.index, digits_of(region, element, outer)))
            return self._pointer(plan.store, index - index.offset, index.offset, pointers), value
        symbolic, offset = form.at(region, element)
        return self._pointer(plan.store, symbolic, offset, pointers), value

    def _pointer(self, s: Store, symbolic: Affine, offset: int, pointers: dict[Affine, str]) -> str:
        """Address of an element: a pointer for each symbolic part, constants as offsets from it."""
        storage = self.context.storages[s.buffer]
        if symbolic not in pointers:
            name = f"p{len(pointers)}"
            kind, text = c_type(storage.type), self._address(symbolic)
            self.context.writer.line(f"{kind}* const {name} = {storage.pointer} + {text};")
            pointers[symbolic] = name
        return f"{pointers[symbolic]} + {offset}" if offset else pointers[symbolic]

    def _address(self, symbolic: Affine) -> str:
        """The text of a symbolic part, which read-outs share; its quotients are named by what the
        variables of threads are here."""
        place = (symbolic, *self.context.units.values())
        if place not in self._addresses:
            self._addresses[place] = self.context.scalar.expr(symbolic.to_expr())
        return self._addresses[place]
