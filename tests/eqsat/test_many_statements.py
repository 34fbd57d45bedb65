"""A scope of a thousand unrolled statements is refused in seconds, like one of a few."""

from __future__ import annotations

import pytest
from clock import assert_quick

pytest.importorskip("halide")

import halide as hl

import halide_bridge as hb
from selector.diagnostics import SelectionError
from selector.eqsat import select
from selector.targets import find_target

WIDTH, DEPTH = 12 * 16, 8 * 16


def unrolled() -> hl.Func:
    """12 x 12 x 8 products of three factors, in tiles of 16 x 16 x 16."""
    a, b, w = (hl.ImageParam(hl.Float(16), 2, n) for n in "abw")
    mm, out = hl.Func("mm"), hl.Func("out")
    x, y, xo, yo, xu, yu, xi, yi = (
        hl.Var(n) for n in ("x", "y", "xo", "yo", "xu", "yu", "xi", "yi")
    )
    r, ro, ri = hl.RDom([(0, DEPTH)], "r"), hl.RVar("ro"), hl.RVar("ri")
    mm[x, y] = hl.f32(0)
    mm[x, y] += hl.f32(a[r, y]) * hl.f32(b[x, r]) * hl.f32(w[x, r]) * hl.f32(w[r, y])
    out[x, y] = mm[x, y]
    out.split(x, xo, xi, WIDTH).split(y, yo, yi, WIDTH).gpu_blocks(xo, yo)
    mm.compute_at(out, xo).bound_extent(x, WIDTH).bound_extent(y, WIDTH)
    for stage, inner in ((out, (xi, yi)), (mm, (x, y)), (mm.update(), (x, y))):
        stage.split(inner[0], xu, xi, 16).split(inner[1], yu, yi, 16)
    out.reorder(xi, yi, xu, yu, xo, yo)
    mm.reorder(xi, yi, xu, yu)
    mm.update().split(r, ro, ri, 16).reorder(ri, xi, yi, xu, yu, ro).atomic().vectorize(ri)
    mm.update().unroll(ro)
    for stage in (out, mm, mm.update()):
        stage.vectorize(xi).vectorize(yi).unroll(xu).unroll(yu)
    hb.store_in(mm, hb.MemoryType.WMMAAccumulator)
    return out


def test_a_thousand_statements_are_refused_in_seconds() -> None:
    module = hb.lower(unrolled(), target="sm_80")

    def refused() -> None:
        with pytest.raises(SelectionError, match="1295 more statements of this scope miss"):
            select(module, find_target("sm_80"))

    assert_quick(refused, 5.0, attempts=3)
