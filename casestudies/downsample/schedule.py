"""Two schedules of downsampling.

``cuda``: stock Halide on CUDA cores, one thread keeping a run of outputs in registers. ``tensor``:
as the 2-D convolution's, with windows that start ``factor`` pixels apart: an image row in shared
memory serves every output row whose taps reach it, ``taps / factor`` of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import halide as hl

import halide_bridge as hb
from casestudies.common.stock import fix_dense
from casestudies.downsample.algorithm import Downsampling
from casestudies.downsample.problem import Problem


@dataclass(frozen=True, slots=True)
class Tiles:
    """Outputs of one vector statement, vectors side by side and rows of a warp, and warps of a
    block. ``tap_rows`` rows of taps are unrolled together: an image row that several output rows
    need is then read once for all of them.

    A block works through ``segments`` groups of rows, with ``stages`` of them on their way.
    """

    outputs: int = 128
    vectors: int = 1
    rows: int = 8
    warps: int = 4
    tap_rows: int = 16
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


STAGED_BYTES = 96 * 1024  # two blocks and their tables fit the shared memory of a processor


def tiles_for(taps: int, factor: int) -> Tiles:
    """Tiles by the number of taps and the factor: groups of rows one after the other where shared
    memory holds the image of two, else as many rows as it holds the image of. The rows of taps that
    are unrolled together divide them.
    """
    tap_rows = next(n for n in range(16, 0, -1) if taps % n == 0)
    ring = Tiles(tap_rows=tap_rows, segments=4, stages=2)
    shapes = ((8, 4), (4, 4), (2, 4), (1, 4), (1, 2))
    sizes = [ring, *(Tiles(rows=r, warps=w, tap_rows=tap_rows) for r, w in shapes)]
    return next(
        (s for s in sizes if 2 * s.stages * prod(staged(s, taps, factor)) <= STAGED_BYTES),
        Tiles(rows=1, warps=1, tap_rows=tap_rows),
    )


def staged(size: Tiles, taps: int, factor: int) -> tuple[int, int]:
    """Width and height of the part of the image that a group of warps reads, a multiple of 16 bytes
    wide.
    """
    width = -(-(factor * (size.width - 1) + taps) // 8) * 8
    return width, factor * (size.height - 1) + taps


def tensor(p: Downsampling, tiles: Tiles | None = None) -> hl.Func:
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
    p.down.bound_extent(p.x, size.width).bound_extent(p.y, size.rows).compute_at(p.output, yw)
    hb.store_in(p.down, hb.MemoryType.WMMAAccumulator)
    p.down.split(p.x, xv, xi, size.outputs).vectorize(xi).unroll(xv).unroll(p.y)
    to, ti = hl.RVar("to"), hl.RVar("ti")
    (
        p.down.update()
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


def stage_rows(p: Downsampling, group: hl.Var, size: Tiles) -> None:
    """Copy the part of the image that a group of warps reads into shared memory, from a multiple of
    16 bytes to another.
    """
    copy = p.source.in_(p.down)
    x, _ = copy.args()
    copy.compute_at(p.output, group).store_in(hl.MemoryType.GPUShared)
    if size.stages > 1:
        hb.pipeline_stages(copy, size.stages)
    copy.align_bounds(x, 8).vectorize(x)


def cuda(p: Downsampling, problem: Problem, threads: Threads | None = None) -> hl.Func:
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
    p.down.bound_extent(p.x, size.outputs).compute_at(p.output, xt).unroll(p.x)
    p.down.update().split(p.t.x, to, ti, size.taps).reorder(p.x, ti, to, p.t.y)
    p.down.update().unroll(p.x).unroll(ti)
    copy = p.source.in_(p.down)
    run = copy.args()[0]
    reach = p.factor * (size.outputs - 1) + size.taps
    copy.compute_at(p.down, to).bound_extent(run, -(-reach // 8) * 8)
    copy.vectorize(run, 8).unroll(run)
    return p.output


def threads_for(problem: Problem) -> Threads:
    """Threads for one size: taps are unrolled by a divisor of their number."""
    return Threads(taps=next(n for n in (8, 4, 2, 1) if problem.taps % n == 0))


def fix_sizes(p: Downsampling, problem: Problem) -> None:
    """Tell stock Halide the extents, strides and alignment of dense arrays."""
    for parameter, spec in zip((p.image, p.weights), problem.inputs, strict=True):
        fix_dense(parameter, spec.shape)
    fix_dense(p.output.output_buffer(), problem.output.shape)
