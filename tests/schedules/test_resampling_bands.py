"""Resampling on tensor units: groups of results begin together, their weights are a band."""

from __future__ import annotations

from typing import Any

import emulation
import halide as hl
import numpy as np
import pytest

import halide_bridge as hb
from selector.diagnostics import ScheduleError
from tests.schedules.test_resampling import F16, F32, TAPS, drawn, resized, truth, x, y

pytestmark = pytest.mark.verified

SIZES = (((9, 11), (1, 1)), ((40, 272), (33, 37)), ((17, 301), (41, 65)), ((300, 50), (31, 40)))


@pytest.mark.parametrize("first", ["down", "across"])
@pytest.mark.parametrize("interleaved", [True, False])
def test_both_passes(interleaved: bool, first: str) -> None:
    """Starts are in no order, and some of them are outside."""
    target = "sm_90a" if first == "down" else "sm_80"
    out = resized(interleaved, F16, rows_first=first == "down")
    report = hb.autoschedule(out, target=target).report
    assert report.count("on tensor units by mma") == 2, report
    kernel = hb.compile(out, target=target)
    for size, to in SIZES:
        data = drawn(size, to, kind="float16")
        wanted = truth(data)
        if not interleaved:
            data["I"], wanted = np.moveaxis(data["I"], 2, 0).copy(), np.moveaxis(wanted, 2, 0)
        found = emulation.check(kernel, sizes=wanted.shape, **data).astype(np.float64)
        assert np.abs(found - wanted).max() <= 2e-3, (size, to)


def test_tiles_for_few_results() -> None:
    """Those that many blocks have, for results of which each has many taps."""
    out = resized(interleaved=True, kind=F16, taps=40)
    sizes = {"I": (2048, 2048, 3), "out": (143, 143, 3)}
    report = hb.autoschedule(out, target="sm_90a", sizes=sizes).report
    assert report.count("groups of 16 results by runs of 64 pixels") == 2
    kernel = hb.compile(out, target="sm_90a")
    data = drawn((40, 272), (33, 37), kind="float16", taps=40)
    found = emulation.check(kernel, sizes=(33, 37, 3), **data)
    assert np.abs(found - truth(data)).max() <= 2e-3


@pytest.mark.parametrize(
    ("taps", "to", "tensor"), [(3, 1024, 0), (9, 1024, 2), (16, 143, 0), (2, 4096, 0), (5, 4096, 2)]
)
def test_few_taps_stay_on_cores(taps: int, to: int, tensor: int) -> None:
    """Few for the distance of results: groups of these go through all pixels between them."""
    out = resized(interleaved=True, kind=F16, taps=taps)
    sizes = {"I": (2048, 2048, 3), "out": (to, to, 3)}
    report = hb.autoschedule(out, target="sm_90a", sizes=sizes).report
    assert report.count("on tensor units by mma") == tensor


def test_small_images_stay_on_cores() -> None:
    out = resized(interleaved=True, kind=F16)
    sizes = {"I": (256, 256, 3), "out": (224, 224, 3)}
    assert "on tensor units" not in hb.autoschedule(out, target="sm_90a", sizes=sizes).report


def test_pixels_that_lie_apart() -> None:
    """Four elements from one pixel to the next: an alpha that nobody reads."""
    out = resized(interleaved=True, kind=F16)
    hb.autoschedule(out, target="sm_80")
    kernel = hb.compile(out, target="sm_80")
    data = drawn((20, 280), (15, 17), kind="float16")
    wide = np.zeros((20, 280, 4), np.float16)
    wide[..., :3] = data["I"]
    found = emulation.check(kernel, sizes=(15, 17, 3), **(data | {"I": wide}))
    assert np.abs(found - truth(data)).max() <= 2e-3


def test_starts_may_be_computed() -> None:
    image, weights = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 2, "W")
    total, out, u = hl.Func("total"), hl.Func("out"), hl.RDom([(0, 9)], "u")
    row = hl.clamp((7 * y + 3) / 4 - 2 + u, 0, image.height() - 1)
    total[x, y] += hl.f32(image[x, row]) * hl.f32(weights[u, y])
    out[x, y] = hl.cast(F16, total[x, y])
    sizes = {"I": (4096, 4096), "out": (2340, 4096)}
    report = hb.autoschedule(out, target="sm_80", sizes=sizes).report
    assert "on tensor units by mma" in report
    rng = np.random.default_rng(4)
    data, table = rng.random((40, 70)).astype(np.float16), rng.random((21, 9)).astype(np.float16)
    kernel = hb.compile(out, target="sm_80")
    found = emulation.check(kernel, I=data, W=table, sizes=(21, 70))
    at = np.clip((7 * np.arange(21)[:, None] + 3) // 4 - 2 + np.arange(9), 0, 39)
    wanted = (data.astype(float)[at] * table.astype(float)[:, :, None]).sum(1)
    assert np.abs(found - wanted).max() <= 4e-3


def test_what_only_some_runs_count_in_is_read_there_alone() -> None:
    """The loop over runs begins and ends where a group's taps do."""
    out = resized(interleaved=True, kind=F16)
    hb.autoschedule(out, target="sm_80")
    source = hb.compile(out, target="sm_80").source
    assert source.count("run_y_first = max(0, (min(") == 4  # two passes, pixels together or apart
    assert "copy16(" in source


@pytest.mark.parametrize("kind", [F32, hl.UInt(8)], ids=["f32", "u8"])
def test_other_images_stay_on_cores(kind: Any) -> None:
    report = hb.autoschedule(resized(interleaved=True, kind=kind), target="sm_80").report
    assert "on tensor units" not in report


def test_taps_that_nothing_holds_are_not_grouped() -> None:
    image, weights = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 2, "W")
    source, table, total, out = (hl.Func(n) for n in ("source", "table", "total", "out"))
    source[x, y], table[x, y] = image[x, y], weights[x, y]
    u = hl.RDom([(0, TAPS)], "u")
    total[x, y] += hl.f32(source[x, 2 * y + u]) * hl.f32(table[u, y])
    out[x, y] = hl.cast(F16, total[x, y])
    taps = hb.Taps(1, source.name(), table.name(), 16, 16)
    with pytest.raises(ScheduleError, match="taps of `total` cannot be grouped"):
        hb.grouped(out, total, out, taps)
