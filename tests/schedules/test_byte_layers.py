"""Layers of a network over bytes, without a schedule: those that tensor units multiply go there,
and what keeps others from them is said.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED

import halide_bridge as hb
from selector.families.layers import Shape, candidates
from selector.machine import machine_for

I8, U8, I32, F32 = hl.Int(8), hl.UInt(8), hl.Int(32), hl.Float(32)
TYPES = {"s8": (I8, np.int8), "u8": (U8, np.uint8)}
x, y, c, n = (hl.Var(v) for v in "xycn")


def layer(
    image_type: Any, filter_type: Any, wide: Any, planar: bool = False, inner: bool = False
) -> hl.Func:
    """3 x 3 over (n, y, x, c), or (n, c, y, x), rounded to bytes; weights of (f, r, s, c), (f, c,
    r, s), or with filters ``inner``.
    """
    image, w = hl.ImageParam(image_type, 4, "image"), hl.ImageParam(filter_type, 4, "w")
    total, out = hl.Func("total"), hl.Func("out")
    channels = image.dim(2 if planar else 0).extent()
    r = hl.RDom([(0, channels), (0, 3), (0, 3)], "r")
    across, down = x + r.y, y + r.z
    pixel = image[across, down, r.x, n] if planar else image[r.x, across, down, n]
    weight = w[c, r.x, r.y, r.z] if inner else w[r.x, r.y, r.z, c]
    if planar:
        weight = w[r.y, r.z, r.x, c]
    args = (x, y, c, n) if planar else (c, x, y, n)
    total[args] = hl.cast(wide, 0)
    total[args] += hl.cast(wide, pixel) * hl.cast(wide, weight)
    out[args] = hl.i8_sat(hl.round(hl.f32(total[args]) * hl.f32(0.001)))
    return out


def data(kind: str, *shape: int) -> Any:
    numbers = np.iinfo(TYPES[kind][1])
    random = np.random.default_rng(len(shape) + sum(shape))
    return random.integers(numbers.min, numbers.max + 1, shape).astype(TYPES[kind][1])


@EMULATED
@pytest.mark.parametrize(
    ("kind", "how", "size"),
    [
        ("s8", "", (2, 5, 9, 32, 24)),
        ("s8", "", (1, 4, 5, 48, 12)),
        ("u8", "", (1, 3, 7, 64, 40)),
        ("s8", "planar", (1, 5, 6, 40, 24)),
        ("s8", "inner", (1, 4, 6, 32, 24)),
    ],
)
def test_bytes_go_to_tensor_units_and_are_exact(kind: str, how: str, size: tuple[int, ...]) -> None:
    images, high, wide, channels, filters = size
    planar = how == "planar"
    out = layer(TYPES[kind][0], TYPES[kind][0], I32, planar, inner=how == "inner")
    shape = (4, 256, 28, 28) if planar else (4, 28, 28, 256)
    report = hb.autoschedule(out, target="sm_90a", sizes=shape).report
    assert "a layer on tensor units by wgmma" in report
    kernel = hb.compile(out, target="sm_90a")
    assert "cp.async.bulk.tensor" in kernel.source
    image = data(kind, images, high + 2, wide + 2, channels)
    w = data(kind, filters, 3, 3, channels)
    total = np.zeros((images, high, wide, filters), np.int64)
    for r, s in product(range(3), range(3)):
        part = image[:, r : r + high, s : s + wide].astype(np.int64)
        total += np.einsum("nhwc,fc->nhwf", part, w[:, r, s].astype(np.int64))
    wanted = np.clip(np.rint(total.astype(np.float32) * np.float32(0.001)), -128, 127)
    if planar:
        image, w, wanted = (np.moveaxis(a, 3, 1).copy() for a in (image, w, wanted))
    if how == "inner":
        w = w.transpose(1, 2, 3, 0).copy()
    result = check(kernel, image=image, w=w, sizes=wanted.shape)
    assert np.array_equal(result, wanted)


@pytest.mark.parametrize(
    ("types", "why"),
    [
        ((F32, F32, F32), "elements of float32, which tensor units do not multiply"),
        ((I8, F32, F32), "cast each factor to that, or the other one to float16"),
    ],
)
def test_what_keeps_other_types_from_tensor_units_is_said(types: tuple[Any, ...], why: str) -> None:
    out = layer(*types)
    report = hb.autoschedule(out, target="sm_90a").report
    (line,) = (t for t in report.splitlines() if "not on a tensor unit" in t)
    assert why in line
    hb.compile(out, target="sm_90a")


def test_runs_of_bytes_have_twice_the_channels() -> None:
    machine = machine_for("sm_90a")
    for found in candidates(Shape((56, 56, 8), 64, 512, 9, 1), machine):
        assert (found.depth, found.columns) == (32, 16)
        assert found.k in (128, 256)
        assert found.stages * found.run_bytes <= 200 << 10
