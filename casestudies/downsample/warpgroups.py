"""The schedule for warpgroups (wgmma, sm_90a): windows of raw rows, several rows of outputs in the
columns of one instruction.
"""

from __future__ import annotations

import halide as hl

from casestudies.common.filters import Filter
from casestudies.common.warpgroups import Windows, windows
from casestudies.downsample.problem import BLOCKS


def windows_for(taps: int, factor: int) -> Windows:
    """Tiles by the number of taps and the factor. Rows of outputs of a group beyond those that meet
    one row of the image would share no instruction, and the compiler moves their accumulators
    about; smaller images have fewer groups a block.
    """
    if taps < 16 or factor not in BLOCKS:
        return Windows(rows=4, groups=4, tiles=4, stages=1)
    rows, groups = 16 if taps >= 16 * factor else 8, 8 // factor
    return Windows(rows, groups, tiles=BLOCKS[factor][1] // (rows * groups), stages=1)


def warpgroups(p: Filter) -> hl.Func:
    """Schedule for warpgroups; returns the output."""
    return windows(p, windows_for(p.taps, p.factor))
