"""Separable Lanczos-3 resampling by any factor, in plain Halide (paper section V-C).

Along an axis of ``size`` pixels with ``count`` outputs, output ``o`` lies at ``(o + 1/2) * size /
count``; its weights are the kernel at the distance to each pixel's centre, in units of a pixel (up)
or of an output (down), divided by their sum. Pixels outside the image have none.

Weights are stored block-sparse: ``group`` neighbouring outputs share the pixel where their weights
start, so that they are a dense matrix. A group of 1 is the sparse form without zeros in front.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi

import halide as hl

LOBES = 3
ALIGNED = 8  # starts along x are multiples of it where outputs share them


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: pixels, outputs, taps of an output, and the weights ``[k, o]`` with their sums."""

    size: hl.Expr
    count: hl.Expr
    group: int
    step: int
    taps: hl.Expr
    distance: hl.Func
    sine: hl.Func
    kernel: hl.Func
    total: hl.Func
    weights: hl.Func
    r: hl.RDom
    k: hl.RDom

    def first(self, o: hl.Expr) -> hl.Expr:
        """The pixel of tap 0 of output ``o``: a multiple of ``step`` inside the (padded) axis."""
        reach = LOBES * hl.max(self.size, self.count)
        o = o / self.group * self.group
        pixel = ((2 * o + 1) * self.size - 2 * reach - self.count) / (2 * self.count) + 1
        return hl.clamp(pixel / self.step, 0, self.last_start) * self.step

    @property
    def last_start(self) -> hl.Expr:
        """The largest start, in steps."""
        return hl.max(self.size - self.taps + self.step - 1, 0) / self.step

    @property
    def padded(self) -> hl.Expr:
        """Pixels from 0 on that some taps, of weight 0 beyond the axis, reach."""
        return self.last_start * self.step + self.taps


def make_axis(name: str, size: hl.Expr, count: hl.Expr, group: int, step: int, unit: int) -> Axis:
    """The weights of one axis: starts are multiples of ``step``, their number of ``unit``.

    The kernel sinc(x) * sinc(x / 3) takes one sine: sin(3 a) = 3 sin(a) - 4 sin(a)^3.
    """
    need = ((group - 1) * size + 2 * LOBES * hl.max(size, count) + count - 1) / count + step - 1
    taps = (need + unit - 1) / unit * unit
    distance, sine, kernel, total, weights = (
        hl.Func(f"{name}_{part}") for part in ("distance", "sine", "kernel", "total", "weights")
    )
    r, sums = (hl.RDom([(0, taps)], f"{name}_{what}") for what in ("t", "k"))
    axis = Axis(size, count, group, step, taps, distance, sine, kernel, total, weights, r, sums)
    k, o = hl.Var("k"), hl.Var("o")
    pixel = axis.first(o) + k
    # From whole numbers, whose difference is exact.
    apart = hl.f32((2 * pixel + 1) * count - (2 * o + 1) * size) / hl.f32(2 * hl.max(size, count))
    distance[k, o] = hl.select(pixel < size, apart, hl.f32(LOBES))
    sine[k, o] = hl.fast_sin(distance[k, o] * hl.f32(pi / LOBES))
    d, s = hl.abs(distance[k, o]), sine[k, o] * sine[k, o]
    value = s * (3.0 - 4.0 * s) / (hl.f32(pi * pi / LOBES) * d * d)
    kernel[k, o] = hl.select(d >= hl.f32(LOBES), 0.0, d < hl.f32(1e-4), 1.0, value)
    total[o] = 0.0
    total[o] += kernel[r.x, o]
    weights[k, o] = hl.cast(hl.Float(16), kernel[k, o] / total[o])
    return axis


@dataclass(frozen=True, slots=True)
class Resampling:
    """The Funcs that a schedule talks about. (The one between the passes has a name behind that of
    the columns' weights: Halide orders what is computed at one place by names, and copies of the
    weights are then on their way while it is.)
    """

    image: hl.ImageParam
    rows: Axis
    columns: Axis
    padded: hl.Func
    tall: hl.Func
    tile: hl.Func
    middle: hl.Func
    wide: hl.Func
    result: hl.Func
    output: hl.Func
    x: hl.Var
    y: hl.Var
    c: hl.Var


def resample(group: int, units: tuple[int, int] = (16, 32)) -> Resampling:
    """The unscheduled pipeline; sizes of the image and of the output are those of the call.

    ``group`` outputs share a start; the taps of rows and of columns are multiples of ``units``.
    """
    image = hl.ImageParam(hl.Float(16), 3, "I")
    x, y, c = (hl.Var(name) for name in "xyc")
    padded, tall, tile, middle, wide, result, output = (
        hl.Func(n) for n in ("padded", "tall", "tile", "middle", "wide", "result", "output")
    )
    output[x, y, c] = hl.undef(hl.Float(16))  # it has a size from here on
    size = output.output_buffer()
    rows = make_axis("rows", image.height(), size.height(), group, 1, units[0])
    step = ALIGNED if group > 1 else 1
    columns = make_axis("columns", image.width(), size.width(), group, step, units[1])
    across, down = hl.min(x, image.width() - 1), hl.min(y, image.height() - 1)
    inside = (x < image.width()) & (y < image.height())
    padded[x, y, c] = hl.select(inside, image[across, down, c], hl.cast(hl.Float(16), 0.0))
    tall[x, y, c] = hl.f32(0.0)
    pixel = padded[x, rows.first(y) + rows.k.x, c]
    tall[x, y, c] += hl.f32(rows.weights[rows.k.x, y]) * hl.f32(pixel)
    tile[x, y, c] = hl.cast(hl.Float(16), tall[x, y, c])
    middle[x, y, c] = tile[x, y, c]
    wide[x, y, c] = hl.f32(0.0)
    pixel = middle[columns.first(x) + columns.k.x, y, c]
    wide[x, y, c] += hl.f32(pixel) * hl.f32(columns.weights[columns.k.x, x])
    result[x, y, c] = hl.cast(hl.Float(16), wide[x, y, c])
    output[x, y, c] = hl.select(hl.cast(hl.Bool(), 1), result[x, y, c], output[x, y, c])
    return Resampling(
        image, rows, columns, padded, tall, tile, middle, wide, result, output, x, y, c
    )
