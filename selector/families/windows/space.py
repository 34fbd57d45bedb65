"""The schedules of a filter that are worth a thought."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from selector.families.windows.limits import why_not
from selector.families.windows.tiling import BAND, Shape, Tiling, whole
from selector.families.windows.usual import groups, usual
from selector.targets import Target

OUTPUTS = (128, 256)
ROWS = (2, 4, 8)
UNITS = (2, 4, 8)
BLOCKS = ((4, 4, 16), (4, 4, 4), (4, 4, 2), (4, 4, 1), (8, 4, 2), (8, 2, 2), (16, 4, 2), (16, 4, 4))


def space(shape: Shape, target: Target) -> Iterator[Tiling]:
    """All that a target takes, each once, the usual ones first."""
    seen = set[Tiling]()
    for tiling in (usual(shape), *_warps(shape), *_groups(shape)):
        if tiling not in seen and not why_not(tiling, shape, target):
            seen.add(tiling)
            yield tiling


def _warps(shape: Shape) -> Iterator[Tiling]:
    if shape.down:
        for outputs, vectors, rows, units in product((16, 32), (2, 4, 8), (1, 2), UNITS):
            yield Tiling("warp", outputs, vectors, rows * BAND, units)
        return
    if shape.y.taps == 1:
        for outputs, vectors, units in product(OUTPUTS, (1, 2, 4, 8), (4, 8)):
            yield Tiling("warp", outputs, vectors, 1, units)
        return
    widths = OUTPUTS if OUTPUTS[0] % whole(shape.x.phases) == 0 else (whole(shape.x.phases),)
    for outputs, rows, units, taps in product(widths, ROWS, UNITS, _unrolled(shape.y.taps)):
        rows = -(-rows // shape.y.phases) * shape.y.phases
        yield Tiling("warp", outputs, 1, rows, units, taps)
        yield Tiling("warp", outputs, 1, rows, units, taps, 4, 2, False)


def _unrolled(taps: int) -> tuple[int, ...]:
    """Rows of taps that may be unrolled together: all, a large part of them, or one."""
    divisors = [d for d in range(1, taps + 1) if taps % d == 0]
    return tuple(dict.fromkeys((taps, divisors[-2:][0], 1)))


def _groups(shape: Shape) -> Iterator[Tiling]:
    if not shape.down and shape.y.taps > 1:
        for block in BLOCKS:
            if block[0] % shape.y.phases == 0:
                yield groups(shape, block)
