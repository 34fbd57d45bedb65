"""The schedule for warpgroups (wgmma, sm_90a): windows of raw rows, several rows of outputs in the
columns of one instruction.
"""

from __future__ import annotations

import halide as hl

from casestudies.common.blocks import Block
from casestudies.common.filters import Filter
from casestudies.common.warpgroups import Windows, windows
from casestudies.downsample.problem import blocks_for


def windows_for(taps: int, factor: int, block: Block | None = None) -> Windows:
    """Tiles by the number of taps and the factor. Rows of outputs of a group beyond those that meet
    one row of the image would share no instruction, and the compiler moves their accumulators
    about; smaller images have fewer groups a block.
    """
    blocks = blocks_for(taps, factor)
    if blocks is None:
        return Windows(rows=4, groups=4, tiles=4, stages=1)
    size = block or blocks.usual
    return Windows(size.rows, blocks.groups, size.tiles, stages=1)


def warpgroups(p: Filter, block: Block | None = None) -> hl.Func:
    """Schedule for warpgroups; returns the output."""
    return windows(p, windows_for(p.taps, p.factor, block))
