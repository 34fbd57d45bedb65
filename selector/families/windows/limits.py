"""What a schedule of a filter takes of a multiprocessor, and which ones a target has room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from selector.families import MOST_LANES
from selector.families.windows.tiling import (
    BAND,
    LONGEST_BAND,
    Shape,
    Tiling,
    alignment,
    group_outputs,
    reached,
    rounded,
    whole,
)
from selector.targets import Target

MOST_STATEMENTS = 256  # that are unrolled: more take long to compile
REGISTERS = 160  # of a thread, more than that leaves no block beside
INSTRUCTION = 256  # outputs of one
LONG = 64  # elements of a window, of which sums are stored one by one
OTHERS, AHEAD = 24, 16  # registers of a thread beside its accumulators; where it copies ahead


def why_not(t: Tiling, shape: Shape, target: Target) -> str:
    """Why a schedule does not fit a target; empty if it does."""
    if not target.has("wgmma" if t.unit == "group" else "mma"):
        return f"{target.name} has no such instructions"
    return _unfit(t, shape) or _too_much(t, shape, target)


def _unfit(t: Tiling, shape: Shape) -> str:
    """What windows and taps do not divide."""
    if t.unit == "group":
        if shape.bytes != 2 or shape.down or shape.x.dilation > 1 or shape.y.taps == 1:
            return "groups take windows of 16-bit rows in two dimensions"
        if t.outputs != group_outputs(shape.x):
            return "a statement of a group has 64 windows"
        if t.rows * shape.y.step > shape.y.taps * shape.y.phases:
            return "rows beyond those of taps meet no row of the image together"
    elif shape.down:
        if t.rows % shape.band or t.tap_rows > 1 or t.segments > 1:
            return f"columns are taken by bands of {shape.band} rows"
        if t.outputs * shape.band % INSTRUCTION:
            return "instructions have 16 rows of 16 outputs, or 8 of 32"
    elif t.outputs % shape.channels:
        return "a tile has whole pixels"
    elif t.outputs % whole(shape.x.phases):
        return "a tile has whole instructions of whole groups of phases"
    elif shape.y.taps % t.tap_rows:
        return "the rows of taps that are unrolled do not divide them"
    if shape.signal and t.rows * t.segments > 1:
        return "a signal has one row"
    return "a tile has all phases of its rows" if t.rows % shape.y.phases else ""


def _too_much(t: Tiling, shape: Shape, target: Target) -> str:
    """Lanes, statements, threads, registers and shared memory."""
    if _lanes(t, shape) > MOST_LANES:
        return f"a statement has more than {MOST_LANES} lanes"
    if t.vectors * t.rows * t.tap_rows > MOST_STATEMENTS:
        return f"more than {MOST_STATEMENTS} statements are unrolled"
    if t.threads > target.max_threads:
        return f"a block has {t.threads} threads"
    if registers(t, shape) > min(REGISTERS, _register_room(t, target)):
        return "a thread needs too many registers"
    if shared_bytes(t, shape) > target.shared_memory:
        return f"its part of the image does not fit shared memory of {target.shared_memory} bytes"
    return ""


def _register_room(t: Tiling, target: Target) -> int:
    """Registers of a thread that the largest block leaves it."""
    room = target.multiprocessor
    assert room is not None
    return room.registers // held_threads(t) // 8 * 8


def held_threads(t: Tiling) -> int:
    """Of a block, with those that feed it."""
    return t.threads + (128 if t.unit == "group" else 0)


def _lanes(t: Tiling, shape: Shape) -> int:
    """Of the largest statement or copy."""
    taps = shape.y.taps * shape.band if shape.down else min(shape.x.taps, LONGEST_BAND)
    copied = staged_bytes(t, shape) // shape.bytes
    return max(t.outputs * taps, copied if t.boxes and t.unit == "warp" else 0)


def accumulators(t: Tiling) -> int:
    """Registers of a thread that hold sums."""
    return t.width * t.rows // (128 if t.unit == "group" else 32)


def registers(t: Tiling, shape: Shape) -> int:
    """Of a thread, about. Along rows, the sums of a long band leave as soon as they are complete,
    however many there are, and the band stays; of several bands, one after the other, those of all
    outputs stay, and one band.
    """
    more = AHEAD + accumulators(t) // 4 if t.segments > 1 and t.unit == "warp" else 0
    sums = accumulators(t)
    if shape.channels > 1:  # a row of pixels stays as long as any row of outputs reads it
        more += sums * 3 // 4
    if shape.y.taps == 1 and depth(t, shape) > LONG:
        band = replace(shape, x=replace(shape.x, taps=min(shape.x.taps, LONGEST_BAND)))
        sums = t.outputs // BAND * 2 if band == shape else sums
        more += depth(t, band) // 8
    return max(32, sums + OTHERS + more)


def beside(t: Tiling, shape: Shape, target: Target) -> int:
    """Blocks that a multiprocessor has registers and warps for."""
    room, warps = target.multiprocessor, held_threads(t) // 32
    assert room is not None
    held = rounded(registers(t, shape), 8)  # a warp's are 256 at a time
    return max(1, min(room.blocks, room.warps // warps, room.registers // (32 * warps * held)))


def staged_width(t: Tiling, shape: Shape) -> int:
    """Elements of a staged row."""
    if t.unit == "group":
        if shape.declared and shape.x.first == 0:
            return rounded(reached(shape.x, 0), shape.run)
        multiple = alignment(shape.x)
        before = shape.x.first % multiple
        return rounded(before + shape.x.reach(t.width), multiple)
    if shape.channels > 1:
        lead, pixels = shape.x.first // shape.channels % shape.run, t.width // shape.channels
        further = (shape.x.window - 1) // shape.channels
        return shape.channels * rounded(lead + pixels + further, shape.run)
    bands = rounded(shape.x.taps, LONGEST_BAND) if shape.x.taps > LONGEST_BAND else shape.x.taps
    more = shape.x.dilation * (bands - shape.x.taps)
    return rounded(shape.x.first % shape.run + shape.x.reach(t.tile(shape)[0]) + more, shape.run)


def staged_bytes(t: Tiling, shape: Shape) -> int:
    """Of the part of the image that one tile reads."""
    return shape.bytes * staged_width(t, shape) * shape.y.reach(t.tile(shape)[1])


def depth(t: Tiling, shape: Shape) -> int:
    """Elements that instructions take of a window, or of a column: what they are given."""
    step = 32 // shape.operand_bytes
    if shape.down:
        return rounded(shape.y.reach(shape.band), step)
    return rounded(shape.lead + shape.x.step * 7 + shape.x.window, step)


def band_bytes(t: Tiling, shape: Shape) -> int:
    """Of the bands of all rows of taps."""
    if shape.down:
        return shape.operand_bytes * shape.band * depth(t, shape)
    rows = shape.y.taps * shape.y.phases
    return shape.operand_bytes * rows * 8 * shape.x.phases * depth(t, shape)


def shared_bytes(t: Tiling, shape: Shape) -> int:
    """Of a block, about."""
    return t.stages * staged_bytes(t, shape) + band_bytes(t, shape) + 1024


def box_of(t: Tiling, shape: Shape, before: Shape) -> Tiling | None:
    """What a tile of columns reads, as the outputs of the filter of one axis that makes it: a
    statement each turn of each unit. None if statements do not divide that.
    """
    width, height = t.width, shape.y.reach(t.height)
    if before.down:
        outputs, rows = 16 if before.band % 16 == 0 else 32, before.band
    else:
        phases = whole(before.x.phases)
        outputs, rows = 128 if 128 % phases == 0 else phases, 1
    if width % outputs or height % rows:
        return None
    return Tiling("warp", outputs, width // outputs, rows, height // rows)


def turns(box: Tiling, units: int) -> int:
    """In how many turns so many units, or up to twice as many, make a box: statements of several
    rows are divided among them without a rest.
    """
    if box.rows == 1:
        return -(-box.units // units)
    return next(
        n for n in range(1, box.units + 1) if box.units % n == 0 and box.units <= 2 * n * units
    )


def pitch(width: int, run: int) -> int:
    """Elements from one row to the next of what a block makes: an odd number of 16 bytes, so that
    those that read eight rows at once do not meet in a bank.
    """
    return (rounded(width, run) // run | 1) * run


def boxes_of(t: Tiling, shape: Shape, before: Sequence[Shape]) -> tuple[Tiling, ...]:
    """The boxes of filters each of which makes the image of the one ahead of it, the first one that
    of a tile of columns. Shorter than these where statements do not divide one, or it is of rows,
    ahead of which nothing is made.
    """
    boxes: list[Tiling] = []
    for first in before:
        box = box_of(t, shape, first) if shape.down else None
        if box is None:
            break
        boxes.append(box)
        t, shape = box, first
    return tuple(boxes)


def made_bytes(t: Tiling, shape: Shape, boxes: Sequence[Tiling], before: Sequence[Shape]) -> int:
    """Shared memory of a block that makes what it reads, about."""
    readers = (shape, *before)
    made = sum(
        reader.bytes * pitch(box.width, reader.run) * box.height
        for box, reader in zip(boxes, readers, strict=False)
    )
    bands = sum(map(band_bytes, (t, *boxes), readers))
    return made + staged_bytes(boxes[-1], before[-1]) + bands + 1024


def why_not_made(t: Tiling, shape: Shape, before: Sequence[Shape], target: Target) -> str:
    """Why blocks of a schedule that fits cannot make the part of the image that they read."""
    boxes = boxes_of(t, shape, before)
    if t.unit == "group" or len(boxes) < len(before):
        return "statements do not divide what a tile of columns reads"
    for box, first in zip(boxes, before, strict=True):
        if first.channels > 1 or first.signal or (first.y.taps > 1 and not first.down):
            return "a block makes filters of one axis"
        if registers(box, first) > REGISTERS or _lanes(box, first) > MOST_LANES:
            return "a thread needs too many registers"
    if made_bytes(t, shape, boxes, before) > target.shared_memory:
        return f"its images do not fit shared memory of {target.shared_memory} bytes"
    return ""
