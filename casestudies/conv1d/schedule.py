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
from casestudies.common.stock import fix_dense
from casestudies.conv1d.algorithm import Convolution
from casestudies.conv1d.problem import Problem

LANES_LIMIT = 65535  # Halide counts lanes in 16 bits
LONGEST_BAND = 256  # taps of one vector statement; more are taken band by band


@dataclass(frozen=True, slots=True)
class Tiles:
    """Outputs of one vector statement, such vectors side by side in a warp, and rows (warps) of a
    block.
    """

    outputs: int
    vectors: int
    rows: int

    @property
    def width(self) -> int:
        return self.outputs * self.vectors


@dataclass(frozen=True, slots=True)
class Threads:
    """Outputs that one thread computes, threads along x and along y, taps unrolled together."""

    outputs: int = 8
    x: int = 32
    y: int = 8
    taps: int = 8

    @property
    def width(self) -> int:
        return self.outputs * self.x


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
    return Tiles(outputs=128, vectors=15, rows=8)


def tensor(p: Convolution, tiles: Tiles | None = None) -> hl.Func:
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
    p.conv.bound_extent(p.x, size.width).compute_at(p.output, yi)
    hb.store_in(p.conv, hb.MemoryType.WMMAAccumulator)
    p.conv.split(p.x, xv, xi, size.outputs).vectorize(xi).unroll(xv)
    update = p.conv.update().split(p.x, xv, xi, size.outputs)
    taps = p.t.x
    if p.taps > LONGEST_BAND:
        bands, taps = hl.RVar("bands"), hl.RVar("taps")
        update.split(p.t.x, bands, taps, LONGEST_BAND).reorder(taps, xi, xv, bands).unroll(bands)
    else:
        update.reorder(taps, xi, xv)
    update.atomic().vectorize(xi).vectorize(taps).unroll(xv)
    stage_rows(p, xo, size)
    return p.output


def stage_rows(p: Convolution, block: hl.Var, size: Tiles) -> None:
    """Copy the rows that a block reads into shared memory, as one vector over a multiple of 16
    bytes a row.
    """
    staged = p.source.in_(p.conv)
    x, y = staged.args()
    bands = -(-p.taps // LONGEST_BAND)
    taps = p.taps if bands == 1 else bands * LONGEST_BAND
    width = -(-(size.width + taps - 1) // 8) * 8
    staged.compute_at(p.output, block).store_in(hl.MemoryType.GPUShared)
    if p.source is p.image:
        staged.bound_extent(x, width)
    else:
        staged.align_bounds(x, 8)
    staged.bound_extent(y, size.rows).vectorize(x).vectorize(y)


def cuda(p: Convolution, problem: Problem, threads: Threads | None = None) -> hl.Func:
    """Best effort without tensor instructions, for stock Halide; returns the output.

    Each thread loads a run of the image with vector loads and keeps it and its outputs in
    registers. The baseline is compiled for the one size of ``problem``, which gives stock Halide
    its best chance.
    """
    size = threads or threads_for(problem)
    fix_sizes(p, problem)
    xo, xi, xt, yo, yi = (hl.Var(n) for n in ("xo", "xi", "xt", "yo", "yi"))
    to, ti = hl.RVar("to"), hl.RVar("ti")
    tail = hl.TailStrategy.ShiftInwards
    if problem.width < size.width or problem.height < size.y:
        tail = hl.TailStrategy.GuardWithIf
    (
        p.output.split(p.x, xo, xi, size.width, tail)
        .split(xi, xt, xi, size.outputs)
        .split(p.y, yo, yi, size.y, tail)
        .reorder(xi, xt, yi, xo, yo)
        .gpu_blocks(xo, yo)
        .gpu_threads(xt, yi)
        .vectorize(xi, 4)
        .unroll(xi)
    )
    p.conv.bound_extent(p.x, size.outputs).compute_at(p.output, xt).unroll(p.x)
    p.conv.update().split(p.t.x, to, ti, size.taps).reorder(p.x, ti, to)
    p.conv.update().unroll(p.x).unroll(ti)
    staged = p.source.in_(p.conv)
    run = staged.args()[0]
    staged.compute_at(p.conv, to).bound_extent(run, -(-(size.outputs + size.taps - 1) // 8) * 8)
    staged.vectorize(run, 8).unroll(run)
    return p.output


def threads_for(problem: Problem) -> Threads:
    """Threads for one size: taps are unrolled by a divisor of their number."""
    return Threads(taps=next(n for n in (8, 4, 2, 1) if problem.taps % n == 0))


def fix_sizes(p: Convolution, problem: Problem) -> None:
    """Tell stock Halide the extents, strides and alignment of dense arrays."""
    for parameter, spec in zip((p.image, p.weights), problem.inputs, strict=True):
        fix_dense(parameter, spec.shape)
    fix_dense(p.output.output_buffer(), problem.output.shape)
