"""Fill and read-out of accumulator tiles, with the epilogue in registers.

An element-wise expression around an accumulator is evaluated per element (``gpu.ir.lane_maps``), at
the lane number that the element has in the program, so any epilogue runs in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from itertools import takewhile

from selector.diagnostics import EmitError
from selector.gpu.codegen.context import KernelContext, slice_offset
from selector.gpu.codegen.epilogues.element_values import element_values
from selector.gpu.codegen.epilogues.elements import (
    ElementValues,
)
from selector.gpu.codegen.epilogues.lane_stores import LaneStores
from selector.gpu.codegen.epilogues.places import (
    ReadOut,
    digits_of,
    index_form,
    pairs_of,
    tiles_of,
)
from selector.gpu.codegen.epilogues.regions import Accumulator, Element, Region
from selector.gpu.codegen.epilogues.row_sums import RowSum, RowSumCode, row_sums
from selector.gpu.codegen.scalars.storage import c_type
from selector.gpu.codegen.warpgroups.box_stores import (
    WIDTHS,
    as_box_store,
    at_once,
    box_stores,
    close_boxes,
    leave_rows,
    merged,
    open_box,
    takes,
)
from selector.gpu.codegen.warpgroups.left_boxes import BoxStore
from selector.gpu.codegen.warpgroups.tensor_kernels import refuse_sums
from selector.gpu.ir.expressions import equal, quotient, remainder
from selector.gpu.ir.lane_maps import PAIRS
from selector.gpu.ir.nodes import Let
from selector.ir.affine import Affine
from selector.ir.lanes import Digits, lane
from selector.ir.nodes import (
    Broadcast,
    Call,
    Expr,
    IntImm,
    Load,
    ReduceOp,
    Store,
    Var,
)
from selector.ir.printer import print_expr
from selector.ir.traverse import expr_children
from selector.lowering.tiles import first_lane


class RegionCode:
    """Writes what a warp does with whole accumulator blocks: fill them, read them out."""

    def __init__(self, context: KernelContext) -> None:
        self.context = context
        self._values = partial(element_values, context)
        self.lanes = LaneStores(context, self._values)
        # The variables of what accumulators are filled with, by its text: 0 and -0 are equal.
        self.known: dict[str, Expr] = {}
        self._boxes: dict[tuple[Store, Region, Digits], BoxStore | None] = {}

    def prepare_fill(self, s: Store) -> None:
        """Declare what a fill puts into accumulators, for all fills until ``known`` is reset; not
        what differs from element to element.
        """
        assert isinstance(s.value, Call)
        kind = c_type(s.value.type.element)
        regions = self.covered(s.buffer, first_lane(s.index), s.value.type.lanes)
        if any(r.parts > 1 for r, _ in regions):
            return
        values = [v for r, o in regions for at in tiles_of(r) for v in self._filling(s, r, o, at)]
        different = {print_expr(v, {}): v for v in values}
        for text, value in different.items() if 2 * len(different) <= len(values) else ():
            if text not in self.known:
                name = self.context.names.fresh("filling")
                self.known[text] = Var(name, value.type)
                self.context.writer.add(Let(kind, (name,), (value,)))

    def _filling(self, s: Store, region: Region, outer: Digits, at: tuple[int, int]) -> list[Expr]:
        """What the four elements of a tile are filled with."""
        assert isinstance(s.value, Call)
        value, scalar = s.value.args[0], self.context.scalar
        if isinstance(value, Broadcast) and value.value.type.lanes == 1:
            return [scalar.legal(value.value)] * 4
        places = (digits_of(region, (*at, e), outer) for e in range(4))
        return [scalar.legal(lane(value, digits)) for digits in places]

    def fill(self, s: Store) -> None:
        """``accumulator[...] = tile.fill(e)``."""
        assert isinstance(s.value, Call)
        accumulator = self.context.registers.accumulators[s.buffer]
        sources = tile_reads(s.value.args[0])
        if any(x.index != s.index for x in sources):
            raise EmitError(f"`{s.buffer}` is filled from other tiles than its own place")
        for region, outer in self.covered(s.buffer, first_lane(s.index), s.value.type.lanes):
            with self._lanes_of(region):
                made = (
                    self._element(sources[0], s.value.args[0], region, outer) if sources else None
                )
                for i, j in tiles_of(region):
                    values = (
                        [made((i, j, e)) for e in range(4)]
                        if made is not None
                        else self._filling(s, region, outer, (i, j))
                    )
                    self._fill_tile(accumulator, region.fragment(i, j), values)

    def _fill_tile(self, accumulator: Accumulator, piece: int, values: list[Expr]) -> None:
        if self.known:
            values = [self.known.get(print_expr(v, {}), v) for v in values]
        self.context.writer.add(accumulator.filled(piece, values))

    @contextmanager
    def _lanes_of(self, region: Region) -> Generator[None]:
        """The lanes that have a block's columns: two each, some of the four that have a tile's if
        it is a part of one. In it, ``q`` counts these.
        """
        if region.parts == 1:
            yield
            return
        lanes = 4 // region.parts
        with self.context.writer.when(equal(quotient("q", lanes), region.part)):
            self.context.writer.add(Let("int", ("q",), (remainder("lane", lanes),)))
            yield

    def read_outs(self, stores: Iterable[Store]) -> None:
        """Read-outs in order; some whose rows continue each other leave as one box, and all boxes
        of an iteration at once.
        """
        rest = list(stores)
        staging = self.context.shared.staging
        boxes = [b for s in rest for b in self.boxes(s)] if staging and staging.evenly else []
        if at_once(boxes, self.context) and all(self.boxes(s) for s in rest):
            self._leave_at_once([self._plan(s) for s in rest], boxes)
            rest.clear()
        while rest:
            count, wide = self._together(rest)
            if wide is None:
                self._read_out(rest[0])
            else:
                self._leave([self._plan(s) for s in rest[:count]], [wide])
            del rest[:count]
        leave_rows(self.context)

    def _together(self, stores: list[Store]) -> tuple[int, BoxStore | None]:
        """How many of them, from the first one on, leave as which box: as many as the others with
        them leave in such boxes, too.
        """
        staging, found = self.context.shared.staging, list[BoxStore]()
        best: tuple[int, BoxStore | None] = (1, None)
        if staging is None or staging.evenly:
            return best
        alike = [*takewhile(lambda s: s.buffer == stores[0].buffer, stores)]
        for count, s in enumerate(alike, 1):
            boxes = self.boxes(s)
            if len(boxes) != 1:
                break
            found += boxes
            wide = merged(found) if count > 1 and len(alike) % count == 0 else None
            if wide is not None and takes([wide], self.context):
                best = (count, wide)
            if sum(b.row_bytes for b in found) >= max(WIDTHS):
                break
        return best

    def _plan(self, s: Store) -> ReadOut:
        source = tile_reads(s.value)[0]
        regions = self.covered(source.buffer, first_lane(source.index), source.type.lanes)
        return ReadOut(s, source, regions, [index_form(s.index, r, o) for r, o in regions])

    def read_out(self, s: Store) -> None:
        """``out[index] = f(tile.read(accumulator), ...)``: guarded lane by lane only where the tile
        is ragged.
        """
        self._read_out(s)
        leave_rows(self.context)

    def _read_out(self, s: Store) -> None:
        if row_sums(s):
            self.sum_rows((s,))
            return
        plan = self._plan(s)
        if s.buffer in self.context.registers.tiles:
            self._keep(plan)
            return
        if any(r.parts > 1 for r, _ in plan.regions):
            self._store_part(plan)
            return
        staged = self.context.shared.staging is not None
        boxes = [self._box(s, r, o) if staged else None for r, o in plan.regions]
        if takes(boxes, self.context):
            self._leave([plan], [b for b in boxes if b is not None])
        else:
            self.lanes.store(plan)

    def _store_part(self, plan: ReadOut) -> None:
        """A block that shares a tile with others."""
        if len(plan.regions) > 1:
            raise EmitError(
                f"`{plan.source.buffer}` is read out in vectors of several blocks",
                f"{plan.regions[0][0].n} columns of each are in a tile that others share",
                f"vectorize its use by {plan.regions[0][0].m * plan.regions[0][0].n}",
            )
        with self._lanes_of(plan.regions[0][0]):
            self.lanes.store(plan)

    def _leave(self, plans: list[ReadOut], boxes: list[BoxStore]) -> None:
        """By boxes, one for each region of all plans or one for all of them."""
        parts = [(p, r, o) for p in plans for r, o in p.regions]
        if len(boxes) == len(parts):
            for part, box in zip(parts, boxes, strict=True):
                self._store_boxes([part], box)
        else:
            self._store_boxes(parts, boxes[0])

    def _leave_at_once(self, plans: list[ReadOut], boxes: list[BoxStore]) -> None:
        """Every box that an iteration stores, written before the first of them leaves."""
        w = self.context.writer
        parts = [(p, r, o, i) for p in plans for r, o in p.regions for i in range(r.tiles[0])]
        names = [f"box{number}" for number in range(len(boxes))]
        with w.block():
            for name, box, (_, region, _, i) in zip(names, boxes, parts, strict=True):
                row = region.row(i)
                open_box(box, self.context, name, row=row, among=len(boxes))
            for name, box, (plan, region, outer, i) in zip(names, boxes, parts, strict=True):
                values = self._values(plan, region, outer, guarded=False)
                self._put(name, box, [values], i)
            close_boxes(names, self.context)

    def _put(self, name: str, box: BoxStore, parts: list[ElementValues], i: int) -> None:
        """Rows ``i`` of regions, side by side, into a box."""
        pairs = [
            (part.value((i, j, half)), part.value((i, j, half + 1)))
            for part in parts
            for j in range(part.region.tiles[1])
            for half in PAIRS
        ]
        for node in box_stores(box, name, pairs):
            self.context.writer.add(node)

    def boxes(self, s: Store) -> list[BoxStore]:
        """The boxes of all warps' rows that a read-out could leave by; none if it could not."""
        source = tile_reads(s.value)[0]
        regions = self.covered(source.buffer, first_lane(source.index), source.type.lanes)
        parts = any(r.parts > 1 for r, _ in regions)
        if parts or row_sums(s) or s.buffer not in self.context.storages:
            return []
        found = [self._box(s, r, o) for r, o in regions]
        rows = [r.tiles[0] for r, _ in regions]
        boxes = [b for b, n in zip(found, rows, strict=True) if b is not None for _ in range(n)]
        return boxes if None not in found else []

    def _box(self, s: Store, region: Region, outer: Digits) -> BoxStore | None:
        """How a region leaves by boxes: the same each time that somebody asks."""
        key = (s, region, outer)
        if key not in self._boxes:
            self._boxes[key] = as_box_store(s, region, outer, self.context)
        return self._boxes[key]

    def sum_rows(self, stmts: tuple[Store, ...]) -> None:
        """Sums over the rows of accumulators, or of tiles that are kept in registers; several
        statements are parts of one sum.
        """
        refuse_sums(self.context)
        code = RowSumCode(self.context, self._term)
        code.write([(s, row_sums(s, self.context.registers.tiles), self._summed(s)) for s in stmts])

    def _summed(self, s: Store) -> list[tuple[Region, Digits]]:
        """The blocks that a statement's reductions read."""
        first = row_sums(s, self.context.registers.tiles)[0]
        source = first.source
        if source.buffer in self.context.registers.accumulators:
            return self.covered(source.buffer, first_lane(source.index), source.type.lanes)
        columns = first.node.value.type.lanes // first.node.lanes
        rows = 64 if self.context.block.group else 16
        return [(Region(0, first.node.lanes, columns, False, rows), ((IntImm(0), 1),))]

    def _store_boxes(self, parts: list[tuple[ReadOut, Region, Digits]], box: BoxStore) -> None:
        """Boxes of 16 rows a warp, whose columns are those of the parts, side by side."""
        values = [self._values(p, r, o, guarded=False, among=len(parts)) for p, r, o in parts]
        for i in range(parts[0][1].tiles[0]):
            with self.context.writer.block():
                name = open_box(box, self.context, row=parts[0][1].row(i))
                self._put(name, box, values, i)
                close_boxes([name], self.context)

    def _term(self, x: RowSum, region: Region, outer: Digits) -> Callable[[Element], Expr]:
        """Every element of what is reduced."""
        return self._element(
            x.source, x.node.value, region, outer, summed=x.node.op is ReduceOp.ADD
        )

    def _element(
        self, source: Load, value: Expr, region: Region, outer: Digits, *, summed: bool = False
    ) -> Callable[[Element], Expr]:
        """Every element of a value made of accumulators."""
        element = Store(source.buffer, source.index, value)  # in the order of the accumulator
        plan = ReadOut(element, source, [], [])
        return self._values(plan, region, outer, guarded=False, summed=summed).value

    def _keep(self, plan: ReadOut) -> None:
        """Leave what is read out in registers, as blocks of an operand."""
        kept = self.context.registers.tiles[plan.store.buffer]
        for (region, outer), form in zip(plan.regions, plan.forms, strict=True):
            if form is None or region.parts > 1 or (self.context.block.group and region.swapped):
                raise EmitError(
                    f"`{plan.store.buffer}` is kept in registers in no plain order",
                    hint=f"store `{plan.store.buffer}` in GPUShared",
                )
            values = self._values(plan, region, outer, guarded=False)
            rows, columns = (form.n, form.m) if region.swapped else (form.m, form.n)
            for element in pairs_of(region):
                down, across = region.offsets(element)
                target = kept.put(form.base + rows * down + columns * across, rows, columns)
                self.context.writer.store(target, values.pair(element))

    def covered(self, buffer: str, index: Affine, lanes: int) -> list[tuple[Region, Digits]]:
        """The accumulator blocks that ``lanes`` elements from ``index`` on cover, with their outer
        digit.
        """
        accumulator = self.context.registers.accumulators[buffer]
        start = slice_offset(index, self.context, buffer)
        inside = [r for r in accumulator.regions.values() if start <= r.offset < start + lanes]
        inside.sort(key=lambda r: r.offset)
        size = inside[0].m * inside[0].n if inside else 0
        same = all(r.m == inside[0].m and r.n == inside[0].n for r in inside)
        if not inside or not same or size * len(inside) != lanes or inside[0].offset != start:
            raise EmitError(
                f"`{buffer}` is used in pieces that are not whole tensor tiles",
                f"{lanes} elements from element {start}; its tiles start at "
                f"{', '.join(str(r) for r in sorted(accumulator.regions))}",
                "vectorize its initialisation and its use by the same factors as its update",
            )
        return [(r, ((IntImm(number), len(inside)),)) for number, r in enumerate(inside)]


def tile_reads(value: Expr) -> list[Load]:
    """The accumulator loads of a read-out."""
    found: list[Load] = []
    stack = [value]
    while stack:
        top = stack.pop()
        match top:
            case Call(_, "tile.read", (Load() as load,)):
                found.append(load)
            case _:
                stack.extend(expr_children(top))
    return found
