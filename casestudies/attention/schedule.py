"""The schedule of attention for tensor instructions: that of the family."""

from __future__ import annotations

from dataclasses import replace

import halide as hl

from halide_bridge.schedules import Attention, schedule_attention
from selector.families.attention import Tiling
from selector.families.attention.tiling import DEPTH, padded


def tensor(p: Attention, tiling: Tiling) -> hl.Func:
    """With vector statements that a head's channels are whole numbers of; returns the output."""
    channels = tiling.channels if padded(p.depth) % tiling.channels == 0 else DEPTH
    return schedule_attention(p, replace(tiling, channels=channels))
