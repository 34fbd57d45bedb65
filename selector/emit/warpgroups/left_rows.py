"""Rows of results that no tensor map describes, out of the boxes that the copy engine would take.

Where the boxes of several tiles wait in shared memory of their own, one loop stores their rows when
all of them are there: its body would be as large as the rest of an epilogue, and is needed once.
"""

from __future__ import annotations

from dataclasses import replace

from selector.emit.context import KernelContext
from selector.emit.warpgroups.boxes import STORES_READY
from selector.emit.warpgroups.left_boxes import ROWS, BoxStore, LeftBox
from selector.ir.affine import Affine

PART = "part"


def store_left(boxes: list[LeftBox], context: KernelContext) -> None:
    """Store the rows of boxes by all lanes, neighbours to neighbours."""
    w = context.writer
    if not boxes:
        return
    with w.block(f"if (!{STORES_READY})"):
        steps = steps_of(boxes)
        if len(boxes) > 1 and steps is not None:
            w.line("#pragma unroll 1")
            with w.block(f"for (int {PART} = 0; {PART} < {len(boxes)}; ++{PART})"):
                _store_rows(boxes[0], steps, context)
            return
        for box in boxes:
            with w.block(""):
                _store_rows(box, ("",) * (1 + len(box.box.first)), context)


def steps_of(boxes: list[LeftBox]) -> tuple[str, ...] | None:
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


def step_of(values: list[int]) -> str | None:
    """The text of what a box adds: as much for each, for each of a period, or for each period."""
    count = len(values)
    for period in (p for p in range(1, count + 1) if count % p == 0):
        inner, outer = values[1 % count], values[period % count]
        if values == [inner * (i % period) for i in range(count)]:
            return _times(f"{PART} % {period}" if period < count else PART, inner)
        if values == [outer * (i // period) for i in range(count)]:
            return _times(f"{PART} / {period}" if period > 1 else PART, outer)
    return None


def _times(number: str, step: int) -> str:
    match step:
        case 0:
            return ""
        case 1:
            return f" + {number}"
        case _:
            return f" + {number} * {step}"


def places_of(box: BoxStore, row: int, context: KernelContext) -> list[str]:
    """The coordinates of a box whose first row is ``row`` of the group's tile."""
    at, warp = [*box.first], "(int)(threadIdx.x >> 5 & 3) * 16"
    at[box.along] = (Affine.of(at[box.along]) + row).to_expr()
    places = [context.scalar.index(c) for c in at]
    if box.above is None:
        places[box.along] += f" + {warp}"
        return places
    assert row == 0  # as many rows as a group's
    places[box.above] += f" + {warp} / {box.run}"
    if box.run > ROWS:
        places[box.along] += f" + {warp} % {box.run}"
    return places


def _store_rows(left: LeftBox, steps: tuple[str, ...], context: KernelContext) -> None:
    """One box by all lanes; ``steps`` of its offset and of each coordinate."""
    w, scalar, box = context.writer, context.scalar, left.box
    storage = context.storages[box.map.name]
    pointer = f"smem + {left.offset}{steps[0]} + (threadIdx.x >> 5) * {left.pitch}"
    extents = [scalar.index(e) for e in box.map.extents]
    strides = ["1", *(scalar.index(s) for s in box.map.strides)]
    remaining: list[str] = []
    places = places_of(box, left.row, context)
    for number, (place, extent) in enumerate(zip(places, extents, strict=True)):
        w.line(f"const int c{number} = {place}{steps[1 + number]};")
        remaining.append(f"{extent} - c{number}")
    outer = [n for n in range(len(places)) if n not in (0, box.along, box.above)]
    others = [f"c{n} < {extents[n]}" for n in outer]
    rows = remaining[box.along]
    rows = f"{' && '.join(others)} ? {rows} : 0" if others else rows
    terms = " + ".join(f"c{n} * {s}" if n else "c0" for n, s in enumerate(strides))
    if box.above is not None:
        w.line(
            f"store_runs<{box.row_bytes}, {min(box.run, ROWS)}>({storage.pointer} + ({terms}), "
            f"{pointer}, lane, {strides[box.along]}, {strides[box.above]}, {rows}, "
            f"{remaining[box.above]}, {remaining[0]});"
        )
        return
    w.line(
        f"store_rows<{box.row_bytes}>({storage.pointer} + ({terms}), {pointer}, lane, "
        f"{strides[box.along]}, {rows}, {remaining[0]});"
    )
