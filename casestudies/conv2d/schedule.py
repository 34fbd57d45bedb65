"""Two schedules of the 2-D convolution.

``cuda``: stock Halide on CUDA cores, one thread keeping a run of outputs in registers. ``tensor``:
rows of taps are a serial loop; for each, a warp adds a 1-D convolution to accumulators of several
output rows, whose image rows overlap and lie in shared memory.
"""

from __future__ import annotations

import halide as hl

from casestudies.common import filters
from casestudies.common.filters import Filter, Tiles, divisor


def tiles_for(taps: int) -> Tiles:
    """Tiles by the number of taps: the rows unrolled together divide it where it is even."""
    return Tiles(tap_rows=divisor(taps, max(1, taps // 4)))


def tensor(p: Filter, tiles: Tiles | None = None) -> hl.Func:
    """Schedule for tensor instructions; returns the output."""
    size = tiles or tiles_for(p.taps)
    block = filters.tensor(p, size)
    filters.stage_whole(p, block, p.reach(size.width, p.taps), p.reach(size.height, p.taps))
    return p.output
