"""Rows of results that no tensor map describes, out of the boxes that the copy engine would take.

Where the boxes of several tiles wait in shared memory of their own, one loop stores their rows when
all of them are there: its body would be as large as the rest of an epilogue, and is needed once.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.warpgroups.boxes import STORES_READY
from selector.gpu.codegen.warpgroups.left_boxes import BoxStore, LeftBox
from selector.gpu.ir.expressions import (
    THREAD,
    WARP_OF_GROUP,
    all_of,
    chosen,
    flag,
    less,
    minus,
    negated,
    number,
    plus,
    quotient,
    remainder,
    shifted,
    times,
)
from selector.gpu.ir.memory import BOX_ROWS, StoreRows
from selector.gpu.ir.nodes import Let
from selector.gpu.ir.views import View
from selector.ir.affine import Affine
from selector.ir.nodes import Expr

PART = "part"


def store_left(boxes: list[LeftBox], context: KernelContext) -> None:
    """Store the rows of boxes by all lanes, neighbours to neighbours."""
    w = context.writer
    if not boxes:
        return
    with w.when(negated(flag(STORES_READY))):
        steps = steps_of(boxes)
        if len(boxes) > 1 and steps is not None:
            with w.loop(PART, number(0), number(len(boxes)), "rolled"):
                _store_rows(boxes[0], steps, context)
            return
        for box in boxes:
            with w.block():
                _store_rows(box, (number(0),) * (1 + len(box.box.first)), context)


def steps_of(boxes: list[LeftBox]) -> tuple[Expr, ...] | None:
    """What each box adds to the offset and the coordinates of the first one, by its number; None if
    they do not follow each other so.
    """
    first = boxes[0]
    like = replace(first.box, first=())
    if any(replace(b.box, first=()) != like or b.pitch != first.pitch for b in boxes):
        return None
    ways = [step_of([b.offset - first.offset for b in boxes])]
    start = first.coordinates()
    for d in range(len(start)):
        differences = [b.coordinates()[d] - start[d] for b in boxes]
        if any(x.constant is None for x in differences):
            return None
        ways.append(step_of([x.constant or 0 for x in differences]))
    found = tuple(way for way in ways if way is not None)
    return found if len(found) == len(ways) else None


def step_of(values: list[int]) -> Expr | None:
    """What a box adds: as much for each, for each of a period, or for each period."""
    count = len(values)
    for period in (p for p in range(1, count + 1) if count % p == 0):
        inner, outer = values[1 % count], values[period % count]
        if values == [inner * (i % period) for i in range(count)]:
            return _times(remainder(PART, period) if period < count else number(PART), inner)
        if values == [outer * (i // period) for i in range(count)]:
            return _times(quotient(PART, period) if period > 1 else number(PART), outer)
    return None


def _times(part: Expr, step: int) -> Expr:
    return number(0) if step == 0 else part if step == 1 else times(part, step)


def places_of(box: BoxStore, row: int, context: KernelContext) -> tuple[Expr, ...]:
    """The coordinates of a box whose first row is ``row`` of the group's tile."""
    at, warp = [*box.first], times(WARP_OF_GROUP, context.block.warp_rows)
    at[box.along] = (Affine.of(at[box.along]) + row).to_expr()
    places = [*map(context.scalar.number, at)]
    if box.above is None:
        places[box.along] = plus(places[box.along], warp)
        return tuple(places)
    assert row == 0  # as many rows as a group's
    places[box.above] = plus(places[box.above], quotient(warp, box.run))
    if box.run > BOX_ROWS:
        places[box.along] = plus(places[box.along], remainder(warp, box.run))
    return tuple(places)


def _further(place: Expr, step: Expr) -> Expr:
    return place if step == number(0) else plus(place, step)


def _store_rows(left: LeftBox, steps: tuple[Expr, ...], context: KernelContext) -> None:
    """One box by all lanes; ``steps`` of its offset and of each coordinate."""
    w, scalar, box = context.writer, context.scalar, left.box
    storage = context.storages[box.map.of]
    start = _further(number(left.offset), steps[0])
    source = View("smem", index=plus(start, times(shifted(THREAD, 5), left.pitch)))
    extents = [scalar.number(e) for e in box.map.extents]
    strides = [number(1), *(scalar.number(s) for s in box.map.strides)]
    places = places_of(box, left.row, context)
    for n, (place, step) in enumerate(zip(places, steps[1:], strict=True)):
        w.add(Let("int", (f"c{n}",), (_further(place, step),)))
    remaining = [minus(extent, f"c{n}") for n, extent in enumerate(extents)]
    outer = [n for n in range(len(places)) if n not in (0, box.along, box.above)]
    inside = all_of([less(f"c{n}", extents[n]) for n in outer])
    rows = remaining[box.along]
    rows = rows if inside is None else chosen(inside, rows, 0)
    terms = (times(f"c{n}", s) for n, s in enumerate(strides) if n)
    to = storage.at(reduce(plus, terms, number("c0")))
    stored = StoreRows(to, source, box.row_bytes, strides[box.along], rows, remaining[0])
    if box.above is not None:
        run, above, runs = min(box.run, BOX_ROWS), strides[box.above], remaining[box.above]
        stored = replace(stored, run=run, above=above, runs=runs)
    w.add(stored)
