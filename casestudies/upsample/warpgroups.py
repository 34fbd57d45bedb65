"""The schedule for warpgroups (wgmma, sm_90a): a window makes all outputs of 8 pixels."""

from __future__ import annotations

import halide as hl

from casestudies.common.blocks import Block
from casestudies.common.filters import Filter
from casestudies.common.warpgroups import Windows, windows
from casestudies.upsample.problem import blocks_for


def windows_for(taps: int, phases: int, block: Block | None = None) -> Windows:
    """Tiles by the taps and the number of phases."""
    blocks = blocks_for(taps, phases)
    if blocks is not None:
        size = block or blocks.usual
        return Windows(size.rows, blocks.groups, size.tiles, stages=1)
    rows = 4 if taps <= 8 else 8  # of 1024 outputs each, in 64 registers of a thread
    return Windows(max(1, rows // phases) * phases, groups=4, tiles=4, stages=1)


def warpgroups(p: Filter, block: Block | None = None) -> hl.Func:
    """Schedule for warpgroups; returns the output."""
    return windows(p, windows_for(p.taps, p.phases, block))
