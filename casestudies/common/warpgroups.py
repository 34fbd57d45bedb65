"""The schedule of filters of an image for warpgroups (sm_90a).

A vector statement is 64 windows, which wgmma reads in the raw row, times a band. They begin 8
pixels apart, so that one makes 8 outputs, of several phases each where these lie between pixels, or
4 or 2 where outputs lie 2 or 4 pixels apart: then 2 or 4 rows of outputs share an instruction's 8
columns. A group of four warps has several rows of
outputs in its registers, so that one instruction takes all bands that meet an image row; groups lie
below each other and share the staged rows. A block goes down a column of the image, and rows arrive
as long as others are used.
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

import halide_bridge as hb
from casestudies.common.filters import Filter
from casestudies.common.multiples import rounded

WINDOWS = 64  # of a statement
APART = 8  # elements from a window to the next
FACTORS = (1, 2, 4)  # pixels from an output to the next that fit this
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


def per_window(p: Filter) -> int:
    """Outputs of a window, of one phase."""
    return APART // (p.factor if p.factor in FACTORS else 1)


def outputs(p: Filter) -> int:
    """Of a vector statement."""
    return WINDOWS * per_window(p) * p.phases


def windows(p: Filter, size: Windows) -> hl.Func:
    """Schedule for warpgroups; returns the output."""
    xo, xi, yo, yi, yt, yg = (hl.Var(name) for name in ("xo", "xi", "yo", "yi", "yt", "yg"))
    (
        p.output.split(p.x, xo, xi, outputs(p))
        .split(p.y, yo, yi, size.height * size.tiles)
        .split(yi, yt, yi, size.height)
        .split(yi, yg, yi, size.rows)
        .reorder(xi, yi, yg, yt, xo, yo)
        .vectorize(xi)
        .unroll(yi)
        .gpu_blocks(xo, yo)
        .gpu_threads(yg)
    )
    p.total.bound_extent(p.x, outputs(p)).bound_extent(p.y, size.rows).compute_at(p.output, yg)
    hb.store_in(p.total, hb.MemoryType.WGMMAAccumulator)
    p.total.vectorize(p.x).unroll(p.y)
    update = p.total.update().reorder(p.t.x, p.x, p.y, p.t.y).atomic()
    update.vectorize(p.x).vectorize(p.t.x)
    if p.phases > 1:  # the phase of a row is a constant
        update.unroll(p.y)
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
    window = per_window(p)
    depth = lead + p.taps + p.factor * (window - 1)
    return p.factor * window * (WINDOWS - 1) + rounded(depth, STEP)


def alignment(p: Filter) -> int:
    """The multiple that a staged row which begins before the image starts and ends at, so that it
    holds what the windows reach.
    """
    unit = p.factor * per_window(p)
    for multiple in (APART << n for n in range(8)):
        before = -p.back % multiple  # elements of the staged row before the first tap
        length = rounded(before + p.reach(outputs(p), p.taps), multiple)
        if before // unit * unit + reached(p, before % unit) <= length:
            return multiple
    raise AssertionError("rows of several windows hold one step more")
