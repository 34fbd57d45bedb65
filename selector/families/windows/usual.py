"""The schedules of filters by what they read, for any number of outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from selector.families.windows.tiling import (
    BAND,
    LONGEST_BAND,
    Shape,
    Tiling,
    group_outputs,
    rounded,
    whole,
)

STAGED_BYTES = 96 * 1024  # two blocks and their tables fit the shared memory of a multiprocessor


def usual(shape: Shape) -> Tiling:
    """For warps."""
    if shape.down:
        return Tiling(outputs=32, vectors=4, rows=BAND, units=4)
    if shape.signal:
        outputs = 128 if 128 % whole(shape.x.phases) == 0 else whole(shape.x.phases)
        return Tiling(outputs=outputs, vectors=2, rows=1)
    if max(shape.x.phases, shape.y.phases) > 1:
        return _phased(shape)
    if max(shape.x.step, shape.y.step) > 1:
        return _strided(shape)
    if shape.y.taps == 1:
        return _along_rows(shape.x.taps)
    return Tiling(tap_rows=divisor(shape.y.taps, max(1, shape.y.taps // 4)))


def groups(shape: Shape, block: tuple[int, int, int] | None = None) -> Tiling:
    """For warpgroups; ``block``: rows of a group, groups of a block and tiles of it one below the
    other, where they are chosen. Rows of outputs beyond those of taps would meet no row of the
    image together; two tiles of 64 rows for 32 taps do not fit into shared memory.
    """
    taps, phases, stages = shape.y.taps, shape.y.phases, 1
    if max(shape.x.phases, phases) > 1:
        usual = max(1, (4 if taps <= 8 else 8) // phases) * phases, 4, 4
    elif max(shape.x.step, shape.y.step) > 1:
        usual = 4, 4, 4
    else:
        usual = (4, 4, 16) if taps < 16 else (16, 4, 4)
        stages = 1 if taps > 16 and (block or usual)[0] > 8 else 2
    rows, units, segments = block or usual
    return Tiling("group", group_outputs(shape.x), 1, rows, units, segments=segments, stages=stages)


def divisor(taps: int, most: int = 8) -> int:
    """The largest power of two up to ``most`` that divides a number of taps."""
    return next(n for n in (8, 4, 2, 1) if n <= most and taps % n == 0)


def staged_bytes(shape: Shape, size: Tiling) -> int:
    """Of the parts of the image that warps have in shared memory, multiples of 16 bytes wide."""
    width = rounded(shape.x.reach(size.width), shape.run)
    return size.stages * shape.bytes * width * shape.y.reach(size.height)


def _along_rows(taps: int) -> Tiling:
    """Tiles that fit the lanes of a Halide vector; wide taps get wider blocks to spread the
    overlap, and more rows to spread the work on the band.
    """
    size = Tiling(outputs=128, rows=1, units=4)
    if taps <= 64:
        return replace(size, outputs=256, vectors=2)
    if taps <= 160:
        return replace(size, vectors=8)
    if taps < LONGEST_BAND:
        return replace(size, vectors=16)
    if taps == LONGEST_BAND:
        return replace(size, vectors=10, units=8, resident=3)
    return replace(size, vectors=15, units=8)


def _strided(shape: Shape) -> Tiling:
    """Groups of rows one after the other where shared memory holds the image of two, else as many
    rows as it holds the image of. The rows of taps that are unrolled together divide them.
    """
    sizes = [*_rings(shape)]
    smallest = replace(sizes[-1], units=1)
    return next((s for s in sizes if staged_bytes(shape, s) <= STAGED_BYTES), smallest)


def _rings(shape: Shape) -> Iterator[Tiling]:
    tap_rows = next(d for d in range(16, 0, -1) if shape.y.taps % d == 0)
    ring = Tiling(outputs=128, tap_rows=tap_rows, segments=4, stages=2, boxes=False)
    yield ring
    for rows, units in ((8, 4), (4, 4), (2, 4), (1, 4), (1, 2)):
        yield replace(ring, rows=rows, units=units, segments=1, stages=1)


def _phased(shape: Shape) -> Tiling:
    """Whole instructions of whole groups of phases, whole groups of phases along y, and rows of
    taps unrolled together that divide them. Few taps leave the time to the stores, which smaller
    groups spread.
    """
    phases, taps = shape.x.phases, shape.x.taps
    outputs = 256 if 256 % whole(phases) == 0 else whole(phases)
    rows, segments = (4, 8) if taps <= 8 else (8, 4)
    down = shape.y.phases
    return Tiling(
        outputs=outputs,
        rows=down * max(1, rows // down),
        tap_rows=divisor(shape.y.taps),
        segments=segments,
        stages=2,
        boxes=False,
    )
