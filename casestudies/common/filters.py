"""What filters of an image share: the Funcs, how tiles are told, and their two schedules.

conv1d, conv2d, downsample and upsample differ in how far the windows of neighbouring outputs lie
apart, and in the tiles that suit them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import halide as hl

import halide_bridge as hb
from casestudies.common.case import Problem
from casestudies.common.multiples import rounded
from casestudies.common.stock import fix_sizes


@dataclass(frozen=True, slots=True)
class Filter:
    """The Funcs that a schedule talks about; ``source`` is the image with what lies around it,
    ``total`` the sum over the ``taps`` x ``taps`` (or ``taps``) taps of an output, ``t.x`` runs
    along a row of them, ``t.y`` over their rows.

    ``reach(outputs, taps)`` neighbouring pixels are what so many neighbouring outputs read.
    """

    taps: int
    image: hl.ImageParam
    source: hl.ImageParam | hl.Func
    weights: hl.ImageParam
    total: hl.Func
    output: hl.Func
    x: hl.Var
    y: hl.Var
    t: hl.RDom
    reach: Callable[[int, int], int]
    factor: int = 1  # pixels from an output to the next
    back: int = 0  # pixels that the first window reaches back from its output
    phases: int = 1  # outputs from a pixel to the next


@dataclass(frozen=True, slots=True)
class Tiles:
    """Outputs of one vector statement, vectors side by side and rows of a warp, and warps of a
    block. ``tap_rows`` rows of taps are unrolled together: an image row that several output rows
    need is then read once for all of them.

    A block works through ``segments`` groups of rows, with ``stages`` of them on their way: its
    bands are built once for all of them.
    """

    outputs: int = 256
    vectors: int = 1
    rows: int = 8
    warps: int = 4
    tap_rows: int = 4
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
    """Outputs that one thread computes, threads along x and along y, taps unrolled together, and
    pixels of one load.
    """

    outputs: int = 8
    x: int = 32
    y: int = 8
    taps: int = 8
    vector: int = 8

    @property
    def width(self) -> int:
        return self.outputs * self.x


TYPES = {"f16": hl.Float(16), "bf16": hl.BFloat(16)}
"""Of the elements of image and taps."""


def reach(factor: int, outputs: int, taps: int) -> int:
    """Neighbouring pixels that so many neighbouring outputs, ``factor`` pixels apart, read."""
    return factor * (outputs - 1) + taps


def divisor(taps: int, most: int = 8) -> int:
    """The largest power of two up to ``most`` that divides a number of taps."""
    return next(n for n in (8, 4, 2, 1) if n <= most and taps % n == 0)


def tensor(p: Filter, size: Tiles) -> hl.Var:
    """Schedule a 2-D filter for tensor instructions: a warp adds the 1-D filters of the rows of
    taps to accumulators of several output rows. Returns the loop at which the image is to be
    staged.
    """
    xo, xi, xv, yo, ys, yw, yi = (hl.Var(n) for n in ("xo", "xi", "xv", "yo", "ys", "yw", "yi"))
    segments = [ys] if size.segments > 1 else []
    p.output.split(p.x, xo, xi, size.width).split(xi, xv, xi, size.outputs)
    p.output.split(p.y, yo, yi, size.height * size.segments)
    for segment in segments:
        p.output.split(yi, segment, yi, size.height)
    (
        p.output.split(yi, yw, yi, size.rows)
        .reorder(xi, xv, yi, yw, *segments, xo, yo)
        .vectorize(xi)
        .unroll(xv)
        .unroll(yi)
        .gpu_blocks(xo, yo)
        .gpu_threads(yw)
    )
    p.total.bound_extent(p.x, size.width).bound_extent(p.y, size.rows).compute_at(p.output, yw)
    hb.store_in(p.total, hb.MemoryType.WMMAAccumulator)
    p.total.split(p.x, xv, xi, size.outputs).vectorize(xi).unroll(xv).unroll(p.y)
    to, ti = hl.RVar("to"), hl.RVar("ti")
    (
        p.total.update()
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
    return ys if segments else xo


def stage_rows(p: Filter, group: hl.Var, size: Tiles) -> None:
    """Copy the part of the image that a group of warps reads into shared memory, row by row, from a
    multiple of 16 bytes to another.
    """
    copy = p.source.in_(p.total)
    x, _ = copy.args()
    copy.compute_at(p.output, group).store_in(hl.MemoryType.GPUShared)
    if size.stages > 1:
        hb.pipeline_stages(copy, size.stages)
    copy.align_bounds(x, 8).vectorize(x)


def stage_whole(p: Filter, block: hl.Var, width: int, height: int) -> None:
    """Copy ``width`` pixels, a multiple of 16 bytes, of ``height`` rows of the image into shared
    memory, as one vector.
    """
    copy = p.source.in_(p.total)
    x, y = copy.args()
    copy.compute_at(p.output, block).store_in(hl.MemoryType.GPUShared)
    if p.source is p.image:
        copy.bound_extent(x, rounded(width))
    else:
        copy.align_bounds(x, 8)
    copy.bound_extent(y, height).vectorize(x).vectorize(y)


def cuda(p: Filter, problem: Problem, threads: Threads | None = None) -> hl.Func:
    """Best effort without tensor instructions, for stock Halide; returns the output.

    Each thread loads a run of the image with vector loads and keeps it and its outputs in
    registers. The baseline is compiled for the one size of ``problem``, which gives stock Halide
    its best chance.
    """
    size = threads or Threads(taps=divisor(p.taps))
    fix_sizes((p.image, p.weights), p.output, problem)
    height, width = problem.output.shape
    xo, xi, xt, yo, yi = (hl.Var(n) for n in ("xo", "xi", "xt", "yo", "yi"))
    to, ti = hl.RVar("to"), hl.RVar("ti")
    tail = hl.TailStrategy.ShiftInwards
    if width < size.width or height < size.y:
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
    rows = [p.t.y] if p.weights.dimensions() == 2 else []
    p.total.bound_extent(p.x, size.outputs).compute_at(p.output, xt).unroll(p.x)
    p.total.update().split(p.t.x, to, ti, size.taps).reorder(p.x, ti, to, *rows)
    p.total.update().unroll(p.x).unroll(ti)
    copy = p.source.in_(p.total)
    run = copy.args()[0]
    copy.compute_at(p.total, to)
    copy.bound_extent(run, rounded(p.reach(size.outputs, size.taps), size.vector))
    copy.vectorize(run, size.vector).unroll(run)
    return p.output
