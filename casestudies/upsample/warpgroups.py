"""The schedule for warpgroups (wgmma, sm_90a): a window makes all outputs of 8 pixels."""

from __future__ import annotations

import halide as hl

from casestudies.common.filters import Filter
from casestudies.common.warpgroups import Windows, windows

ROWS = 8  # of a group: 64 registers of a thread hold their 1024 outputs
BLOCK_ROWS = 128


def windows_for(phases: int) -> Windows:
    """Tiles by the outputs of a pixel."""
    rows = max(1, ROWS // phases) * phases
    return Windows(rows, 4, tiles=-(-BLOCK_ROWS // (4 * rows)), stages=1)


def warpgroups(p: Filter) -> hl.Func:
    """Schedule for warpgroups; returns the output."""
    return windows(p, windows_for(p.phases))
