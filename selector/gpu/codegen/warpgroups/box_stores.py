"""Results of warpgroups by the copy engine: a warp puts its 16 rows of a tile into shared memory,
and one thread of it has them stored as a box, clipped at the array's ends.

Registers hold pairs of neighbours, so that direct stores are 4 or 8 bytes wide; boxes leave as
whole rows of 64 or 128 bytes, while the next ones are made. The room is that of a pipeline that
nobody reads any more, or, for what is stored in every iteration of one, memory of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.epilogues.regions import Region
from selector.gpu.codegen.scalars.storage import Space, c_type
from selector.gpu.codegen.units import named_sync
from selector.gpu.codegen.warpgroups.boxes import STORES_READY, bounded_extents, in_order, map_name
from selector.gpu.codegen.warpgroups.left_boxes import BoxStore, LeftBox
from selector.gpu.codegen.warpgroups.left_rows import places_of, store_left
from selector.gpu.ir.expressions import (
    FIRST_LANE,
    THREAD,
    both,
    exclusive_or,
    flag,
    masked,
    moved,
    not_zero,
    plus,
    shifted,
    times,
)
from selector.gpu.ir.lane_maps import ELEMENTS, PAIRS
from selector.gpu.ir.memory import BOX_ROWS, EngineStore, Map, StorePair
from selector.gpu.ir.nodes import Commit, Drain, Fence, Let, Local, Memory, Node, Sync
from selector.gpu.ir.views import View
from selector.ir.affine import Affine, carries, split_by_strides, to_affine
from selector.ir.lanes import Digits, lane, own_lane
from selector.ir.nodes import Dim, Expr, IntImm, Select, Store, Var
from selector.lowering.predicates import TRUE

WIDTHS = (64, 128)  # bytes of a row that a swizzle goes with
GROUP_ROWS = 64
RUNS = (32, 16, 8, 4, 2)  # of rows that one dimension numbers, where another counts them
Pair = tuple[Expr, Expr]
_N, _M, _RUN = Var("$n"), Var("$m"), Var("$run")


def as_box_store(
    s: Store, region: Region, outer: Digits, context: KernelContext
) -> BoxStore | None:
    """How a read-out leaves by boxes; None if it does not."""
    storage = context.storages[s.buffer]
    bytes_ = storage.type.bytes
    width = region.n * bytes_
    if region.swapped or region.rows != 64 or width not in WIDTHS:
        return None
    if storage.space is not Space.GLOBAL or storage.param is None or bytes_ not in (2, 4):
        return None
    dims = storage.param.dims
    if not 2 <= len(dims) <= 5 or dims[0].stride != IntImm(1) or carries(dims):
        return None
    runs = (region.m, *RUNS) if region.m == GROUP_ROWS else (region.m,)
    rows = next((r for n in runs if (r := _rows(s, region, n, outer, dims)) is not None), None)
    if rows is None:
        return None
    order = in_order(rows.dimensions, len(dims))
    dims, at = tuple(dims[d] for d in order), [rows.at[d] for d in order]
    param, wanted = replace(storage.param, dims=dims), s.predicate
    condition = TRUE if wanted is None else own_lane(wanted, rows.digits)
    extents = bounded_extents(param, condition, at, context)
    if extents is None:
        return None
    along, *above = (order.index(d) for d in rows.dimensions)
    box, inner = [1] * len(at), min(rows.run, BOX_ROWS)
    box[0], box[along] = region.n, inner
    for dimension in above:
        box[dimension] = BOX_ROWS // inner
    strides = tuple(d.stride for d in dims[1:])
    context.host.stored_maps.add(s.buffer)
    taken = Map("", s.buffer, storage.type, extents, strides, tuple(box))
    first = tuple(rows.rest[d].to_expr() for d in order)
    return BoxStore(taken, first, along, bytes_, above[0] if above else None, rows.run)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The coordinates ``at`` of an element, and their ``rest`` at the first row and column, where
    ``run`` rows are numbered by one of ``dimensions`` and their runs by the next, if there is one.
    """

    at: list[Affine]
    rest: list[Affine]
    dimensions: list[int]
    run: int
    digits: Digits


def _rows(s: Store, region: Region, run: int, outer: Digits, dims: tuple[Dim, ...]) -> _Rows | None:
    """Which dimensions number the rows of a region in runs of so many; None if none do."""
    variables = (_M, _RUN) if run < region.m else (_M,)
    counts = ((_M, run), (_RUN, region.m // run))[: len(variables)]
    digits: Digits = ((_N, region.n), *counts, *outer)
    found = split_by_strides(lane(s.index, digits), dims)
    if found is None:
        return None
    at = [to_affine(c) for c in found]
    rest = [at[0] - Affine.of(_N), *at[1:]]
    dimensions: list[int] = []
    for v in variables:
        d = next((d for d, c in enumerate(at) if d and c.coefficient(v).constant == 1), 0)
        rest[d] -= Affine.of(v)
        dimensions.append(d)
    single = 0 not in dimensions and len(set(dimensions)) == len(dimensions)
    if not single or any(c.mentions(v.name) for c in rest for v in (_N, *variables)):
        return None
    return _Rows(at, rest, dimensions, run, digits)


def merged(boxes: list[BoxStore]) -> BoxStore | None:
    """One box in the place of some whose rows continue each other; None if there is none."""
    start = boxes[0]
    columns = start.map.box[0]
    if len(boxes) * start.row_bytes not in WIDTHS:
        return None
    for number, box in enumerate(boxes):
        first = (Affine.of(start.first[0]) + number * columns, *start.first[1:])
        same = (to_affine(box.first[0]), *box.first[1:]) == first
        if not same or replace(box, first=start.first) != start:
            return None
    wide = replace(start.map, box=(len(boxes) * columns, *start.map.box[1:]))
    return replace(start, map=wide)


def box_stores(box: BoxStore, name: str, pairs: list[Pair]) -> Iterator[Node]:
    """Put a lane's pairs into a box, by the name of its pointer: those of row lane / 4 and, after
    each, of the row 8 below, for pieces of eight columns.

    Pairs of 8 bytes go by half warps, of which the swizzle lets rows 2 i and 2 i + 1 (of 64 bytes:
    rows i and i + 2) meet in the same banks: some lanes store the farther half of a row first.
    """
    kind = c_type(box.map.type)
    if box.element_bytes == 2:
        for n, pair in enumerate(pairs):
            yield StorePair(View(name, index=_place(box, n)), pair, kind)
        return
    far, turned = len(pairs) // 2, not_zero(masked("lane", 4 if box.row_bytes == 128 else 8))
    for n in range(far):
        names, values = ("x0", "x1", "y0", "y1"), (*pairs[n], *pairs[n + far])
        x0, x1, y0, y1 = (Var(x, box.map.type) for x in names)
        stores = (
            StorePair(View(name, index=_place(box, place)), _either(turned, *halves), kind)
            for place, halves in ((n, ((y0, y1), (x0, x1))), (n + far, ((x0, x1), (y0, y1))))
        )
        yield Local((Let(kind, names, values), *stores))


def _either(condition: Expr, then: Pair, otherwise: Pair) -> Pair:
    one, other = (Select(condition, a, b) for a, b in zip(then, otherwise, strict=True))
    return one, other


def _place(box: BoxStore, n: int) -> Expr:
    """Bytes from the start of a box to this lane's pair ``n``: where it is for lanes that start
    with the nearer half.
    """
    j, half = n // 2, ELEMENTS[PAIRS[n % 2]][0]
    row = moved(shifted("lane", 2), half)
    start = times(row, box.row_bytes)
    turn = shifted("lane", 2) if box.row_bytes == 128 else masked(shifted(row, 1), 3)
    if box.element_bytes == 2:
        return plus(plus(start, times(exclusive_or(j, turn), 16)), times("q", 4))
    other = masked("lane", 4) if box.row_bytes == 128 else masked(shifted("lane", 2), 2)
    chunk = exclusive_or(exclusive_or(moved(2 * j, shifted("q", 1)), turn), other)
    return plus(plus(start, times(chunk, 16)), times(masked("q", 1), 8))


def takes(boxes: list[BoxStore | None], context: KernelContext) -> bool:
    """Whether there is room for these boxes, all of one size with those before."""
    staging = context.shared.staging
    if staging is None or None in boxes:
        return False
    sizes = {b.bytes for b in boxes if b is not None}
    if staging.box_bytes:
        sizes.add(staging.box_bytes)
    return len(sizes) == 1 and _slots(max(sizes), context) > 0


def _slots(box_bytes: int, context: KernelContext) -> int:
    """How many boxes of each warp there is room for."""
    assert context.shared.staging is not None
    return context.shared.staging.bytes // (box_bytes * context.block.consumers // 32)


def at_once(boxes: list[BoxStore], context: KernelContext) -> bool:
    """Whether these boxes are all that an iteration stores, with room for each."""
    staging = context.shared.staging
    if staging is None or not staging.evenly or len(boxes) < 2 or not takes([*boxes], context):
        return False
    return _slots(boxes[0].bytes, context) == len(boxes)


def open_box(
    box: BoxStore, context: KernelContext, name: str = "box", *, row: int = 0, among: int = 1
) -> str:
    """The pointer to this warp's room for the next box, free to be written, whose first row is
    ``row`` of the group's tile; declares it. ``among``: as many are opened one after the other, and
    written before the first of them leaves.
    """
    staging = context.shared.staging
    assert staging is not None
    w, number, slots = context.writer, staging.stored, _slots(box.bytes, context)
    if len(context.shared.left_boxes) == slots:
        leave_rows(context)
    pending = slots - 1 if number >= slots or staging.evenly else 0
    pending = pending if among == 1 else 0
    if among > 1 and number % among:
        pass  # the first of them has waited
    elif number == 0 and not staging.own:
        note = "nobody reads operands any more"
        w.add(named_sync(1, context.block.consumers, note))
    elif number == 0 or number >= slots or staging.evenly:
        with w.when(FIRST_LANE):
            w.add(Drain("stores", pending, "read"))
        w.add(Sync("warp"))
    pitch, start = slots * box.bytes, staging.offset + number % slots * box.bytes
    extents = (BOX_ROWS, box.map.box[0])
    unit = (shifted(THREAD, 5), pitch)
    w.add(Memory(name, "unsigned char", start, 1, box.bytes, extents, box.layout, *unit))
    staging.stored, staging.box_bytes = number + 1, box.bytes
    context.shared.left_boxes.append(LeftBox(box, start, pitch, row))
    return name


def close_boxes(names: list[str], context: KernelContext) -> None:
    """Have the boxes stored that were opened last, by the names of their pointers."""
    w = context.writer
    w.add(Fence("proxy"))
    w.add(Sync("warp"))
    with w.when(both(flag(STORES_READY), FIRST_LANE)):
        for name, left in zip(names, context.shared.left_boxes[-len(names) :], strict=True):
            at = places_of(left.box, left.row, context)
            w.add(EngineStore(View(name), map_name(left.box.map, context), at))
        w.add(Commit("stores"))


def leave_rows(context: KernelContext) -> None:
    """Without the copy engine: store what lies in the boxes since this was last done."""
    store_left(context.shared.left_boxes, context)
    context.shared.left_boxes.clear()
