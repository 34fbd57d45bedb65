"""The schedule for warpgroups (wgmma, sm_90a): windows of raw rows, 16 rows of outputs a group."""

from __future__ import annotations

import halide as hl

from casestudies.common.blocks import Block
from casestudies.common.filters import Filter
from casestudies.common.warpgroups import Windows, windows
from casestudies.conv2d.problem import CHOICES


def windows_for(taps: int, block: Block | None = None) -> Windows:
    """Tiles by the number of taps; blocks of 256 rows if nothing else is chosen. Rows of outputs
    beyond those of taps would meet no row of the image together. Two tiles of 64 rows for 32 taps
    do not fit into shared memory.
    """
    if taps < 16:
        return Windows(rows=4, groups=4, tiles=16)
    size = block or CHOICES[0]
    return Windows(size.rows, 4, size.tiles, 1 if taps > 16 and size.rows > 8 else 2)


def warpgroups(p: Filter, block: Block | None = None) -> hl.Func:
    """Schedule for warpgroups; returns the output."""
    return windows(p, windows_for(p.taps, block))
