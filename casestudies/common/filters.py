"""What filters of an image share: the Funcs, and their schedules, for tensor instructions by the
family of windows.

conv1d, conv2d, downsample and upsample differ in how far the windows of neighbouring outputs lie
apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import halide as hl

from casestudies.common.case import Problem
from casestudies.common.multiples import power_of_two, rounded
from casestudies.common.stock import fix_sizes
from halide_bridge.schedules import Windows, schedule_windows
from selector.families.windows import Axis, Shape, Tiling


@dataclass(frozen=True, slots=True)
class Filter:
    """The Funcs that a schedule talks about; ``source`` is the image with what lies around it,
    ``total`` the sum over the taps of an output, ``t.x`` runs along a row of them, ``t.y`` over
    their rows. ``axis``: what an output reads along x, and along y where there is ``t.y``.
    """

    axis: Axis
    image: hl.ImageParam
    source: hl.ImageParam | hl.Func
    weights: hl.ImageParam
    total: hl.Func
    output: hl.Func
    x: hl.Var
    y: hl.Var
    t: hl.RDom

    @property
    def taps(self) -> int:
        return self.axis.taps

    @property
    def square(self) -> bool:
        """Whether there are taps along y as well."""
        return self.weights.dimensions() == 2

    @property
    def shape(self) -> Shape:
        """Of any number of outputs."""
        down = self.axis if self.square else Axis(1)
        return Shape(0, 0, self.axis, down, declared=self.source is self.image)


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


def tensor(p: Filter, size: Tiling) -> hl.Func:
    """Schedule for tensor instructions; returns the output."""
    taps = (p.t.x, p.t.y) if p.square else (p.t.x,)
    funcs = Windows(p.output, p.total, p.source, p.x, p.y, taps)
    return schedule_windows(funcs, p.shape, size)


def cuda(p: Filter, problem: Problem, threads: Threads | None = None) -> hl.Func:
    """Best effort without tensor instructions, for stock Halide; returns the output.

    Each thread loads a run of the image with vector loads and keeps it and its outputs in
    registers. The baseline is compiled for the one size of ``problem``, which gives stock Halide
    its best chance.
    """
    size = threads or Threads(taps=power_of_two(p.taps))
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
    rows = [p.t.y] if p.square else []
    p.total.bound_extent(p.x, size.outputs).compute_at(p.output, xt).unroll(p.x)
    p.total.update().split(p.t.x, to, ti, size.taps).reorder(p.x, ti, to, *rows)
    p.total.update().unroll(p.x).unroll(ti)
    copy = p.source.in_(p.total)
    run = copy.args()[0]
    copy.compute_at(p.total, to)
    copy.bound_extent(
        run, rounded(replace(p.axis, taps=size.taps).reach(size.outputs), size.vector)
    )
    copy.vectorize(run, size.vector).unroll(run)
    return p.output
