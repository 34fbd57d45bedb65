"""Two schedules of the 1-D convolution.

``cuda``: stock Halide on CUDA cores, one thread keeping a run of outputs in registers. ``tensor``:
a block stages pieces of image rows in shared memory, a warp keeps several accumulators of one row,
and each is one vector statement over all taps, which the selector turns into a banded matrix times
windows of the row.
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

import halide_bridge as hb
from casestudies.common import filters
from casestudies.common.filters import Filter

LONGEST_BAND = 256  # taps of one vector statement; more are taken band by band


@dataclass(frozen=True, slots=True)
class Tiles:
    """Outputs of one vector statement, such vectors side by side in a warp, rows (warps) of a
    block, and blocks of a multiprocessor, which bound the registers (0: the compiler's choice).
    """

    outputs: int
    vectors: int
    rows: int
    resident: int = 0

    @property
    def width(self) -> int:
        return self.outputs * self.vectors


def tiles_for(taps: int) -> Tiles:
    """Tiles that fit the lanes of a Halide vector; wide taps get wider blocks to spread the
    overlap, and more rows to spread the work on the band.
    """
    if taps <= 64:
        return Tiles(outputs=256, vectors=2, rows=4)
    if taps <= 160:
        return Tiles(outputs=128, vectors=8, rows=4)
    if taps < LONGEST_BAND:
        return Tiles(outputs=128, vectors=16, rows=4)
    if taps == LONGEST_BAND:
        return Tiles(outputs=128, vectors=10, rows=8, resident=3)
    return Tiles(outputs=128, vectors=15, rows=8)


def tensor(p: Filter, tiles: Tiles | None = None) -> hl.Func:
    """Schedule for tensor instructions; returns the output."""
    size = tiles or tiles_for(p.taps)
    xo, xi, xv, yo, yi = (hl.Var(n) for n in ("xo", "xi", "xv", "yo", "yi"))
    (
        p.output.split(p.x, xo, xi, size.width)
        .split(xi, xv, xi, size.outputs)
        .split(p.y, yo, yi, size.rows)
        .reorder(xi, xv, yi, xo, yo)
        .vectorize(xi)
        .unroll(xv)
        .gpu_blocks(xo, yo)
        .gpu_threads(yi)
    )
    if size.resident:
        hb.resident_blocks(p.output, size.resident)
    p.total.bound_extent(p.x, size.width).compute_at(p.output, yi)
    hb.store_in(p.total, hb.MemoryType.WMMAAccumulator)
    p.total.split(p.x, xv, xi, size.outputs).vectorize(xi).unroll(xv)
    update = p.total.update().split(p.x, xv, xi, size.outputs)
    taps = p.t.x
    if p.taps > LONGEST_BAND:
        bands, taps = hl.RVar("bands"), hl.RVar("taps")
        update.split(p.t.x, bands, taps, LONGEST_BAND).reorder(taps, xi, xv, bands).unroll(bands)
    else:
        update.reorder(taps, xi, xv)
    update.atomic().vectorize(xi).vectorize(taps).unroll(xv)
    bands = -(-p.taps // LONGEST_BAND)
    reach = p.reach(size.width, p.taps if bands == 1 else bands * LONGEST_BAND)
    filters.stage_whole(p, xo, reach, size.rows)
    return p.output
