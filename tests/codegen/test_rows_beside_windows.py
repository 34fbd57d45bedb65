"""Operands on AMX tiles are read in whole steps: what lies beyond a row, or a sum, meets zeros, and
need be no number.
"""

from __future__ import annotations

from typing import Any

import halide as hl
import numpy as np
import pytest
from numpy.typing import NDArray

import halide_bridge as hb

pytestmark = pytest.mark.verified

BF16 = hl.BFloat(16)
TAPS, ROWS = 5, 3
NAN = 0x7FC0


def windows(stride: int, staged: bool) -> hl.Func:
    a, b = hl.ImageParam(BF16, 2, "A"), hl.ImageParam(BF16, 1, "B")
    x, y, xo, xi = (hl.Var(v) for v in ("x", "y", "xo", "xi"))
    acc, out, r = hl.Func("acc"), hl.Func("out"), hl.RDom([(0, TAPS)], "r")
    acc[x, y] = hl.f32(0)
    acc[x, y] += hl.f32(a[stride * x + r, y]) * hl.f32(b[r])
    out[x, y] = acc[x, y]
    out.split(x, xo, xi, 256).reorder(xi, xo, y).vectorize(xi)
    acc.bound_extent(x, 256).compute_at(out, xo).vectorize(x)
    hb.store_in(acc, hb.MemoryType.AMXTile)
    acc.update().atomic().reorder(r.x, x).vectorize(r.x).vectorize(x)
    if staged:
        a.in_(acc).compute_at(out, xo)
    return out


@pytest.mark.gcc
@pytest.mark.parametrize("width", [1, 37, 256, 300, 511])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("between", [0, 1, 40])
@pytest.mark.parametrize("staged", [False, True])
def test_what_lies_beyond_a_row_is_not_of_it(
    stride: int, width: int, between: int, staged: bool
) -> None:
    """Every second row, and all between rows, is NaN: that stays where it is."""
    length = stride * (width - 1) + TAPS
    rng = np.random.default_rng(width)
    image = rng.integers(1, 4, (ROWS, length)).astype(np.float32)
    taps = rng.integers(1, 4, TAPS).astype(np.float32)
    held = np.full((ROWS, length + between), NAN, np.uint16)
    held[:, :length] = image.view(np.uint32) >> 16
    held[1] = NAN
    kernel = hb.compile(windows(stride, staged), target="amx")
    given = {"A": held[:, :length], "B": (taps.view(np.uint32) >> 16).astype(np.uint16)}
    found = np.asarray(kernel(**given, sizes=(ROWS, width)))
    seen = np.lib.stride_tricks.sliding_window_view(image, TAPS, axis=1)[:, ::stride]
    assert np.array_equal(found[::2], (seen @ taps)[::2])
    assert np.isnan(found[1]).all()


def product(packed: bool) -> hl.Func:
    """C[x, y, z] += A[r, y, z] * B[...] with x along rows of B, or B packed by pairs of r."""
    a, b = hl.ImageParam(BF16, 3, "A"), hl.ImageParam(BF16, 4 if packed else 3, "B")
    x, y, z, xo, xi, yo, yi = (hl.Var(v) for v in ("x", "y", "z", "xo", "xi", "yo", "yi"))
    acc, out, r = hl.Func("acc"), hl.Func("out"), hl.RDom([(0, a.dim(0).extent())], "r")
    acc[x, y, z] = hl.f32(0)
    right = b[r % 2, x, r / 2, z] if packed else b[x, r, z]
    acc[x, y, z] += hl.f32(a[r, y, z]) * hl.f32(right)
    out[x, y, z] = acc[x, y, z]
    out.split(x, xo, xi, 16).split(y, yo, yi, 16).reorder(xi, yi, xo, yo, z)
    out.vectorize(xi).vectorize(yi)
    acc.bound_extent(x, 16).bound_extent(y, 16).compute_at(out, xo).vectorize(x).vectorize(y)
    hb.store_in(acc, hb.MemoryType.AMXTile)
    step, inside = hl.RVar("step"), hl.RVar("inside")
    update = acc.update().split(r.x, step, inside, 32).reorder(inside, x, y, step)
    update.atomic().vectorize(inside).vectorize(x).vectorize(y)
    return out


def apart(values: NDArray[Any], between: int) -> NDArray[Any]:
    """Bits of bf16, with ``between`` NaN behind each row, and every second outermost part NaN."""
    wide = np.full((*values.shape[:-1], values.shape[-1] + between), NAN, np.uint16)
    held = wide[..., : values.shape[-1]]
    held[...] = values.view(np.uint32) >> 16
    held[1::2] = NAN
    return held


@pytest.mark.gcc
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(16, 16, 64), (7, 5, 34), (33, 20, 30), (1, 1, 2)])
@pytest.mark.parametrize("between", [0, 3, 40])
def test_a_depth_that_is_no_multiple_of_a_step(
    packed: bool, m: int, n: int, k: int, between: int
) -> None:
    rng = np.random.default_rng(m + k)
    a = rng.integers(-3, 4, (3, m, k)).astype(np.float32)
    b = rng.integers(-3, 4, (3, k, n)).astype(np.float32)
    pairs = np.ascontiguousarray(b.reshape(3, k // 2, 2, n).swapaxes(2, 3))
    given = {"A": apart(a, between), "B": apart(pairs, 0) if packed else apart(b, between)}
    found = np.asarray(hb.compile(product(packed), target="amx")(**given, sizes=(3, m, n)))
    assert np.array_equal(found[::2], (a @ b)[::2])
    assert np.isnan(found[1]).all()
