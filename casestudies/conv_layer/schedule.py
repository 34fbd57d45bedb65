"""The schedule of the convolution layer for stock Halide: on CUDA cores, one thread keeping some
filters of some pixels in registers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import halide as hl

from casestudies.common.multiples import largest_divisor
from casestudies.common.stock import fix_sizes
from casestudies.conv_layer.algorithm import Layer
from casestudies.conv_layer.problem import Problem

CHANNELS = 8  # of a pixel that a thread holds, at most


@dataclass(frozen=True, slots=True)
class Threads:
    """Filters and pixels that one thread computes, threads along x and along y of a block. With
    those along the filters there are ``most`` in all: more would leave each too few registers.
    """

    filters: int = 8
    pixels: int = 4
    x: int = 16
    y: int = 4
    most: int = 256

    def dividing(self, problem: Problem) -> Threads:
        """The most pixels and threads up to these that divide the images: a block of the baseline
        reads nothing beyond them.
        """
        pixels = largest_divisor(problem.width, self.pixels)
        x = largest_divisor(problem.width // pixels, self.x)
        return replace(self, pixels=pixels, x=x)


def cuda(p: Layer, problem: Problem, threads: Threads | None = None) -> hl.Func:
    """Best effort without tensor instructions, for stock Halide; returns the output.

    Each thread keeps its filters of its pixels in registers, and for a run of channels its pixels
    and weights. The baseline is compiled for the one size of ``problem``, which gives stock Halide
    its best chance.
    """
    size = (threads or Threads()).dividing(problem)
    fix_sizes(p.arrays, p.output, problem)
    ct, xo, xi, xt, yo, yi = (hl.Var(n) for n in ("ct", "xo", "xi", "xt", "yo", "yi"))
    guard = hl.TailStrategy.GuardWithIf
    filters = next(n for n in (size.filters, 4, 2, 1) if p.outputs % n == 0)
    runs = p.outputs // filters
    across = largest_divisor(runs, min(runs, size.most // size.x))
    rows = largest_divisor(problem.height, max(1, min(size.y, size.most // (size.x * across))))
    (
        p.output.split(p.c, ct, p.c, filters)
        .split(p.x, xo, xi, size.pixels * size.x, guard)
        .split(xi, xt, xi, size.pixels, guard)
        .split(p.y, yo, yi, rows, guard)
        .reorder(p.c, xi, ct, xt, yi, xo, yo, p.n)
    )
    if across < runs:
        cb = hl.Var("cb")
        p.output.split(ct, cb, ct, across).reorder(p.c, xi, ct, xt, yi, xo, yo, cb, p.n)
        p.output.fuse(cb, p.n, p.n)
    (
        p.output.gpu_blocks(xo, yo, p.n)
        .gpu_threads(ct, xt, yi)
        .vectorize(p.c, min(filters, 4))
        .unroll(p.c)
        .unroll(xi)
    )
    p.conv.compute_at(p.output, ct).bound_extent(p.c, filters).bound_extent(p.x, size.pixels)
    p.conv.unroll(p.c).unroll(p.x)
    run = next(n for n in (CHANNELS, 4, 2, 1) if p.inputs % n == 0)
    ro, ri = hl.RVar("ro"), hl.RVar("ri")
    update = p.conv.update().split(p.r.x, ro, ri, run).reorder(p.c, p.x, ri, p.r.y, ro, p.r.z)
    update.unroll(p.c).unroll(p.x).unroll(ri)
    image, weights = p.image.in_(p.conv), p.weights.in_(p.conv)
    channel, x = image.args()[:2]
    reach = p.stride * (size.pixels - 1) + 1
    image.compute_at(p.conv, p.r.y).bound_extent(channel, run).bound_extent(x, reach)
    image.vectorize(channel).unroll(x)
    column, row = weights.args()[:2]
    weights.compute_at(p.conv, p.r.y).bound_extent(column, filters).bound_extent(row, run)
    weights.vectorize(column).unroll(row)
    return p.output
