"""The schedule for warpgroups (wgmma, sm_90a): windows of raw rows, several rows of outputs in the
columns of one instruction.
"""

from __future__ import annotations

import halide as hl

from casestudies.common.filters import Filter
from casestudies.common.warpgroups import Windows, windows

MOST_ROWS = 16  # of a group, whose image fits shared memory beside that of three others
BLOCK_ROWS = 128


def windows_for(taps: int, factor: int) -> Windows:
    """Tiles by the number of taps and the factor: as many rows of outputs a group as meet one row
    of the image, in whole instructions. Rows beyond those would share none, and the compiler moves
    their accumulators about.
    """
    rows = max(1, min(taps // factor, MOST_ROWS) // factor) * factor
    groups = 4
    return Windows(rows, groups, tiles=-(-BLOCK_ROWS // (rows * groups)), stages=1)


def warpgroups(p: Filter) -> hl.Func:
    """Schedule for warpgroups; returns the output."""
    return windows(p, windows_for(p.taps, p.factor))
