"""Two schedules of the 2-D convolution.

``cuda``: stock Halide on CUDA cores, one thread keeping a run of outputs in registers. ``tensor``:
rows of taps are a serial loop; for each, a warp adds a 1-D convolution to accumulators of several
output rows, whose image rows overlap and lie in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

import halide_bridge as hb
from casestudies.common.stock import fix_dense
from casestudies.conv2d.algorithm import Convolution
from casestudies.conv2d.problem import Problem


@dataclass(frozen=True, slots=True)
class Tiles:
    """Outputs of one vector statement, vectors side by side and rows of a warp, and warps of a
    block. ``tap_rows`` rows of taps are unrolled together: an image row that several output rows
    need is then read once for all of them.
    """

    outputs: int = 256
    vectors: int = 1
    rows: int = 8
    warps: int = 4
    tap_rows: int = 4

    @property
    def width(self) -> int:
        return self.outputs * self.vectors

    @property
    def height(self) -> int:
        return self.rows * self.warps


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
    """Tiles by the number of taps: the rows unrolled together divide it where it is even."""
    return Tiles(tap_rows=next(n for n in (8, 4, 2, 1) if taps % n == 0 and n <= max(1, taps // 4)))


def tensor(p: Convolution, tiles: Tiles | None = None) -> hl.Func:
    """Schedule for tensor instructions; returns the output."""
    size = tiles or tiles_for(p.taps)
    xo, xi, xv, yo, yw, yi = (hl.Var(n) for n in ("xo", "xi", "xv", "yo", "yw", "yi"))
    (
        p.output.split(p.x, xo, xi, size.width)
        .split(xi, xv, xi, size.outputs)
        .split(p.y, yo, yi, size.height)
        .split(yi, yw, yi, size.rows)
        .reorder(xi, xv, yi, yw, xo, yo)
        .vectorize(xi)
        .unroll(xv)
        .unroll(yi)
        .gpu_blocks(xo, yo)
        .gpu_threads(yw)
    )
    p.conv.bound_extent(p.x, size.width).bound_extent(p.y, size.rows).compute_at(p.output, yw)
    hb.store_in(p.conv, hb.MemoryType.WMMAAccumulator)
    p.conv.split(p.x, xv, xi, size.outputs).vectorize(xi).unroll(xv).unroll(p.y)
    to, ti = hl.RVar("to"), hl.RVar("ti")
    (
        p.conv.update()
        .split(p.x, xv, xi, size.outputs)
        .split(p.t.y, to, ti, size.tap_rows)
        .reorder(p.t.x, xi, xv, p.y, ti, to)
        .atomic()
        .vectorize(xi)
        .vectorize(p.t.x)
        .unroll(xv)
        .unroll(p.y)
        .unroll(ti)
    )
    stage_rows(p, xo, size)
    return p.output


def stage_rows(p: Convolution, block: hl.Var, size: Tiles) -> None:
    """Copy the part of the image that a block reads into shared memory, a multiple of 16 bytes a
    row.
    """
    staged = p.source.in_(p.conv)
    x, y = staged.args()
    width = -(-(size.width + p.taps - 1) // 8) * 8
    height = size.height + p.taps - 1
    staged.compute_at(p.output, block).store_in(hl.MemoryType.GPUShared)
    if p.source is p.image:
        staged.bound_extent(x, width)
    else:
        staged.align_bounds(x, 8)
    staged.bound_extent(y, height).vectorize(x).vectorize(y)


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
    p.conv.update().split(p.t.x, to, ti, size.taps).reorder(p.x, ti, to, p.t.y)
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
