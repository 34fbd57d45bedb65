"""Short sums that a reduction reads once in each of its turns are computed there, by the same
thread.
"""

from __future__ import annotations

from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check

import halide_bridge as hb

pytestmark = pytest.mark.verified

F32 = hl.Float(32)
n, j, x, y = (hl.Var(name) for name in "njxy")
INSIDE = "in registers of the thread that reads it"


def nearest(depth: int, other: str = "") -> list[hl.Func]:
    """Of centres to points; ``other``: what else there is to the distances."""
    points, centres = hl.ImageParam(F32, 2, "points"), hl.ImageParam(F32, 2, "centres")
    d, k = hl.RDom([(0, depth)], "d"), hl.RDom([(0, centres.dim(1).extent())], "k")
    away, best, label = hl.Func("away"), hl.Func("best"), hl.Func("label")
    step = points[d, n] - centres[d, j]
    away[j, n] += step * step
    near = away[k, n] + away[k + 1, n] if other == "neighbours" else away[k, n]
    best[n] = hl.argmin(near)
    label[n] = best[n][0]
    shown = hl.Func("shown")
    shown[j, n] = away[j, n]
    return [label, shown] if other == "shown" else [label]


def arrays(count: int, centres: int, depth: int) -> dict[str, Any]:
    random = np.random.default_rng(count)
    points, middles = (random.random((m, depth), dtype=np.float32) for m in (count, centres))
    return {"points": points, "centres": middles}


def distances(points: Any, centres: Any) -> Any:
    return ((points[:, None] - centres[None]).astype(np.float64) ** 2).sum(2)


@pytest.mark.parametrize("sizes", [(203, 12, 7), (1, 1, 3), (515, 33, 16), (256, 5, 1)])
def test_the_nearest_of_some_centres(sizes: tuple[int, int, int]) -> None:
    outputs, inputs = nearest(sizes[2]), arrays(*sizes)
    few = {name: a.shape for name, a in inputs.items()}
    assert f"away: {INSIDE}" in hb.autoschedule(outputs, target="sm_80", sizes=few).report
    kernel = hb.compile(outputs, target="sm_80")
    wanted = distances(**inputs).argmin(1)
    shape = (sizes[0],)
    assert np.array_equal(kernel.interpret(**inputs, sizes=shape), wanted)
    assert np.array_equal(check(kernel, **inputs, sizes=shape), wanted)
    assert kernel.source.count("__global__") == 1


def test_a_few_centres_of_a_known_number() -> None:
    points, centres = hl.ImageParam(F32, 2, "points"), hl.ImageParam(F32, 2, "centres")
    d, k = hl.RDom([(0, 3)], "d"), hl.RDom([(0, 4)], "k")
    away, best, label = hl.Func("away"), hl.Func("best"), hl.Func("label")
    away[j, n] += hl.abs(points[n, d] - centres[j, d])
    best[n] = hl.argmin(away[k, n])
    label[n] = best[n][0]
    assert f"away: {INSIDE}" in hb.autoschedule(label, target="sm_80").report
    kernel = hb.compile(label, target="sm_80")
    inputs = arrays(131, 4, 3)
    wanted = np.abs(inputs["points"][:, None] - inputs["centres"][None]).sum(2).argmin(1)
    given = {name: np.ascontiguousarray(a.T) for name, a in inputs.items()}
    assert np.array_equal(check(kernel, **given, sizes=(131,)), wanted)


def test_points_that_are_their_own_centres() -> None:
    own = hl.ImageParam(F32, 2, "own")
    d, k = hl.RDom([(0, 4)], "d"), hl.RDom([(0, own.dim(1).extent())], "k")
    away, best, label = hl.Func("away"), hl.Func("best"), hl.Func("label")
    away[n, j] += (own[d, n] - own[d, j]) * (own[d, n] - own[d, j])
    best[n] = hl.argmax(away[n, k])
    label[n] = best[n][0]
    few = {"own": (67, 4)}
    assert f"away: {INSIDE}" in hb.autoschedule(label, target="sm_80", sizes=few).report
    kernel = hb.compile(label, target="sm_80")
    data = arrays(67, 1, 4)["points"]
    assert np.array_equal(check(kernel, own=data, sizes=(67,)), distances(data, data).argmax(1))


@pytest.mark.parametrize(("depth", "other"), [(40, ""), (7, "neighbours"), (7, "shown")])
def test_long_sums_and_those_that_are_read_again_are_stored(depth: int, other: str) -> None:
    outputs, few = nearest(depth, other), {"centres": (12, depth)}
    assert f"away: {INSIDE}" not in hb.autoschedule(outputs, target="sm_80", sizes=few).report


def test_windows_share_what_they_read_with_their_neighbours() -> None:
    image, best, out = hl.ImageParam(F32, 2, "image"), hl.Func("best"), hl.Func("out")
    cost, r, s = hl.Func("cost"), hl.RDom([(0, 3)], "r"), hl.RDom([(0, 4)], "s")
    cost[x, y, j] += image[x + r, y] * hl.f32(j)
    best[x, y] = hl.argmin(cost[x, y, s])
    out[x, y] = best[x, y][0]
    assert f"cost: {INSIDE}" not in hb.autoschedule(out, target="sm_80").report


def test_rows_that_a_block_looks_through_are_stored() -> None:
    outputs = nearest(7)
    report = hb.autoschedule(outputs, target="sm_80", sizes={"centres": (5000, 7)}).report
    assert f"away: {INSIDE}" not in report
