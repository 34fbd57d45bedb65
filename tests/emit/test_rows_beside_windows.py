"""Windows of rows on AMX tiles read whole steps: what lies beyond a row meets zeros, and need be no
number.
"""

from __future__ import annotations

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb

BF16 = hl.BFloat(16)
TAPS, ROWS = 5, 3
NAN = 0x7FC0


def windows(stride: int) -> hl.Func:
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
    return out


@pytest.mark.gcc
@pytest.mark.parametrize("width", [1, 37, 256, 300, 511])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("between", [0, 1, 40])
def test_what_lies_beyond_a_row_is_not_of_it(stride: int, width: int, between: int) -> None:
    """Every second row, and all between rows, is NaN: that stays where it is."""
    length = stride * (width - 1) + TAPS
    rng = np.random.default_rng(width)
    image = rng.integers(1, 4, (ROWS, length)).astype(np.float32)
    taps = rng.integers(1, 4, TAPS).astype(np.float32)
    held = np.full((ROWS, length + between), NAN, np.uint16)
    held[:, :length] = image.view(np.uint32) >> 16
    held[1] = NAN
    kernel = hb.compile(windows(stride), target="amx")
    given = {"A": held[:, :length], "B": (taps.view(np.uint32) >> 16).astype(np.uint16)}
    found = np.asarray(kernel(**given, sizes=(ROWS, width)))
    seen = np.lib.stride_tricks.sliding_window_view(image, TAPS, axis=1)[:, ::stride]
    assert np.array_equal(found[::2], (seen @ taps)[::2])
    assert np.isnan(found[1]).all()
