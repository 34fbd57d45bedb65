"""The schedule of convolutions for AMX: runs of 256 outputs as a 16 x 16 tile, to which every row
of taps adds the product of windows of an image row and its band; rows of outputs on all cores.
"""

from __future__ import annotations

import halide as hl

import halide_bridge as hb
from casestudies.common.filters import Filter
from casestudies.common.multiples import rounded

OUTPUTS = 256
TAPS_TOGETHER = 128  # of one vector statement


def amx(p: Filter) -> hl.Func:
    """Schedule for AMX; returns the output."""
    xo, xi = hl.Var("xo"), hl.Var("xi")
    p.output.split(p.x, xo, xi, OUTPUTS).vectorize(xi).parallel(p.y)
    p.total.bound_extent(p.x, OUTPUTS).compute_at(p.output, xo).vectorize(p.x)
    hb.store_in(p.total, hb.MemoryType.AMXTile)
    update, taps = p.total.update().atomic(), p.t.x
    around = [p.t.y] if p.weights.dimensions() == 2 else []
    if p.taps > TAPS_TOGETHER:
        bands, taps = hl.RVar("bands"), hl.RVar("taps")
        update.split(p.t.x, bands, taps, TAPS_TOGETHER).unroll(bands)
        around = [bands, *around]
    update.reorder(taps, p.x, *around).vectorize(p.x).vectorize(taps)
    if p.source is not p.image:
        # All that a tile's windows reach, so that the band's zeros meet numbers.
        window = p.source.in_(p.total)
        window.compute_at(p.output, xo).bound_extent(
            window.args()[0], rounded(OUTPUTS + p.taps, 32)
        )
    return p.output
