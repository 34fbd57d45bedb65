"""Denoising by coring in overlapped tiles of the DCT, in plain Halide (paper section V-E).

Tiles of 16 x 16 pixels start at every eighth row and column, so that four of them cover a pixel.
Each is transformed along both axes, cleared of its small bins, transformed back, weighted by a
window, and added to the picture. Bins of all tiles lie side by side on one axis, 16 for each tile:
along x, with the transform F,

    rows(16 t + k, y) = sum_i  F(i, k) * I(8 t - 8 + i, y),        i < 16

and a pixel is the sum over the 32 bins of both tiles that cover it, with the window in G:

    output(8 b + p, y) = sum_k  G(k, p) * columns(16 b + k, y),    k < 32

and the same along y. Sums are f32; what one product hands to the next is f16.
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

from casestudies.dct_denoise.problem import STRIDE, TILE


@dataclass(frozen=True, slots=True)
class Denoising:
    """The Funcs that a schedule talks about.

    ``rows`` and ``columns`` have bins along x and pixels along y, ``bins`` has bins along both. The
    first four of ``sums`` are the products (f32), each with the Func that rounds it to f16.
    """

    image: hl.ImageParam
    forward: hl.ImageParam
    inverse: hl.ImageParam
    threshold: hl.ImageParam
    padded: hl.Func
    rows: hl.Func
    bins: hl.Func
    columns: hl.Func
    pixels: hl.Func
    rows16: hl.Func
    cored: hl.Func
    columns16: hl.Func
    output: hl.Func
    x: hl.Var
    y: hl.Var
    c: hl.Var
    q: hl.Var
    r: hl.Var
    i: hl.RDom
    j: hl.RDom
    k: hl.RDom
    z: hl.RDom


def denoise() -> Denoising:
    """The unscheduled pipeline; the picture's extents are free. Pixels outside of it repeat its
    border.
    """
    half = hl.Float(16)
    image = hl.ImageParam(half, 3, "I")
    forward, inverse = hl.ImageParam(half, 2, "F"), hl.ImageParam(half, 2, "G")
    threshold = hl.ImageParam(half, 1, "T")
    x, y, c, q, r = (hl.Var(name) for name in "xycqr")
    i, j = (hl.RDom([(0, TILE)], name) for name in "ij")
    k, z = (hl.RDom([(0, 2 * TILE)], name) for name in "kz")

    padded, rows, bins, columns, pixels, rows16, cored, columns16, output = (
        hl.Func(name)
        for name in (
            "padded", "rows", "bins", "columns", "pixels", "rows16", "cored", "columns16", "output",
        )
    )  # fmt: skip
    inside_x = hl.clamp(x, 0, image.width() - 1)
    inside_y = hl.clamp(y, 0, image.height() - 1)
    padded[x, y, c] = image[inside_x, inside_y, c]

    rows[q, y, c] = hl.f32(0)
    at = STRIDE * (q // TILE) - STRIDE
    rows[q, y, c] += hl.f32(padded[at + i.x, y, c]) * hl.f32(forward[i.x, q % TILE])
    rows16[q, y, c] = hl.cast(half, rows[q, y, c])

    bins[q, r, c] = hl.f32(0)
    at = STRIDE * (r // TILE) - STRIDE
    bins[q, r, c] += hl.f32(rows16[q, at + j.x, c]) * hl.f32(forward[j.x, r % TILE])
    value = hl.cast(half, bins[q, r, c])
    cored[q, r, c] = hl.select(hl.abs(value) > threshold[0], value, hl.cast(half, 0))

    columns[q, y, c] = hl.f32(0)
    at = TILE * (y // STRIDE)
    columns[q, y, c] += hl.f32(cored[q, at + k.x, c]) * hl.f32(inverse[k.x, y % STRIDE])
    columns16[q, y, c] = hl.cast(half, columns[q, y, c])

    pixels[x, y, c] = hl.f32(0)
    at = TILE * (x // STRIDE)
    pixels[x, y, c] += hl.f32(columns16[at + z.x, y, c]) * hl.f32(inverse[z.x, x % STRIDE])
    output[x, y, c] = hl.cast(half, pixels[x, y, c])
    return Denoising(
        image, forward, inverse, threshold, padded, rows, bins, columns, pixels, rows16, cored,
        columns16, output, x, y, c, q, r, i, j, k, z,
    )  # fmt: skip
