"""Tilings that a user gives for sums on tensor units: they are taken as they are, or it is said why
they cannot be.
"""

from __future__ import annotations

from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check

import halide_bridge as hb
from selector.diagnostics import ScheduleError
from selector.families import contraction, layers, windows
from selector.machine import machine_for

pytestmark = pytest.mark.verified

F16 = hl.Float(16)
x, y, c, n = (hl.Var(v) for v in "xycn")
WHOLE: dict[str, Any] = {"taps": 9, "reach": (2, 2, 0)}


def product() -> hl.Func:
    a, b = (hl.ImageParam(F16, 2, name) for name in "ab")
    total, out, k = hl.Func("total"), hl.Func("out"), hl.RDom([(0, a.width())], "k")
    total[x, y] += hl.f32(a[k.x, y]) * hl.f32(b[x, k.x])
    out[x, y] = hl.max(total[x, y], 0)
    return out


def filtered() -> hl.Func:
    image, taps = hl.ImageParam(F16, 2, "image"), hl.ImageParam(F16, 1, "taps")
    total, out, k = hl.Func("total"), hl.Func("out"), hl.RDom([(0, 16)], "k")
    total[x, y] += hl.f32(image[x + k.x, y]) * hl.f32(taps[k.x])
    out[x, y] = total[x, y]
    return out


def layer(stride: int = 1, channels: int = 16) -> hl.Func:
    image, w = (hl.ImageParam(F16, 4, name) for name in ("image", "w"))
    total, out = hl.Func("total"), hl.Func("out")
    r = hl.RDom([(0, channels), (0, 3), (0, 3)], "r")
    pixel = image[r.x, stride * x + r.y, stride * y + r.z, n]
    total[c, x, y, n] += hl.f32(pixel) * hl.f32(w[r.x, r.y, r.z, c])
    out[c, x, y, n] = hl.max(total[c, x, y, n], 0)
    return out


def best_of_warps() -> windows.Tiling:
    shape = windows.Shape(300, 20, windows.Axis(16), windows.Axis(1), declared=True)
    return next(t for _, t in windows.ranked(shape, machine_for("sm_90a")) if t.unit == "warp")


GIVEN = [
    (product, contraction.Tiling(n=64, m=64, k=32, parts_n=2, parts_m=2, unit="warp", band=0)),
    (product, contraction.Tiling(n=128, m=64, k=64, parts_m=1, stages=3)),
    (filtered, best_of_warps()),
    (layer, layers.Tiling((8, 1, 8), 2, 1, 32, 16, 3, **WHOLE)),
    (layer, layers.Tiling((16, 1, 1), 2, 1, 24, 16, 2, **WHOLE, unit="warp", warps=2)),
]


@pytest.mark.parametrize(("made", "tiling"), GIVEN, ids=lambda v: getattr(v, "label", ""))
def test_a_sum_has_the_tiling_that_is_given(made: Any, tiling: Any) -> None:
    """In the report, and in the source, which gives the same kernel."""
    out = made()
    schedule = hb.autoschedule(out, target="sm_90a", tilings={"total": tiling})
    unit = "wgmma" if tiling.unit == "group" else "mma"
    assert f"on tensor units by {unit}, tiles of " in schedule.report
    kernel = hb.compile(out, target="sm_90a")
    again = made()
    exec(schedule.source, {"output": again, "hl": hl, "hb": hb})
    assert hb.compile(again, target="sm_90a").source == kernel.source


def _layer_of(stride: int, channels: int, size: tuple[int, ...]) -> dict[str, Any]:
    """A layer's arrays, and the result."""
    images, high, wide, filters = size
    random = np.random.default_rng(1)
    shape = images, stride * (high - 1) + 3, stride * (wide - 1) + 3, channels
    image = random.standard_normal(shape).astype(np.float16)
    w = random.standard_normal((filters, 3, 3, channels)).astype(np.float16)
    wanted = np.zeros(size)
    for r, s in np.ndindex(3, 3):
        rows = slice(r, r + stride * (high - 1) + 1, stride)
        columns = slice(s, s + stride * (wide - 1) + 1, stride)
        wanted += image[:, rows, columns].astype(float) @ w[:, r, s].astype(float).T
    return {"image": image, "w": w, "wanted": np.maximum(wanted, 0)}


@pytest.mark.gcc
@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize(("stride", "channels", "filters"), [(1, 24, 40), (2, 20, 24)])
def test_warps_have_layers(stride: int, channels: int, filters: int, resident: bool) -> None:
    """In runs of channels, and with all weights in shared memory; ragged."""
    more: dict[str, Any] = {"steps": (2, 2, 1)} if stride > 1 else {}
    size = layers.Tiling(
        (16, 1, 1), 2, 1, 40 if resident else 24, 24 if resident else 16, 2, boxes=2, **WHOLE,
        strips=2 if resident else 0, unit="warp", sides=2 if resident else 1, warps=2, **more,
    )  # fmt: skip
    out = layer(stride, channels)
    hb.autoschedule(out, target="sm_80", tilings={"total": size})
    data = _layer_of(stride, channels, (2, 5, 37, filters))
    wanted = data.pop("wanted")
    result = check(hb.compile(out, target="sm_80"), **data, sizes=wanted.shape)
    assert np.linalg.norm(result - wanted) < 2e-6 * np.linalg.norm(wanted)


@pytest.mark.parametrize(
    ("made", "tilings", "told"),
    [
        (product, {"totals": GIVEN[0][1]}, "there is no such Func"),
        (product, {"out": GIVEN[0][1]}, "it is no sum of the tiling's family"),
        (product, {"total": GIVEN[3][1]}, "it is no sum of the tiling's family"),
        (lambda: layer(channels=40), {"total": layers.Tiling((8, 1, 8), 2, 1, 128, 64, 9, **WHOLE)},
         "takes 368640"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(made: Any, tilings: dict[str, Any], told: str) -> None:
    with pytest.raises(ScheduleError) as error:
        hb.autoschedule(made(), target="sm_90a", tilings=tilings)
    (label,) = tilings
    assert f"`{label}` cannot have the tiling" in str(error.value)
    assert told in str(error.value)
    assert "test_given_tilings.py" in str(error.value)


def test_what_is_no_tiling_is_said() -> None:
    with pytest.raises(ScheduleError, match="`tilings` has for `total` is no tiling") as error:
        hb.autoschedule(product(), target="sm_90a", tilings={"total": (64, 64)})  # type: ignore[dict-item]
    assert "it is (64, 64)" in str(error.value)
