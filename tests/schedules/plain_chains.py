"""More plain pipelines, as users write them: chains of stencils, statistics of windows, rows and
columns, and parts of models.
"""

from __future__ import annotations

from typing import Any

import halide as hl
import numpy as np
from plain_pipelines import F32, U8, Plain, bytes_, floats

x, y, z, c, d, h, n, i, j = (hl.Var(name) for name in "xyzcdhnij")
BOUNDARY = hl.BoundaryConditions


def halves(*shape: int, seed: int = 0) -> Any:
    return (floats(*shape, seed=seed) - np.float32(0.5)).astype(np.float16)


def sobel_edges() -> Plain:
    photo, out = hl.ImageParam(U8, 2, "photo"), hl.Func("edges")
    at, v = BOUNDARY.mirror_image(photo), hl.Func("v")
    v[x, y] = hl.i16(at[x, y])
    gx = v[x + 1, y - 1] - v[x - 1, y - 1] + 2 * v[x + 1, y] - 2 * v[x - 1, y]
    gx += v[x + 1, y + 1] - v[x - 1, y + 1]
    gy = v[x - 1, y + 1] - v[x - 1, y - 1] + 2 * v[x, y + 1] - 2 * v[x, y - 1]
    gy += v[x + 1, y + 1] - v[x + 1, y - 1]
    out[x, y] = hl.u8_sat(hl.abs(gx) + hl.abs(gy))
    return Plain(out, [(photo, bytes_(31, 77))], (31, 77))


def decode_nv12() -> Plain:
    """Video: brightness, and colours of half the size, interleaved; pixels out."""
    luma, chroma = hl.ImageParam(U8, 2, "luma"), hl.ImageParam(U8, 3, "chroma")
    rgb = hl.Func("rgb")
    bright = 298 * (hl.i32(luma[x, y]) - 16)
    u, v = (hl.i32(chroma[k, x / 2, y / 2]) - 128 for k in (0, 1))
    red = (bright + 409 * v + 128) >> 8
    green = (bright - 100 * u - 208 * v + 128) >> 8
    blue = (bright + 516 * u + 128) >> 8
    rgb[c, x, y] = hl.u8_sat(hl.mux(c, [red, green, blue]))
    rgb.bound(c, 0, 3)
    return Plain(rgb, [(luma, bytes_(22, 70)), (chroma, bytes_(11, 35, 2, seed=1))], (22, 70, 3))


def tone_map() -> Plain:
    """Reinhard's, with the mean of the brightness' logarithm."""
    photo = hl.ImageParam(F32, 3, "photo")
    bright, total, out = hl.Func("bright"), hl.Func("total"), hl.Func("shown")
    red, green, blue = (photo[x, y, k] for k in range(3))
    bright[x, y] = hl.f32(0.2126) * red + hl.f32(0.7152) * green + hl.f32(0.0722) * blue
    r = hl.RDom([(0, photo.width()), (0, photo.height())], "r")
    total[()] += hl.log(bright[r.x, r.y] + hl.f32(1e-4))
    mean = hl.exp(total[()] / hl.f32(photo.width() * photo.height()))
    scaled = hl.f32(0.18) * bright[x, y] / mean
    mapped = scaled * (1 + scaled / 4) / (1 + scaled)
    value = hl.pow(photo[x, y, c] * mapped / (bright[x, y] + hl.f32(1e-4)), hl.f32(1 / 2.2))
    out[x, y, c] = hl.u8(hl.clamp(value * 255 + hl.f32(0.5), 0, 255))
    return Plain(out, [(photo, floats(3, 30, 45) * 3)], (3, 30, 45), 2)


def richardson_lucy() -> Plain:
    """One step of deconvolution."""
    guess, seen, psf = (hl.ImageParam(F32, 2, name) for name in ("guess", "seen", "psf"))
    now, data = BOUNDARY.repeat_edge(guess), BOUNDARY.repeat_edge(seen)
    r, out = hl.RDom([(-3, 7), (-3, 7)], "r"), hl.Func("better")
    blurred, ratio, back = hl.Func("blurred"), hl.Func("ratio"), hl.Func("back")
    blurred[x, y] += now[x + r.x, y + r.y] * psf[r.x + 3, r.y + 3]
    ratio[x, y] = data[x, y] / (blurred[x, y] + hl.f32(1e-3))
    back[x, y] += ratio[x - r.x, y - r.y] * psf[r.x + 3, r.y + 3]
    out[x, y] = guess[x, y] * back[x, y]
    data_ = [(guess, floats(29, 47)), (seen, floats(29, 47, seed=1)), (psf, floats(7, 7) / 24)]
    return Plain(out, data_, (29, 47), 1e-4)


def match_template() -> Plain:
    """Normalised cross correlation."""
    scene, part, out = hl.ImageParam(F32, 2, "scene"), hl.ImageParam(F32, 2, "part"), hl.Func("ncc")
    r = hl.RDom([(0, 9), (0, 9)], "r")
    both, sums, squares = hl.Func("both"), hl.Func("sums"), hl.Func("squares")
    here = scene[x + r.x, y + r.y]
    both[x, y] += here * part[r.x, r.y]
    sums[x, y] += here
    squares[x, y] += here * here
    total, norm = hl.Func("part_total"), hl.Func("part_norm")
    total[()] += part[r.x, r.y]
    norm[()] += part[r.x, r.y] * part[r.x, r.y]
    variance = squares[x, y] - sums[x, y] * sums[x, y] / 81
    own = norm[()] - total[()] * total[()] / 81
    shared = both[x, y] - sums[x, y] * total[()] / 81
    out[x, y] = shared / hl.sqrt(variance * own + hl.f32(1e-6))
    return Plain(out, [(scene, floats(40, 61)), (part, floats(9, 9, seed=1))], (32, 53), 1e-3)


def guided_filter() -> Plain:
    """By itself: means of 9 x 9, by rows and columns, of two sums and then of two others."""
    photo = hl.ImageParam(F32, 2, "photo")
    at, square, out = BOUNDARY.repeat_edge(photo), hl.Func("square"), hl.Func("smooth")

    def mean(of: hl.Func, name: str) -> hl.Func:
        rows, found, r = hl.Func(f"{name}_rows"), hl.Func(name), hl.RDom([(-4, 9)])
        rows[x, y] = hl.sum(of[x + r, y])
        found[x, y] = hl.sum(rows[x, y + r]) / 81
        return found

    square[x, y] = at[x, y] * at[x, y]
    first, second = mean(at, "first"), mean(square, "second")
    a, b = hl.Func("a"), hl.Func("b")
    variance = second[x, y] - first[x, y] * first[x, y]
    a[x, y] = variance / (variance + hl.f32(0.01))
    b[x, y] = first[x, y] * (1 - a[x, y])
    out[x, y] = mean(a, "mean_a")[x, y] * photo[x, y] + mean(b, "mean_b")[x, y]
    return Plain(out, [(photo, floats(33, 51))], (33, 51), 1e-4)


def opened() -> Plain:
    """Morphology: the least of 5 x 5, then the largest."""
    mask, out, least = hl.ImageParam(U8, 2, "mask"), hl.Func("opened"), hl.Func("least")
    at, r = BOUNDARY.repeat_edge(mask), hl.RDom([(-2, 5), (-2, 5)], "r")
    least[x, y] = hl.minimum(at[x + r.x, y + r.y])
    out[x, y] = hl.maximum(least[x + r.x, y + r.y])
    return Plain(out, [(mask, bytes_(26, 71))], (26, 71))


def disparity() -> Plain:
    """Stereo: which of 16 shifts has the least sum of differences."""
    left, right = hl.ImageParam(U8, 2, "left"), hl.ImageParam(U8, 2, "right")
    a, b = BOUNDARY.repeat_edge(left), BOUNDARY.repeat_edge(right)
    off, cost, best, out = (hl.Func(s) for s in ("off", "cost", "best", "shift"))
    r, s = hl.RDom([(-2, 5), (-2, 5)], "r"), hl.RDom([(0, 16)], "s")
    off[x, y, d] = hl.u16(hl.absd(a[x, y], b[x - d, y]))
    cost[x, y, d] = hl.u16(0)
    cost[x, y, d] += off[x + r.x, y + r.y, d]
    best[x, y] = hl.argmin(cost[x, y, s])
    out[x, y] = hl.u8(best[x, y][0])
    return Plain(out, [(left, bytes_(23, 66)), (right, bytes_(23, 66, seed=1))], (23, 66))


def heat_in_space() -> Plain:
    heat, rate = hl.ImageParam(F32, 3, "heat"), hl.Param(F32, "rate")
    u, out = BOUNDARY.repeat_edge(heat), hl.Func("warmer")
    around = u[x - 1, y, z] + u[x + 1, y, z] + u[x, y - 1, z] + u[x, y + 1, z]
    around += u[x, y, z - 1] + u[x, y, z + 1]
    out[x, y, z] = u[x, y, z] + rate * (around - 6 * u[x, y, z])
    return Plain(out, [(heat, floats(9, 14, 37)), (rate, 0.1)], (9, 14, 37))


def game_of_life() -> Plain:
    cells, after = hl.ImageParam(U8, 2, "cells"), hl.Func("after")
    at = BOUNDARY.repeat_image(cells)
    near = sum(
        (at[x + a, y + b] for a in (-1, 0, 1) for b in (-1, 0, 1) if (a, b) != (0, 0)), hl.u8(0)
    )
    after[x, y] = hl.u8(hl.select((near == 3) | ((near == 2) & (at[x, y] == 1)), 1, 0))
    return Plain(after, [(cells, bytes_(33, 61) % 2)], (33, 61))


def thin_edges() -> Plain:
    """Gradients that are the largest across their direction."""
    photo, out = hl.ImageParam(F32, 2, "photo"), hl.Func("thin")
    at = BOUNDARY.repeat_edge(photo)
    soft, gx, gy, size = (hl.Func(s) for s in ("soft", "gx", "gy", "size"))
    soft[x, y] = (at[x, y] * 4 + (at[x - 1, y] + at[x + 1, y] + at[x, y - 1] + at[x, y + 1]) * 2
                  + at[x - 1, y - 1] + at[x + 1, y - 1] + at[x - 1, y + 1] + at[x + 1, y + 1]
                  ) / 16  # fmt: skip
    gx[x, y] = soft[x + 1, y] - soft[x - 1, y]
    gy[x, y] = soft[x, y + 1] - soft[x, y - 1]
    size[x, y] = gx[x, y] * gx[x, y] + gy[x, y] * gy[x, y]
    level = hl.abs(gx[x, y]) > hl.abs(gy[x, y])
    one = hl.select(level, hl.f32(size[x - 1, y]), hl.f32(size[x, y - 1]))
    other = hl.select(level, hl.f32(size[x + 1, y]), hl.f32(size[x, y + 1]))
    own = hl.f32(size[x, y])
    out[x, y] = hl.select((own >= one) & (own >= other), own, hl.f32(0))
    return Plain(out, [(photo, floats(28, 53))], (28, 53), 1e-4)


def through_a_table() -> Plain:
    photo, table, out = hl.ImageParam(U8, 2, "photo"), hl.ImageParam(U8, 1, "table"), hl.Func("out")
    out[x, y] = table[hl.i32(photo[x, y])]
    return Plain(out, [(photo, bytes_(21, 67)), (table, bytes_(256, seed=2))], (21, 67))


def rotated() -> Plain:
    """Turned and moved, between four pixels."""
    photo, cos, sin = hl.ImageParam(F32, 2, "photo"), hl.Param(F32, "cos"), hl.Param(F32, "sin")
    at, out = BOUNDARY.repeat_edge(photo), hl.Func("turned")
    u, v = cos * x - sin * y + 3, sin * x + cos * y - 2
    low_u, low_v = hl.floor(u), hl.floor(v)
    left, top = hl.i32(low_u), hl.i32(low_v)
    a = hl.lerp(at[left, top], at[left + 1, top], u - low_u)
    b = hl.lerp(at[left, top + 1], at[left + 1, top + 1], u - low_u)
    out[x, y] = hl.lerp(a, b, v - low_v)
    return Plain(out, [(photo, floats(37, 41)), (cos, 0.96), (sin, 0.28)], (37, 41), 1e-4)


def haar() -> Plain:
    """One level in two dimensions, four bands."""
    photo, out, rows = hl.ImageParam(F32, 2, "photo"), hl.Func("bands"), hl.Func("rows")
    a, b = photo[2 * x, y], photo[2 * x + 1, y]
    rows[x, y, c] = hl.select(c == 0, a + b, a - b)
    low = rows[x, 2 * y, c % 2] + rows[x, 2 * y + 1, c % 2]
    high = rows[x, 2 * y, c % 2] - rows[x, 2 * y + 1, c % 2]
    out[x, y, c] = hl.select(c < 2, low, high) / 2
    out.bound(c, 0, 4)
    return Plain(out, [(photo, floats(34, 58))], (4, 17, 29))


def half_size() -> Plain:
    """Means of four pixels, interleaved bytes."""
    photo, out = hl.ImageParam(U8, 3, "photo"), hl.Func("half")
    four = [hl.u16(photo[c, 2 * x + a, 2 * y + b]) for a in (0, 1) for b in (0, 1)]
    out[c, x, y] = hl.u8((sum(four, hl.u16(0)) + 2) / 4)
    out.bound(c, 0, 3)
    return Plain(out, [(photo, bytes_(26, 62, 3))], (13, 31, 3))


def blur_pixels() -> Plain:
    """Five taps each way, interleaved bytes with an edge."""
    photo, out = hl.ImageParam(U8, 3, "photo"), hl.Func("soft")
    at, rows = BOUNDARY.repeat_edge(photo), hl.Func("rows")
    taps = (1, 4, 6, 4, 1)
    rows[c, x, y] = sum((w * hl.u16(at[c, x + k - 2, y]) for k, w in enumerate(taps)), hl.u16(0))
    high = sum((w * hl.u32(rows[c, x, y + k - 2]) for k, w in enumerate(taps)), hl.u32(0))
    out[c, x, y] = hl.u8((high + 128) >> 8)
    out.bound(c, 0, 3)
    return Plain(out, [(photo, bytes_(25, 46, 3))], (25, 46, 3))


CHAINS = {
    make.__name__: make
    for make in (
        sobel_edges, decode_nv12, tone_map, richardson_lucy, match_template, guided_filter, opened,
        disparity, heat_in_space, game_of_life, thin_edges, through_a_table, rotated, haar,
        half_size, blur_pixels,
    )
}  # fmt: skip
