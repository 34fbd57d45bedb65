"""Windows that warps copy for themselves: where they start is worked out once, several planes are
copied step by step, and what several warps copy goes through L1.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

pytest.importorskip("halide")

import halide as hl

import halide_bridge as hb

TAPS, GROUP, ROWS = 32, 16, 16


def weighted(step: object, planes: int = 1, warps: int = 2) -> object:
    """``out[x, y, c] = sum_k I[step * (x / 16) + k, y, c] * W[k, x]``: a warp has one group of 16
    columns and copies its window of 32 pixels, 16 rows, and all planes.
    """
    x, y, c, xo, xi, xw, yo, yi = (hl.Var(n) for n in ("x", "y", "c", "xo", "xi", "xw", "yo", "yi"))
    image, weights = hl.ImageParam(hl.Float(16), 3, "I"), hl.ImageParam(hl.Float(16), 2, "W")
    padded, sums, out = hl.Func("padded"), hl.Func("sums"), hl.Func("out")
    k = hl.RDom([(0, TAPS)], "k")
    width = image.width()
    inside = image[hl.min(x, width - 1), hl.min(y, image.height() - 1), c]
    padded[x, y, c] = hl.select(
        (x < width) & (y < image.height()), inside, hl.cast(hl.Float(16), 0)
    )
    start = step(x // GROUP, weights.height()) * 8
    sums[x, y, c] = hl.f32(0)
    sums[x, y, c] += hl.f32(padded[start + k.x, y, c]) * hl.f32(weights[k.x, x])
    out[x, y, c] = sums[x, y, c]
    block = warps * GROUP
    if planes > 1:
        out.bound(c, 0, planes)
    out.split(x, xo, xi, block).split(xi, xw, xi, GROUP).split(y, yo, yi, ROWS)
    out.reorder(xi, yi, c, xw, xo, yo) if planes > 1 else out.reorder(xi, yi, xw, xo, yo, c)
    out.vectorize(xi).vectorize(yi).gpu_threads(xw)
    out.gpu_blocks(xo, yo) if planes > 1 else out.gpu_blocks(xo, yo, c)
    if planes > 1:
        out.unroll(c)
    sums.compute_at(out, xw).bound_extent(x, GROUP).bound_extent(y, ROWS)
    sums.bound_extent(c, planes).vectorize(x).vectorize(y).unroll(c)
    update = sums.update().reorder(k.x, x, y, c).atomic()
    update.vectorize(k.x).vectorize(x).vectorize(y).unroll(c)
    hb.store_in(sums, hb.MemoryType.WMMAAccumulator)
    padded.compute_at(out, xw).store_in(hl.MemoryType.GPUShared)
    for v, extent in zip(padded.args(), (TAPS, ROWS, planes), strict=True):
        padded.bound_extent(v, extent).vectorize(v)
    return out


def scaled(group: hl.Expr, count: hl.Expr) -> hl.Expr:
    return hl.clamp(group * 300 / count, 0, 4096)


def steady(group: hl.Expr, count: hl.Expr) -> hl.Expr:
    return group * 4


def truth_of(image: np.ndarray, weights: np.ndarray, starts: np.ndarray) -> np.ndarray:
    planes, height, width = image.shape
    wide = np.zeros((planes, height, int(starts.max()) + TAPS + width))
    wide[:, :, :width] = image
    columns = [
        np.tensordot(wide[:, :, s : s + TAPS], weights[x].astype(float), axes=(2, 0))
        for x, s in enumerate(starts)
    ]
    return np.stack(columns, axis=2)


@pytest.mark.parametrize("planes", [1, 3])
def test_windows_of_warps_are_right(planes: int) -> None:
    kernel = hb.compile(weighted(scaled, planes), target="sm_80")
    generator = np.random.default_rng(11)
    for width, height, to in ((160, 20, 70), (301, 16, 33), (96, 5, 90)):
        image = generator.standard_normal((planes, height, width)).astype(np.float16)
        weights = generator.standard_normal((96, TAPS)).astype(np.float16)
        result = kernel.interpret(I=image, W=weights, sizes=(planes, height, to))
        starts = np.arange(to) // GROUP * 300 // 96 * 8
        truth = truth_of(image, weights, starts)
        assert np.linalg.norm(result - truth) <= 1e-6 * np.linalg.norm(truth) + 1e-6


def test_where_a_warp_starts_is_divided_once() -> None:
    source = hb.compile(weighted(scaled), target="sm_80").source
    body = source[source.index("__global__") :]
    assert len(re.findall(r"const int quotient\w* = floor_div\(", body)) == 1
    assert body.count("floor_div(") == 1


def test_planes_are_copied_step_by_step() -> None:
    source = hb.compile(weighted(scaled, 3), target="sm_80").source
    assert (
        source.count("if (whole_padded) copy16_cached(to_padded + ") == TAPS * ROWS * 3 // 8 // 32
    )


def test_windows_that_overlap_go_through_the_cache_and_others_past_it() -> None:
    for step, warps, cached in ((scaled, 2, True), (steady, 2, False), (scaled, 1, False)):
        source = hb.compile(weighted(step, warps=warps), target="sm_80").source
        assert ("copy16_cached(" in source) is cached, (step, warps)
