"""Filters and layers whose factors are more than elements, but of those at one place, go to tensor
units without a schedule: what such a factor is, is a Func of its own.
"""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED

import halide_bridge as hb
from selector.diagnostics import ScheduleError

pytestmark = EMULATED

U8, U16, F16, F32 = hl.UInt(8), hl.UInt(16), hl.Float(16), hl.Float(32)
c, x, y, n = (hl.Var(v) for v in "cxyn")
Array = np.ndarray[Any, Any]
Value = Callable[[Any], Any]
TAPS, AROUND = 9, 4


def half(e: Any) -> Any:
    return hl.f32(hl.cast(F16, e))


def positive(e: Any) -> Any:
    return hl.f32(hl.max(e, hl.cast(F16, 0)))


@dataclass(frozen=True)
class Case:
    """Types of the image and the weights, what of an element is multiplied, in Halide and NumPy,
    and how many Funcs are made of that.
    """

    image: Any
    weights: Any
    pixel: Value
    weight: Value
    value: Callable[[Array], Array]
    made: int


CASES = {
    "rounded": Case(F32, F32, half, half, lambda v: v, 2),
    "scaled": Case(U8, F16, lambda e: half(hl.f32(e) / 255.0), hl.f32, lambda v: v / 255, 1),
    "words": Case(U16, F16, half, hl.f32, lambda v: v, 1),
    "centred": Case(U8, F16, lambda e: hl.f32(e) - 128.0, hl.f32, lambda v: v - 128, 1),
    "rectified": Case(
        F16,
        F16,
        lambda e: hl.f32(hl.max(e, hl.cast(F16, 0))),
        hl.f32,
        lambda v: np.maximum(v, 0),
        1,
    ),
}


def drawn(kind: Any, shape: tuple[int, ...], seed: int) -> Array:
    random = np.random.default_rng(seed)
    if kind in (U8, U16):
        return random.integers(0, 256, shape).astype(np.uint8 if kind == U8 else np.uint16)
    return (random.random(shape) - 0.25).astype(np.float16 if kind == F16 else np.float32)


def blurred(case: Case) -> hl.Func:
    image, taps = hl.ImageParam(case.image, 2, "image"), hl.ImageParam(case.weights, 2, "taps")
    r = hl.RDom([(0, TAPS), (0, TAPS)], "r")
    total, out = hl.Func("total"), hl.Func("out")
    edge = hl.BoundaryConditions.repeat_edge(image)
    pixel = case.pixel(edge[x + r.x - AROUND, y + r.y - AROUND])
    total[x, y] += pixel * case.weight(taps[r.x, r.y])
    out[x, y] = total[x, y] * 0.5
    return out


def layer(case: Case) -> hl.Func:
    image, w = hl.ImageParam(case.image, 4, "image"), hl.ImageParam(case.weights, 4, "taps")
    r = hl.RDom([(0, 64), (0, 3), (0, 3)], "r")
    total, out = hl.Func("total"), hl.Func("out")
    pixel = case.pixel(image[r.x, x + r.y, y + r.z, n])
    total[c, x, y, n] += pixel * case.weight(w[r.x, r.y, r.z, c])
    out[c, x, y, n] = total[c, x, y, n] * 0.5
    return out


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name", CASES)
def test_a_filter_has_such_factors(name: str, target: str) -> None:
    case = CASES[name]
    out = blurred(case)
    schedule = hb.autoschedule(out, target=target, sizes=(4000, 3000))
    assert "total: windows on tensor units" in schedule.report
    assert schedule.source.count("hb.operand(") == case.made
    image, taps = drawn(case.image, (37, 150), 1), drawn(case.weights, (TAPS, TAPS), 2)
    around = np.pad(case.value(image.astype(float)), AROUND, "edge")
    wanted = sum(
        float(taps[j, i]) * around[j : j + 37, i : i + 150]
        for j in range(TAPS)
        for i in range(TAPS)
    )
    result = check(hb.compile(out, target=target), image=image, taps=taps, sizes=(37, 150))
    assert np.linalg.norm(result - wanted / 2) < 5e-4 * np.linalg.norm(wanted / 2)


@pytest.mark.parametrize("name", CASES)
def test_a_layer_has_such_factors(name: str) -> None:
    case = CASES[name]
    out = layer(case)
    schedule = hb.autoschedule(out, target="sm_90a", sizes=(48, 28, 28, 8))
    assert "total: a layer on tensor units" in schedule.report
    image, w = drawn(case.image, (2, 9, 12, 64), 1), drawn(case.weights, (40, 3, 3, 64), 2)
    values, weights = case.value(image.astype(float)), w.astype(float)
    wanted = sum(
        np.einsum("nyxc,fc->nyxf", values[:, j : j + 7, i : i + 10], weights[:, j, i])
        for j in range(3)
        for i in range(3)
    )
    result = check(hb.compile(out, target="sm_90a"), image=image, taps=w, sizes=(2, 7, 10, 40))
    assert np.linalg.norm(result - wanted / 2) < 5e-4 * np.linalg.norm(wanted / 2)


SCALED = CASES["scaled"]


def signal() -> tuple[hl.Func, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """64 taps at every second sample; shapes of the samples, the taps and the result."""
    samples, taps = hl.ImageParam(U8, 1, "image"), hl.ImageParam(F32, 1, "taps")
    r, total, out = hl.RDom([(0, 64)], "r"), hl.Func("total"), hl.Func("out")
    total[x] += SCALED.pixel(samples[2 * x + r.x]) * half(taps[r.x])
    out[x] = total[x]
    return out, (1463,), (64,), (700,)


def smaller() -> tuple[hl.Func, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    image, taps = hl.ImageParam(U8, 2, "image"), hl.ImageParam(F32, 2, "taps")
    r, total, out = hl.RDom([(0, 8), (0, 8)], "r"), hl.Func("total"), hl.Func("out")
    total[x, y] += SCALED.pixel(image[2 * x + r.x, 2 * y + r.y]) * half(taps[r.x, r.y])
    out[x, y] = total[x, y]
    return out, (82, 606), (8, 8), (38, 300)


def pixels() -> tuple[hl.Func, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Of three channels next to each other."""
    image, taps = hl.ImageParam(U8, 3, "image"), hl.ImageParam(F32, 2, "taps")
    r, total, out = hl.RDom([(0, 9), (0, 9)], "r"), hl.Func("total"), hl.Func("out")
    total[c, x, y] += SCALED.pixel(image[c, x + r.x, y + r.y]) * half(taps[r.x, r.y])
    out[c, x, y] = total[c, x, y]
    out.bound(c, 0, 3)
    return out, (40, 208, 3), (9, 9), (32, 200, 3)


@pytest.mark.parametrize("make", [signal, smaller, pixels])
def test_other_filters_have_such_factors(make: Callable[[], Any]) -> None:
    """Both are computed where shared memory is filled."""
    out, shape, of_taps, size = make()
    large = {1: (4_000_000,), 2: (3000, 4000), 3: (3000, 4000, 3)}[len(size)]
    report = hb.autoschedule(out, target="sm_90a", sizes=large).report
    assert "total: windows on tensor units" in report
    assert report.count("inside those that read it") == 2
    kernel = hb.compile(out, target="sm_90a")
    image, taps = drawn(U8, shape, 1), drawn(F32, of_taps, 2)
    values, step = image / 255.0, 1 if len(size) == 3 else 2
    ends = [step * (n - 1) + 1 for n in size[:2]]
    wanted = np.zeros(size)
    for at in np.ndindex(*of_taps):
        own = tuple(slice(a, a + e, step) for a, e in zip(at, ends, strict=True))
        wanted += float(taps[at]) * values[own]
    result = check(kernel, image=image, taps=taps, sizes=size)
    assert np.linalg.norm(result - wanted) < 5e-4 * np.linalg.norm(wanted)


def test_bytes_that_are_cast_by_way_of_halves_are_read_as_bytes() -> None:
    """Nothing is rounded on that way: no Func is made, and bytes come to shared memory."""
    for between in (F16, hl.BFloat(16)):
        case = Case(U8, F16, lambda e, t=between: hl.f32(hl.cast(t, e)), hl.f32, lambda v: v, 0)
        schedule = hb.autoschedule(blurred(case), target="sm_90a", sizes=(4000, 3000))
        assert "total: windows on tensor units" in schedule.report
        assert "hb.operand(" not in schedule.source


def test_a_table_of_what_is_read_is_one_place() -> None:
    image, table = hl.ImageParam(U8, 2, "image"), hl.ImageParam(F16, 1, "table")
    taps, r = hl.ImageParam(F16, 2, "taps"), hl.RDom([(0, TAPS), (0, TAPS)], "r")
    out = hl.Func("out")
    value = table[hl.i32(image[x + r.x, y + r.y])]
    out[x, y] += hl.f32(value * hl.cast(F16, 0.5)) * hl.f32(taps[r.x, r.y])
    schedule = hb.autoschedule(out, target="sm_90a", sizes=(4000, 3000))
    assert "out: windows on tensor units" in schedule.report
    pixels, weights = drawn(U8, (40, 60), 1), drawn(F16, (TAPS, TAPS), 2)
    numbers = drawn(F16, (256,), 3)
    values = numbers.astype(float)[pixels] / 2
    wanted = sum(
        float(weights[j, i]) * values[j : j + 32, i : i + 52]
        for j in range(TAPS)
        for i in range(TAPS)
    )
    kernel = hb.compile(out, target="sm_90a")
    result = check(kernel, image=pixels, table=numbers, taps=weights, sizes=(32, 52))
    assert np.linalg.norm(result - wanted) < 5e-4 * np.linalg.norm(wanted)


@pytest.mark.parametrize(
    "value",
    [
        lambda i, r: i[x + r.x, y + r.y] - i[x, y],
        lambda i, r: i[x + r.x, y + r.y] * hl.cast(F16, r.x),
        lambda i, r: i[x + r.x, y + r.y],
    ],
    ids=["two-places", "beside", "element"],
)
def test_other_factors_are_refused(value: Callable[[Any, Any], Any]) -> None:
    image, taps, out = hl.ImageParam(F16, 2, "i"), hl.ImageParam(F16, 2, "w"), hl.Func("out")
    r = hl.RDom([(0, TAPS), (0, TAPS)], "r")
    out[x, y] += hl.f32(value(image, r)) * hl.f32(taps[r.x, r.y])
    assert "hb.operand" not in hb.autoschedule(out, target="sm_90a").source
    with pytest.raises(ScheduleError, match="no factor 0 that is computed at one place"):
        hb.operand(out, 0)
