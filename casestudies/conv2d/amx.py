"""The schedule for AMX: runs of 256 outputs as a 16 x 16 tile, to which every row of taps adds the
product of windows of an image row and its band; rows of outputs on all cores.
"""

from __future__ import annotations

import halide as hl

import halide_bridge as hb
from casestudies.common.filters import Filter

OUTPUTS = 256


def amx(p: Filter) -> hl.Func:
    """Schedule for AMX; returns the output."""
    xo, xi = hl.Var("xo"), hl.Var("xi")
    p.output.split(p.x, xo, xi, OUTPUTS).vectorize(xi).parallel(p.y)
    p.total.bound_extent(p.x, OUTPUTS).compute_at(p.output, xo).vectorize(p.x)
    hb.store_in(p.total, hb.MemoryType.AMXTile)
    update = p.total.update().atomic().reorder(p.t.x, p.x, p.t.y)
    update.vectorize(p.x).vectorize(p.t.x)
    if p.source is not p.image:
        # All that a tile's windows reach, so that the band's zeros meet numbers.
        window = p.source.in_(p.total)
        window.compute_at(p.output, xo).bound_extent(
            window.args()[0], -(-(OUTPUTS + p.taps) // 32) * 32
        )
    return p.output
