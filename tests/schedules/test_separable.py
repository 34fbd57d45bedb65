"""Windows of which neighbours share rows are sums along columns of sums along rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import pytest
from plain_emulated import emulated
from plain_pipelines import F32, U8, Plain, bytes_, floats

import halide_bridge as hb
from selector.diagnostics import ScheduleError

pytestmark = pytest.mark.verified("tests/emulation")

x, y = hl.Var("x"), hl.Var("y")
ROWS = "_rows: in "  # a kernel of its own, or the registers of what reads it


def window(size: int) -> Any:
    return hl.RDom([(-(size // 2), size), (-(size // 2), size)])


def mean_of_bytes(size: int = 15) -> Plain:
    image, out, r = hl.ImageParam(U8, 2, "image"), hl.Func("out"), window(size)
    edge = hl.BoundaryConditions.repeat_edge(image)
    out[x, y] = hl.u8(hl.sum(hl.u32(edge[x + r.x, y + r.y])) / (size * size))
    return Plain(out, [(image, bytes_(31, 67))], (31, 67))


def largest() -> Plain:
    """At every second pixel, with the mirror image around."""
    image, out, r = hl.ImageParam(U8, 2, "image"), hl.Func("out"), window(13)
    edge = hl.BoundaryConditions.mirror_interior(image)
    out[x, y] = hl.maximum(edge[2 * x + r.x, 2 * y + r.y])
    return Plain(out, [(image, bytes_(41, 67))], (20, 33))


def weighted() -> Plain:
    """The same weights along rows and columns, and what a sum begins with."""
    image, weights, out = hl.ImageParam(F32, 2, "image"), hl.ImageParam(F32, 1, "w"), hl.Func("out")
    r, edge = window(13), hl.BoundaryConditions.repeat_edge(image)
    out[x, y] = hl.f32(1)
    out[x, y] += weights[r.x + 6] * edge[x + r.x, y + r.y] * weights[r.y + 6]
    return Plain(out, [(image, floats(31, 67)), (weights, floats(13, seed=3))], (31, 67), 1e-5)


def backwards() -> Plain:
    image, out = hl.ImageParam(F32, 2, "image"), hl.Func("out")
    r = hl.RDom([(0, 15), (0, 15)])
    out[x, y] = hl.minimum(image[x + 14 - r.x, y + 14 - r.y] - hl.f32(r.x) / 8)
    return Plain(out, [(image, floats(45, 81))], (31, 67))


MADE = [mean_of_bytes, largest, weighted, backwards]


@pytest.mark.parametrize("make", MADE)
def test_they_are_what_halide_computes(make: Callable[[], Plain]) -> None:
    assert ROWS in emulated(make)[0].report


def weighted_by_place() -> hl.Func:
    """Weights that are no product of those of a row and a column."""
    image, weights, out = hl.ImageParam(F32, 2, "image"), hl.ImageParam(F32, 2, "w"), hl.Func("out")
    r = hl.RDom([(0, 15), (0, 15)])
    out[x, y] = hl.sum(image[x + r.x, y + r.y] * weights[r.x, r.y])
    return out


def of_some() -> hl.Func:
    """A round window."""
    image, out, r = hl.ImageParam(U8, 2, "image"), hl.Func("out"), window(15)
    r.where(r.x * r.x + r.y * r.y < 50)
    out[x, y] = hl.u32(0)
    out[x, y] += hl.u32(image[x + r.x + 7, y + r.y + 7])
    return out


def of_bytes_for_tensors() -> hl.Func:
    image, taps = hl.ImageParam(U8, 2, "image"), hl.ImageParam(hl.Int(8), 1, "taps")
    out, r = hl.Func("out"), hl.RDom([(0, 16), (0, 16)])
    weight = hl.i32(taps[r.x])
    out[x, y] = hl.i32(0)
    out[x, y] += hl.i32(image[x + r.x, y + r.y]) * weight
    return out


@pytest.mark.parametrize(
    "make",
    [weighted_by_place, of_some, of_bytes_for_tensors, lambda: mean_of_bytes(3).outputs],
)
def test_others_are_left_as_they_are(make: Callable[[], hl.Func]) -> None:
    schedule = hb.autoschedule(make(), target="sm_90a")
    assert ROWS not in schedule.report
    assert "separated" not in schedule.source


def test_terms_that_share_nothing_are_refused() -> None:
    image, out, r = hl.ImageParam(F32, 2, "image"), hl.Func("out"), hl.RDom([(0, 15), (0, 15)])
    out[x, y] = hl.f32(0)
    out[x, y] += image[x + r.x, y + r.y] * hl.f32(r.x * r.y)
    with pytest.raises(ScheduleError, match="share no sums along the others than") as raised:
        hb.separated(out, out.rvars(0)[1])
    assert "f[x, y] += a[x + r.x, y + r.y]" in str(raised.value)
