"""Two schedules of upsampling.

``cuda``: stock Halide on CUDA cores, one thread keeping a run of outputs in registers. ``tensor``:
a row of outputs is one vector statement over all phases and taps along x; an image row in shared
memory serves the output rows of all phases whose taps reach it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import halide as hl

import halide_bridge as hb
from casestudies.common.stock import fix_dense
from casestudies.upsample.algorithm import Upsampling
from casestudies.upsample.problem import Problem


@dataclass(frozen=True, slots=True)
class Tiles:
    """Outputs of one vector statement, vectors side by side and rows of a warp, and warps of a
    block. ``tap_rows`` rows of taps are unrolled together.

    A block works through ``segments`` groups of rows, with ``stages`` of them on their way: its
    bands are built once for all of them.
    """

    outputs: int = 256
    vectors: int = 1
    rows: int = 8
    warps: int = 4
    tap_rows: int = 8
    segments: int = 1
    stages: int = 1

    @property
    def width(self) -> int:
        return self.outputs * self.vectors

    @property
    def height(self) -> int:
        """Rows of a group."""
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


def tiles_for(taps: int, factor: int) -> Tiles:
    """Tiles by the taps of a phase and the factor: whole instructions of whole groups of phases,
    whole groups of phases along y, and rows of taps unrolled together that divide them. Few taps
    leave the time to the stores, which smaller groups spread.
    """
    outputs = 256 if 256 % (16 * factor) == 0 else 128 * factor // gcd(factor, 8)
    tap_rows = next(n for n in (8, 4, 2, 1) if taps % n == 0)
    rows, segments = (4, 8) if taps <= 8 else (8, 4)
    return Tiles(
        outputs=outputs,
        rows=factor * max(1, rows // factor),
        tap_rows=tap_rows,
        segments=segments,
        stages=2,
    )


def tensor(p: Upsampling, tiles: Tiles | None = None) -> hl.Func:
    """Schedule for tensor instructions; returns the output."""
    size = tiles or tiles_for(p.taps, p.factor)
    xo, xi, xv, yo, ys, yw, yi = (hl.Var(n) for n in ("xo", "xi", "xv", "yo", "ys", "yw", "yi"))
    (
        p.output.split(p.x, xo, xi, size.width)
        .split(xi, xv, xi, size.outputs)
        .split(p.y, yo, yi, size.height * size.segments)
        .split(yi, ys, yi, size.height)
        .split(yi, yw, yi, size.rows)
        .reorder(xi, xv, yi, yw, ys, xo, yo)
        .vectorize(xi)
        .unroll(xv)
        .unroll(yi)
        .gpu_blocks(xo, yo)
        .gpu_threads(yw)
    )
    p.up.bound_extent(p.x, size.width).bound_extent(p.y, size.rows).compute_at(p.output, yw)
    hb.store_in(p.up, hb.MemoryType.WMMAAccumulator)
    p.up.split(p.x, xv, xi, size.outputs).vectorize(xi).unroll(xv).unroll(p.y)
    to, ti = hl.RVar("to"), hl.RVar("ti")
    (
        p.up.update()
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
    stage_rows(p, ys if size.segments > 1 else xo, size)
    return p.output


def stage_rows(p: Upsampling, group: hl.Var, size: Tiles) -> None:
    """Copy the part of the image that a group of warps reads into shared memory, from a multiple of
    16 bytes to another.
    """
    copy = p.source.in_(p.up)
    x, _ = copy.args()
    copy.compute_at(p.output, group).store_in(hl.MemoryType.GPUShared)
    if size.stages > 1:
        hb.pipeline_stages(copy, size.stages)
    copy.align_bounds(x, 8).vectorize(x)


def cuda(p: Upsampling, problem: Problem, threads: Threads | None = None) -> hl.Func:
    """Best effort without tensor instructions, for stock Halide; returns the output.

    Each thread keeps a run of the image and all phases of its outputs in registers. The baseline is
    compiled for the one size of ``problem``, which gives stock Halide its best chance.
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
    p.up.bound_extent(p.x, size.outputs).compute_at(p.output, xt).unroll(p.x)
    p.up.update().split(p.t.x, to, ti, size.taps).reorder(p.x, ti, to, p.t.y)
    p.up.update().unroll(p.x).unroll(ti)
    copy = p.source.in_(p.up)
    run = copy.args()[0]
    reach = -(-size.outputs // p.factor) - 1 + size.taps
    copy.compute_at(p.up, to).bound_extent(run, -(-reach // 4) * 4)
    copy.vectorize(run, 4).unroll(run)
    return p.output


def threads_for(problem: Problem) -> Threads:
    """Threads for one size: outputs are whole groups of phases, and taps are unrolled by a divisor
    of their number.
    """
    outputs = problem.factor * 4
    taps = next(n for n in (8, 4, 2, 1) if problem.phase_taps % n == 0)
    return Threads(outputs=outputs, taps=taps)


def fix_sizes(p: Upsampling, problem: Problem) -> None:
    """Tell stock Halide the extents, strides and alignment of dense arrays."""
    for parameter, spec in zip((p.image, p.weights), problem.inputs, strict=True):
        fix_dense(parameter, spec.shape)
    fix_dense(p.output.output_buffer(), problem.output.shape)
