"""Two schedules of the convolution layer.

``cuda``: stock Halide on CUDA cores, one thread keeping some filters of some pixels in registers.
``tensor``: for each of the 3 x 3 taps a warp adds a product of pixels x channels with channels x
filters to accumulators of several rows of pixels. The image lies in shared memory with the channels
of a pixel as one row, so the windows of all taps are read in place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import halide as hl

import halide_bridge as hb
from casestudies.common.multiples import largest_divisor, rounded
from casestudies.common.stock import fix_sizes
from casestudies.conv_layer.algorithm import Layer
from casestudies.conv_layer.problem import Problem
from casestudies.conv_layer.tiles import UNIT, USUAL, WARP_SHARED, Window, pixels_read, vector
from casestudies.conv_layer.warpgroups import copy

LANES = 1 << 16  # that a vector of Halide's has less than
STATEMENTS = 160  # of one tile, at most: more take too long to compile


@dataclass(frozen=True, slots=True)
class Tiles:
    """Pixels of one vector statement, vectors side by side and rows of a warp, how often it does as
    many rows, and warps along x and y of a block. A block does ``strips`` such tiles down the image
    or the same one of ``images`` images, with ``stages`` of them in shared memory.
    """

    pixels: int = 16
    vectors: int = 4
    rows: int = 2
    passes: int = 1
    warps_x: int = 1
    warps_y: int = 4
    strips: int = 1
    images: int = 1
    stages: int = 1

    @property
    def warp_width(self) -> int:
        return self.pixels * self.vectors

    @property
    def width(self) -> int:
        return self.warp_width * self.warps_x

    @property
    def height(self) -> int:
        return self.rows * self.passes * self.warps_y


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


def tiles_for(
    channels: int, filters: int, stride: int = 1, room: int = WARP_SHARED, window: Window = USUAL
) -> Tiles:
    """About 64 registers of sums a lane, fewer pixels where there are many filters; a block goes
    down the image where its shared memory, so many bytes, holds the next strip, too.
    """
    vectors = max(1, min(4, 8 * UNIT // rounded(filters)))
    one = Tiles(vectors=vectors, warps_x=4 // vectors, warps_y=4 if vectors > 1 else 2)
    several = replace(one, strips=8, stages=2)
    return several if shared_bytes(channels, filters, several, stride, window) <= room else one


def fits(
    channels: int, filters: int, stride: int = 1, room: int = WARP_SHARED, window: Window = USUAL
) -> bool:
    """Whether shared memory holds the weights of all channels beside the image, and statements are
    neither too long for Halide nor too many to be compiled in time.
    """
    size, deep = tiles_for(channels, filters, stride, room, window), vector(rounded(channels))
    statements = size.vectors * size.rows * window.count * (rounded(channels) // deep)
    long = max(size.pixels * deep, rounded(channels)) * rounded(filters) >= LANES
    fitting = shared_bytes(channels, filters, size, stride, window) <= room
    return fitting and statements <= STATEMENTS and not long


def shared_bytes(
    channels: int, filters: int, size: Tiles, stride: int = 1, window: Window = USUAL
) -> int:
    """What a block has in shared memory: rows of channels or filters, an odd number of units each,
    so that eight of them lie in different banks.
    """
    pixel, row = ((rounded(n) // UNIT | 1) * UNIT * 2 for n in (channels, filters))
    image = prod(pixels_read(size.width, size.height, stride, window=window)) * pixel
    return size.stages * image + window.count * rounded(channels) * row


def tensor(p: Layer, tiles: Tiles | None = None) -> hl.Func:
    """Schedule for tensor instructions; returns the output."""
    size = tiles or tiles_for(p.inputs, p.outputs, p.stride, window=p.window)
    xo, xi, xw, xv, no, ns, co = (hl.Var(n) for n in ("xo", "xi", "xw", "xv", "no", "ns", "co"))
    yo, yb, ys, yi, yw, yp = (hl.Var(n) for n in ("yo", "yb", "ys", "yi", "yw", "yp"))
    (
        p.output.bound(p.c, 0, p.outputs)
        .split(p.c, co, p.c, rounded(p.outputs))
        .split(p.x, xo, xi, size.width)
        .split(xi, xw, xi, size.warp_width)
        .split(xi, xv, xi, size.pixels)
        .split(p.y, yo, yb, size.height * size.strips)
        .split(yb, ys, yi, size.height)
        .split(yi, yw, yi, size.rows * size.passes)
        .split(yi, yp, yi, size.rows)
        .split(p.n, no, ns, size.images)
        .reorder(p.c, xi, xv, yi, yp, xw, yw, ys, ns, co, xo, yo, no)
        .vectorize(p.c)
        .vectorize(xi)
        .unroll(xv)
        .unroll(yi)
        .gpu_blocks(xo, yo, no)
        .gpu_threads(xw, yw)
    )
    accumulate(p, yp, size)
    stage(p, ns if size.strips == 1 else ys, xo, size)
    return p.output


def accumulate(p: Layer, warp: hl.Var, size: Tiles) -> None:
    """Schedule the sums of a warp: the channels of a pixel are the depth of a product, the taps are
    unrolled.
    """
    xi, xv = hl.Var("xi"), hl.Var("xv")
    ro, ri = hl.RVar("ro"), hl.RVar("ri")
    p.conv.compute_at(p.output, warp)
    hb.store_in(p.conv, hb.MemoryType.WMMAAccumulator)
    p.conv.bound_extent(p.c, rounded(p.outputs))
    p.conv.bound_extent(p.x, size.warp_width).bound_extent(p.y, size.rows)
    p.conv.split(p.x, xv, xi, size.pixels).reorder(p.c, xi, xv, p.y)
    p.conv.vectorize(p.c).vectorize(xi).unroll(xv).unroll(p.y)
    deep = vector(rounded(p.inputs))
    update = p.conv.update().split(p.x, xv, xi, size.pixels).split(p.r.x, ro, ri, deep)
    update.reorder(ri, p.c, xi, xv, p.y, ro, p.r.y, p.r.z).atomic()
    update.vectorize(ri).vectorize(p.c).vectorize(xi)
    update.unroll(xv).unroll(p.y).unroll(ro).unroll(p.r.y).unroll(p.r.z)


def stage(p: Layer, strip: hl.Var, block: hl.Var, size: Tiles) -> None:
    """Copy what a strip needs of the image, and once a block the weights, into shared memory."""
    image, weights = p.staged(p.image), p.weights.in_(p.conv)
    extents = (rounded(p.inputs), *pixels_read(size.width, size.height, p.stride, window=p.window))
    copy(image.compute_at(p.output, strip), extents, image.args()[:2])
    if size.stages > 1:
        hb.pipeline_stages(image, size.stages)
    extents = (rounded(p.outputs), rounded(p.inputs), *p.taps)
    copy(weights.compute_at(p.output, block), extents, weights.args()[:2])


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
    run = next(n for n in (UNIT, 4, 2, 1) if p.inputs % n == 0)
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
