"""The schedules of a filter that are worth a thought."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import lcm

from selector.families.windows.limits import LONG, accumulators, beside, depth, why_not
from selector.families.windows.tiling import (
    LONGEST_BAND,
    Shape,
    Tiling,
    group_outputs,
    rounded,
    whole,
)
from selector.targets import Target

OUTPUTS = (128, 256)
VECTORS = (1, 2, 4, 8, 10, 16)  # of a row
ROWS = (2, 4, 8)
UNITS = (2, 4, 8)
SUMS = 16  # of a thread: of fewer as many blocks as may be have room
GROUP_ROWS = (4, 8, 16)
GROUP_UNITS = (2, 4)
GROUP_SEGMENTS = (1, 2, 3, 4, 8, 16)
GROUP_STAGES = (1, 2)


def space(shape: Shape, target: Target) -> Iterator[Tiling]:
    """All that a target takes, each once; the smallest one where it takes none."""
    seen = set[Tiling]()
    for tiling in (*_warps(shape, target), *_groups(shape)):
        if tiling not in seen and not why_not(tiling, shape, target):
            seen.add(tiling)
            yield tiling
    if not seen:
        yield smallest(shape)


def smallest(shape: Shape) -> Tiling:
    """What needs least room."""
    if shape.down:
        return Tiling(outputs=16 if shape.band % 16 == 0 else 32, rows=shape.band, units=1)
    outputs, rows = lcm(OUTPUTS[0], whole(shape.x.phases), shape.channels), shape.y.phases
    if not shape.signal and shape.y.taps > 1:
        return Tiling(outputs=outputs, rows=rows, units=1, boxes=False)
    return Tiling(outputs=outputs, rows=1, units=1)


def _warps(shape: Shape, target: Target) -> Iterator[Tiling]:
    if shape.down:
        for outputs, vectors, rows, units in product((16, 32), (2, 4, 8), (1, 2), UNITS):
            yield Tiling("warp", outputs, vectors, rows * shape.band, units)
        return
    if shape.channels > 1:
        width = lcm(OUTPUTS[0], shape.channels)
        options = product((width, 2 * width), (1, *ROWS), UNITS, _unrolled(shape.y.taps))
        for outputs, rows, units, tap_rows in options:
            rows = rounded(rows, shape.y.phases)
            yield Tiling("warp", outputs, 1, rows, units, tap_rows)
        return
    widths = OUTPUTS if OUTPUTS[0] % whole(shape.x.phases) == 0 else (whole(shape.x.phases),)
    if shape.y.taps == 1:
        yield from _along_rows(shape, widths, target)
        return
    taps = _unrolled(shape.y.taps)
    for outputs, rows, units, tap_rows in product(widths, ROWS, UNITS, taps):
        rows = rounded(rows, shape.y.phases)
        yield Tiling("warp", outputs, 1, rows, units, tap_rows)


def _along_rows(shape: Shape, widths: tuple[int, ...], target: Target) -> Iterator[Tiling]:
    """Wide blocks spread what windows overlap, and the work on the band; three of eight warps on a
    multiprocessor have the registers that they need. Four warps with the longest band spill theirs,
    and so do all with several bands.
    Of a short band the compiler takes fewer or more than the sums need: it is told for how many
    blocks there is room.
    """
    for outputs, vectors, units in product(widths, VECTORS, (4, 8)):
        tiling, wide = Tiling("warp", outputs, vectors, 1, units), outputs * vectors > 1024
        if wide and units == 8 and shape.x.taps <= LONGEST_BAND:
            yield replace(tiling, resident=3)
        elif not (wide and shape.x.taps >= LONGEST_BAND):
            short = depth(tiling, shape) <= LONG and accumulators(tiling) >= SUMS
            yield replace(tiling, resident=beside(tiling, shape, target) if short else 0)


def _unrolled(taps: int) -> tuple[int, ...]:
    """Rows of taps that may be unrolled together: all, a large part of them, or one."""
    divisors = [d for d in range(1, taps + 1) if taps % d == 0]
    return tuple(dict.fromkeys((taps, divisors[-2:][0], 1)))


def _groups(shape: Shape) -> Iterator[Tiling]:
    """What no copy engine brings, edges and rows that are not aligned, threads do: in a block of
    one tile all of them, else those that feed it, which the others would wait for.
    """
    if shape.down or shape.y.taps == 1 or shape.channels > 1:
        return
    outputs = group_outputs(shape.x)
    sizes = product(GROUP_ROWS, GROUP_UNITS, GROUP_SEGMENTS, GROUP_STAGES)
    for rows, units, segments, stages in sizes:
        if stages <= segments and (segments == 1 or (shape.declared and shape.aligned)):
            rows = rounded(rows, shape.y.phases)
            yield Tiling("group", outputs, 1, rows, units, segments=segments, stages=stages)
