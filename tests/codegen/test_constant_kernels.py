"""Kernels that follow from the sizes, quotients of sizes, and copies out of intermediates."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("halide")

import halide as hl

import halide_bridge as hb


def averaged(count: object | None = None) -> object:
    """Rows times a table of weights that is made from the sizes (or from a number)."""
    x, y, k, n, xo, xi, yo, yi = (hl.Var(v) for v in ("x", "y", "k", "n", "xo", "xi", "yo", "yi"))
    image = hl.ImageParam(hl.Float(16), 2, "I")
    table, sums, out = hl.Func("table"), hl.Func("sums"), hl.Func("out")
    r = hl.RDom([(0, 64)], "r")
    scale = 1000 / image.width() if count is None else count
    table[k, n] = hl.cast(hl.Float(16), hl.f32((3 * k + 5 * n) % 7 + scale))
    sums[x, y] = hl.f32(0.0)
    sums[x, y] += hl.f32(image[r.x, y]) * hl.f32(table[r.x, x])
    out[x, y] = sums[x, y]
    out.tile(x, y, xo, yo, xi, yi, 16, 16).vectorize(xi).vectorize(yi).gpu_blocks(xo, yo)
    sums.compute_at(out, xo).bound_extent(x, 16).bound_extent(y, 16).vectorize(x).vectorize(y)
    sums.update().reorder(r.x, x, y).atomic().vectorize(r.x).vectorize(x).vectorize(y)
    hb.store_in(sums, hb.MemoryType.WMMAAccumulator)
    staged = table.in_(sums).compute_at(out, xo).store_in(hl.MemoryType.GPUShared)
    for v, extent in zip(staged.args(), (64, 16), strict=True):
        staged.bound_extent(v, extent).vectorize(v)
    table.compute_root().bound(k, 0, 64).gpu_tile(k, n, xo, yo, xi, yi, 16, 4)
    return out


def test_a_table_of_weights_is_computed_once() -> None:
    kernel = hb.compile(averaged(), target="sm_80")
    assert [launch.once for launch in kernel.plan.launches] == [True, False]
    image = np.random.default_rng(3).standard_normal((20, 70)).astype(np.float16)
    result = kernel.interpret(I=image, sizes=(20, 33))
    k, n = np.arange(64)[:, None], np.arange(33)
    truth = image[:, :64].astype(float) @ ((3 * k + 5 * n) % 7 + 1000 // 70)
    assert np.linalg.norm(result - truth) <= 1e-6 * np.linalg.norm(truth)


def test_a_table_that_a_number_changes_is_computed_in_every_call() -> None:
    kernel = hb.compile(averaged(hl.Param(hl.Int(32), "count")), target="sm_80")
    assert [launch.once for launch in kernel.plan.launches] == [False, False]


def test_an_intermediate_that_is_added_to_starts_anew_in_every_call() -> None:
    x, xo, xi = hl.Var("x"), hl.Var("xo"), hl.Var("xi")
    image = hl.ImageParam(hl.Float(32), 1, "I")
    total, out = hl.Func("total"), hl.Func("out")
    total[x] = hl.f32(image.width())
    total[x] += image[x]
    out[x] = total[x]
    for stage in (total.compute_root(), total.update(), out):
        stage.gpu_tile(x, xo, xi, 32)
    kernel = hb.compile(out, target="sm_80")
    assert [launch.once for launch in kernel.plan.launches] == [False] * 3


def test_intermediates_are_staged_by_asynchronous_copies() -> None:
    source = hb.compile(averaged(), target="sm_80").source
    assert "copy16(shared_address(to), from)" in source
    assert "ldmatrix" in source


def test_quotients_of_sizes_are_worked_out_by_the_host() -> None:
    kernel = hb.compile(averaged(), target="sm_80")
    table = kernel.source[kernel.source.index("__global__") :]
    assert "const int quotient" in table
    assert "floor_div(1000" not in table
