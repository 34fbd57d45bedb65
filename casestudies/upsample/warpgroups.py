"""The schedule for warpgroups (wgmma, sm_90a): a window makes all outputs of 8 pixels."""

from __future__ import annotations

import halide as hl

from casestudies.common.filters import Filter
from casestudies.common.warpgroups import Windows, windows


def windows_for(taps: int, phases: int) -> Windows:
    """Tiles by the taps and the number of phases: few taps leave the time to the stores, which more
    and smaller blocks spread.
    """
    rows = 4 if taps <= 8 else 8  # of 1024 outputs each, in 64 registers of a thread
    return Windows(max(1, rows // phases) * phases, groups=4, tiles=4, stages=1)


def warpgroups(p: Filter) -> hl.Func:
    """Schedule for warpgroups; returns the output."""
    return windows(p, windows_for(p.taps, p.phases))
