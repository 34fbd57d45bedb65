"""The GEMMs of NVDSL (sections 3.1 and 4 of its paper) as schedules of the same algorithm, f16.

Each has tiles of 128 x 128 results and 64 of the sum, and one warpgroup that multiplies.
"""

from __future__ import annotations

from dataclasses import replace

from selector.families.contraction import Tiling

_TILE = Tiling(n=128, m=128, k=64, parts_m=1, band=1)

CHAPTERS = {
    # 3.1: M = N = 128, K = 64: the one tile is asked for, waited for, multiplied and stored.
    "single tile": replace(_TILE, stages=2, self_fed=True),
    # 4.1: the group that multiplies keeps three tiles on their way.
    "multistage": replace(_TILE, stages=3, self_fed=True),
    # 4.2: one group asks for tiles, the other multiplies.
    "warp-specialized": replace(_TILE, stages=3),
}
