"""Sums of products in other words than a product's or a filter's, as users write them: bytes with a
zero point, floats as halves, complex numbers, three factors, taps by a formula, pixels of other
grids.
"""

from __future__ import annotations

import halide as hl
import numpy as np
from plain_pipelines import F16, F32, I32, U8, Plain, bytes_, floats
from plain_windows import noise, stored, summed

import halide_bridge as hb

x, y, c = (hl.Var(name) for name in "xyc")
I8 = hl.Int(8)
TAPS = 16


def signed(*shape: int, seed: int = 0) -> np.ndarray:
    return (bytes_(*shape, seed=seed).astype(np.int32) - 128).astype(np.int8)


def matrices(kind: hl.Type, other: hl.Type) -> tuple[hl.ImageParam, hl.ImageParam, hl.RDom]:
    """Rows of ``a`` by rows of ``b``."""
    a, b = hl.ImageParam(kind, 2, "a"), hl.ImageParam(other, 2, "b")
    return a, b, hl.RDom([(0, a.width())], "k")


def bytes_of_two_kinds() -> Plain:
    a, b, k = matrices(U8, I8)
    total = summed(hl.i32(a[k, y]) * hl.i32(b[k, x]), kind=I32)
    return Plain(stored(total), [(a, bytes_(70, 96)), (b, signed(41, 96))], (70, 41), 0)


def with_a_zero_point() -> Plain:
    a, b, k = matrices(U8, I8)
    total = summed((hl.i32(a[k, y]) - 128) * hl.i32(b[k, x]), kind=I32)
    return Plain(stored(total), [(a, bytes_(70, 96)), (b, signed(41, 96))], (70, 41), 0)


def floats_as_halves() -> Plain:
    a, b, k = matrices(F32, F32)
    total = summed(hb.split_product(a[k, y], b[k, x]))
    return Plain(stored(total), [(a, floats(70, 96)), (b, floats(41, 96, seed=1))], (70, 41))


def three_factors() -> Plain:
    a, b, k = matrices(F16, F16)
    w = hl.ImageParam(F16, 1, "w")
    total = summed(hl.f32(a[k, y] * w[k]) * hl.f32(b[k, x]))
    data = [(a, noise(70, 96)), (b, noise(41, 96, seed=1)), (w, noise(96, seed=2))]
    return Plain(stored(total), data, (70, 41), 1e-3)


def scaled() -> Plain:
    a, b, k = matrices(F16, F16)
    total = summed(hl.f32(0.3) * hl.f32(a[k, y]) * hl.f32(b[k, x]))
    return Plain(stored(total), [(a, noise(70, 96)), (b, noise(41, 96, seed=1))], (70, 41), 1e-4)


def difference_of_products() -> Plain:
    a, b, k = matrices(F16, F16)
    c, d = (hl.ImageParam(F16, 2, name) for name in "cd")
    one, two = hl.f32(a[k, y]) * hl.f32(b[k, x]), hl.f32(c[k, y]) * hl.f32(d[k, x])
    left = [(v, noise(70, 96, seed=i)) for i, v in enumerate((a, c))]
    right = [(v, noise(41, 96, seed=i)) for i, v in enumerate((b, d), 2)]
    return Plain(stored(summed(one - two)), [*left, *right], (70, 41), 1e-4)


def complex_product() -> Plain:
    """Real and imaginary parts side by side."""
    a, b = (hl.ImageParam(F16, 3, name) for name in "ab")
    k = hl.RDom([(0, a.dim(1).extent())], "k")
    (ar, ai), (br, bi) = ([hl.f32(v[p, k, at]) for p in (0, 1)] for v, at in ((a, y), (b, x)))
    re, im = summed(ar * br - ai * bi, name="re"), summed(ar * bi + ai * br, name="im")
    out = hl.Func("out")
    out[c, x, y] = hl.select(c == 0, re[x, y], im[x, y])
    out.bound(c, 0, 2)
    return Plain(out, [(a, noise(70, 96, 2)), (b, noise(41, 96, 2, seed=1))], (70, 41, 2), 1e-4)


def complex_filter() -> Plain:
    """Of signals by complex taps."""
    v, h = hl.ImageParam(F16, 3, "v"), hl.ImageParam(F16, 2, "h")
    t = hl.RDom([(0, 2 * TAPS)], "t")
    (ar, ai), (br, bi) = (
        [hl.f32(v[p, x + t, y]) for p in (0, 1)],
        [hl.f32(h[p, t]) for p in (0, 1)],
    )
    re, im = summed(ar * br - ai * bi, name="re"), summed(ar * bi + ai * br, name="im")
    out = hl.Func("out")
    out[c, x, y] = hl.select(c == 0, re[x, y], im[x, y])
    out.bound(c, 0, 2)
    return Plain(out, [(v, noise(5, 331, 2)), (h, noise(32, 2, seed=1))], (5, 300, 2), 1e-4)


def rows(term: object, width: int, taps: int, results: int) -> Plain:
    image, weights = hl.ImageParam(F16, 2, "image"), hl.ImageParam(F16, 1, "weights")
    t = hl.RDom([(0, TAPS)], "t")
    total = summed(term(image, weights, t))  # type: ignore[operator]
    data = [(image, noise(21, width)), (weights, noise(taps, seed=1))]
    return Plain(stored(total), data, (21, results), 1e-4)


def taps_folded() -> Plain:
    def term(i: hl.ImageParam, k: hl.ImageParam, t: hl.RDom) -> hl.Expr:
        return hl.f32(i[x + t, y]) * hl.f32(k[hl.select(t < TAPS // 2, t, TAPS - 1 - t)])

    return rows(term, 400, TAPS, 370)  # Halide asks for as many as there are steps


def pixels_folded() -> Plain:
    """Pixels on either side are added first."""
    image, weights = hl.ImageParam(F16, 2, "image"), hl.ImageParam(F16, 1, "weights")
    t = hl.RDom([(0, TAPS // 2)], "t")
    both = hl.f32(image[x + t, y]) + hl.f32(image[x + TAPS - 1 - t, y])
    data = [(image, noise(21, 400)), (weights, noise(TAPS // 2, seed=1))]
    return Plain(stored(summed(both * hl.f32(weights[t]))), data, (21, 370), 1e-4)


def three_pixels_for_two() -> Plain:
    def term(i: hl.ImageParam, k: hl.ImageParam, t: hl.RDom) -> hl.Expr:
        return hl.f32(i[(2 * x) / 3 + t, y]) * hl.f32(k[3 * t + (2 * x) % 3])

    return rows(term, 300, 3 * TAPS, 405)


def half_a_pixel_on() -> Plain:
    """Twice as many pixels, from one phase on."""

    def term(i: hl.ImageParam, k: hl.ImageParam, t: hl.RDom) -> hl.Expr:
        return hl.f32(i[(x + 1) / 2 + t, y]) * hl.f32(k[2 * t + (x + 1) % 2])

    return rows(term, 300, 2 * TAPS, 500)


def steps_and_pixels() -> Plain:
    """Two filters of two images in one sum."""
    one, two = (hl.ImageParam(F16, 2, name) for name in ("one", "two"))
    k, m = (hl.ImageParam(F16, 1, name) for name in "km")
    t = hl.RDom([(0, TAPS)], "t")
    total = summed(hl.f32(one[x + t, y]) * hl.f32(k[t]) + hl.f32(two[x + t, y]) * hl.f32(m[t]))
    images = [(one, noise(21, 400)), (two, noise(21, 400, seed=1))]
    taps = [(k, noise(TAPS, seed=2)), (m, noise(TAPS, seed=3))]
    return Plain(stored(total), [*images, *taps], (21, 370), 1e-4)


def factor_that_is_a_difference() -> Plain:
    a, b, k = matrices(F16, F16)
    c = hl.ImageParam(F16, 2, "c")
    total = summed((hl.f32(a[k, y]) - hl.f32(c[k, y])) * hl.f32(b[k, x]))
    left = [(v, noise(70, 96, seed=i)) for i, v in enumerate((a, c))]
    return Plain(stored(total), [*left, (b, noise(41, 96, seed=2))], (70, 41), 1e-4)


def bytes_that_are_subtracted() -> Plain:
    a, b, k = matrices(U8, I8)
    c = hl.ImageParam(U8, 2, "c")
    total = summed((hl.i32(a[k, y]) - hl.i32(c[k, y])) * hl.i32(b[k, x]), kind=I32)
    left = [(v, bytes_(70, 96, seed=i)) for i, v in enumerate((a, c))]
    return Plain(stored(total), [*left, (b, signed(41, 96, seed=2))], (70, 41), 0)


def pixels_that_are_clamped() -> Plain:
    """Where they are read, and not by a boundary condition."""

    def term(i: hl.ImageParam, k: hl.ImageParam, t: hl.RDom) -> hl.Expr:
        at = hl.clamp(x + t - TAPS // 2, 0, i.width() - 1)
        return hl.f32(i[at, y]) * hl.f32(k[t])

    return rows(term, 370, TAPS, 370)


def taps_backwards() -> Plain:
    def term(i: hl.ImageParam, k: hl.ImageParam, t: hl.RDom) -> hl.Expr:
        return hl.f32(i[x - t + TAPS - 1, y]) * hl.f32(k[t])

    return rows(term, 400, TAPS, 370)


SUMS = {
    make.__name__: make
    for make in (
        bytes_of_two_kinds, with_a_zero_point, floats_as_halves, three_factors, scaled,
        difference_of_products, complex_product, complex_filter, taps_folded, pixels_folded,
        three_pixels_for_two, half_a_pixel_on, steps_and_pixels, factor_that_is_a_difference,
        bytes_that_are_subtracted, pixels_that_are_clamped, taps_backwards,
    )
}  # fmt: skip
