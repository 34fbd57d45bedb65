"""The schedule for warpgroups (wgmma, sm_90a): windows of raw rows, 16 rows of outputs a group."""

from __future__ import annotations

import halide as hl

from casestudies.common.filters import Filter
from casestudies.common.warpgroups import Windows, windows


def windows_for(taps: int) -> Windows:
    """Tiles by the number of taps; blocks of 256 rows. Rows of outputs beyond those of taps would
    meet no row of the image together. Two tiles of 32 taps do not fit into shared memory.
    """
    if taps < 16:
        return Windows(rows=4, groups=4, tiles=16)
    return Windows(stages=2 if taps <= 16 else 1)


def warpgroups(p: Filter) -> hl.Func:
    """Schedule for warpgroups; returns the output."""
    return windows(p, windows_for(p.taps))
