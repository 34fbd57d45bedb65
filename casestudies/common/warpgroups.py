"""The schedule of filters of an image for warpgroups (sm_90a).

A vector statement is 512 outputs of a row: 64 windows of 8, which wgmma reads in the raw row, times
a band. A group of four warps has several rows of outputs in its registers, so that one instruction
takes all bands that meet an image row; groups lie below each other and share the staged rows. A
block goes down a column of the image, and rows arrive as long as others are used.
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

import halide_bridge as hb
from casestudies.common.filters import Filter, rounded

OUTPUTS = 512  # of a statement
WINDOW = 8  # outputs of a window
STEP = 16  # elements that an instruction takes from a window


@dataclass(frozen=True, slots=True)
class Windows:
    """Rows of outputs of a group, groups of a block, tiles of a block one below the other, and
    tiles of the image that are staged.
    """

    rows: int = 16
    groups: int = 4
    tiles: int = 4
    stages: int = 2

    @property
    def height(self) -> int:
        """Rows of a tile."""
        return self.rows * self.groups


def windows(p: Filter, size: Windows) -> hl.Func:
    """Schedule for warpgroups; returns the output."""
    xo, xi, yo, yi, yt, yg = (hl.Var(name) for name in ("xo", "xi", "yo", "yi", "yt", "yg"))
    (
        p.output.split(p.x, xo, xi, OUTPUTS)
        .split(p.y, yo, yi, size.height * size.tiles)
        .split(yi, yt, yi, size.height)
        .split(yi, yg, yi, size.rows)
        .reorder(xi, yi, yg, yt, xo, yo)
        .vectorize(xi)
        .unroll(yi)
        .gpu_blocks(xo, yo)
        .gpu_threads(yg)
    )
    p.total.bound_extent(p.x, OUTPUTS).bound_extent(p.y, size.rows).compute_at(p.output, yg)
    hb.store_in(p.total, hb.MemoryType.WGMMAAccumulator)
    p.total.vectorize(p.x).unroll(p.y)
    update = p.total.update().reorder(p.t.x, p.x, p.y, p.t.y).atomic()
    update.vectorize(p.x).vectorize(p.t.x)
    staged = p.source.in_(p.total)
    x, y = staged.args()
    staged.compute_at(p.output, yt).store_in(hl.MemoryType.GPUShared).vectorize(x)
    staged.bound_extent(y, p.reach(size.height, p.taps))
    if size.stages > 1:
        hb.pipeline_stages(staged, size.stages)
    if p.source is p.image:
        staged.bound_extent(x, rounded(reached(p, 0)))
    else:
        staged.align_bounds(x, alignment(p))
    return p.output


def reached(p: Filter, lead: int) -> int:
    """Elements of a row from the first window's, which begins ``lead`` elements before its taps,
    to the end of the last one's last step.
    """
    depth = lead + p.taps + p.factor * (WINDOW - 1)
    return p.factor * (OUTPUTS - WINDOW) + rounded(depth, STEP)


def alignment(p: Filter) -> int:
    """The multiple that a staged row which begins before the image starts and ends at, so that it
    holds what the windows reach.
    """
    unit = WINDOW * p.factor
    for multiple in (WINDOW << n for n in range(8)):
        before = -p.back % multiple  # elements of the staged row before the first tap
        length = rounded(before + p.reach(OUTPUTS, p.taps), multiple)
        if before // unit * unit + reached(p, before % unit) <= length:
            return multiple
    raise AssertionError("rows of several windows hold one step more")
