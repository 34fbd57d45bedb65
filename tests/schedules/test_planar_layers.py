"""Layers of a network over images whose channels lie outside of their pixels, without a schedule: a
kernel before turns the image, and the copy engine brings its channels to tensor units.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED, SIMULATED

import halide_bridge as hb
from selector.families.layers import Shape, Tiling, candidates
from selector.gpu.codegen.program import emit_kernels
from selector.ir.bfloat16 import from_bits, to_bits
from selector.machine import machine_for
from selector.simulate import simulate
from selector.targets import find_target

F16 = hl.Float(16)
x, y, c, n = (hl.Var(v) for v in "xycn")
Array = np.ndarray[Any, Any]
ENGINE = "cp.async.bulk.tensor"


@dataclass(frozen=True)
class Layer:
    """Sizes of a layer; ``residual``: its image is added to the sums, and as many filters are."""

    taps: int
    batch: int
    high: int
    wide: int
    channels: int
    filters: int
    brain: bool = False  # bfloat16
    stride: int = 1
    residual: bool = False
    direct: bool = False  # the weights are an argument, their taps innermost
    planar: bool = False  # so are channels and filters where the sum is
    dilation: int = 1
    finished: bool = False  # with a bias and ReLU, in halves

    @property
    def size(self) -> tuple[int, ...]:
        return self.batch, self.filters, self.high, self.wide


def layer(p: Layer) -> hl.Func:
    """``image`` of (n, c, y, x), ``w`` of (f, c, r, s), zeros around where windows need them."""
    kind = hl.BFloat(16) if p.brain else F16
    image, w = hl.ImageParam(kind, 4, "image"), hl.ImageParam(kind, 4, "w")
    zero, every, back = hl.cast(kind, 0), (hl.Expr(), hl.Expr()), p.dilation * (p.taps // 2)
    sides = [(0, image.dim(d).extent()) for d in range(2)]
    edge = image
    if back:
        edge = hl.BoundaryConditions.constant_exterior(image, zero, [*sides, every, every])
    if p.planar:
        return planar(p, edge, w)
    source, filters, total, out = (hl.Func(s) for s in ("source", "filters", "total", "out"))
    source[c, x, y, n] = edge[x, y, c, n]
    filters[c, x, y, n] = w[x, y, c, n]
    r = hl.RDom([(0, image.dim(2).extent()), (0, p.taps), (0, p.taps)], "r")
    across, down = (p.stride * v + p.dilation * t - back for v, t in ((x, r.y), (y, r.z)))
    pixel = source[r.x, across, down, n]
    weight = w[r.y, r.z, r.x, c] if p.direct else filters[r.x, r.y, r.z, c]
    total[c, x, y, n] += hl.f32(pixel) * hl.f32(weight)
    value = total[c, x, y, n]
    value = value + hl.f32(image[x, y, c, n]) if p.residual else value
    if p.finished:
        value = hl.cast(F16, hl.max(value + hl.ImageParam(hl.Float(32), 1, "bias")[c], 0))
    out[x, y, c, n] = value
    return out


def planar(p: Layer, edge: Any, w: hl.ImageParam) -> hl.Func:
    total, back = hl.Func("total"), p.taps // 2
    r = hl.RDom([(0, p.taps), (0, p.taps), (0, w.dim(2).extent())], "r")
    pixel = edge[p.stride * x + r.x - back, p.stride * y + r.y - back, r.z, n]
    total[x, y, c, n] += hl.f32(pixel) * hl.f32(w[r.x, r.y, r.z, c])
    return total


def inputs_of(p: Layer) -> dict[str, Array]:
    random = np.random.default_rng(0)
    shape = (p.batch, p.channels, p.stride * p.high, p.stride * p.wide)
    weights = (p.filters, p.channels, p.taps, p.taps)
    found = {"image": random.standard_normal(shape), "w": random.standard_normal(weights)}
    given: dict[str, Array] = {
        name: to_bits(a) if p.brain else a.astype(np.float16) for name, a in found.items()
    }
    if p.finished:
        given["bias"] = random.standard_normal(p.filters).astype(np.float32)
    return given


def exact(p: Layer, image: Array, w: Array, bias: Array | None = None) -> Array:
    image, w = ((from_bits(a) if p.brain else a).astype(float) for a in (image, w))
    back = p.dilation * (p.taps // 2)
    around = np.pad(image, ((0, 0), (0, 0), (back, back), (back, back)))
    total = image.copy() if p.residual else np.zeros(p.size)
    for r in range(p.taps):
        for s in range(p.taps):
            u, v = p.dilation * r, p.dilation * s
            part = around[:, :, u : u + p.stride * p.high : p.stride]
            part = part[..., v : v + p.stride * p.wide : p.stride]
            part = part[:, :, : p.high, : p.wide]
            total += np.einsum("nchw,fc->nfhw", part, w[:, :, r, s])
    return total if bias is None else np.maximum(total + bias[:, None, None], 0)


LAYERS = {
    "3 x 3": Layer(3, 2, 5, 9, 16, 24),
    "channels that 8 does not divide": Layer(3, 1, 4, 5, 20, 12),
    "1 x 1": Layer(1, 2, 5, 7, 40, 72),
    "bfloat16": Layer(3, 1, 6, 5, 48, 16, brain=True),
    "the image is added": Layer(3, 2, 5, 6, 24, 24, residual=True),
    "weights whose taps lie innermost": Layer(3, 1, 6, 7, 16, 40, direct=True),
    "as they are written": Layer(3, 2, 5, 9, 24, 40, planar=True),
    "1 x 1 as they are written": Layer(1, 1, 9, 7, 40, 24, planar=True),
    "every second pixel": Layer(3, 2, 5, 6, 24, 40, stride=2),
    "every second pixel as it is written": Layer(3, 1, 4, 9, 16, 12, stride=2, planar=True),
    "every second pixel of bfloat16": Layer(3, 1, 4, 5, 16, 24, brain=True, stride=2),
    "single pixels apart": Layer(1, 2, 5, 7, 24, 40, stride=2),
    "few channels, every third pixel": Layer(5, 1, 5, 6, 3, 24, stride=3, planar=True),
}


@EMULATED
@pytest.mark.parametrize("wide", [28, 64])
@pytest.mark.parametrize("name", LAYERS)
def test_a_turned_image_comes_by_the_copy_engine(name: str, wide: int) -> None:
    """Whether rows are thought to be multiples of 16 bytes or not."""
    p = LAYERS[name]
    out = layer(p)
    schedule = hb.autoschedule(out, target="sm_90a", sizes=(4, 256, wide, wide))
    assert "a layer on tensor units by wgmma" in schedule.report
    kernel = hb.compile(out, target="sm_90a")
    assert ENGINE in kernel.source
    inputs = inputs_of(p)
    result = check(kernel, **inputs, sizes=p.size)
    wanted = exact(p, **inputs)
    assert np.linalg.norm(result - wanted) <= 1e-3 * np.linalg.norm(wanted)


STAGED: dict[str, Any] = {"taps": 9, "reach": (2, 2, 0)}
ALL: dict[str, Any] = STAGED | {"planes": True}
FAR: dict[str, Any] = ALL | {"reach": (4, 4, 0)}
PLANES = {
    "rows of 64": (
        Layer(3, 2, 5, 70, 40, 72, finished=True),
        Tiling((64, 1, 1), 2, 1, 64, 32, 3, boxes=2, **ALL),
    ),
    "blocks that stay": (
        Layer(3, 2, 7, 80, 64, 100, finished=True),
        Tiling((64, 1, 1), 2, 1, 64, 32, 3, persistent=True, **ALL),
    ),
    "blocks that stay and add": (
        Layer(3, 1, 6, 40, 72, 72, finished=True, residual=True),
        Tiling((32, 1, 1), 2, 1, 64, 32, 3, persistent=True, boxes=2, **ALL),
    ),
    "floats": (Layer(3, 1, 4, 33, 24, 80), Tiling((32, 1, 1), 3, 1, 128, 16, 4, **ALL)),
    "several rows": (
        Layer(3, 2, 5, 32, 40, 136, finished=True),
        Tiling((32, 2, 1), 2, 1, 128, 32, 4, planes=True),
    ),
    "all of a row": (
        Layer(3, 3, 14, 14, 24, 40, finished=True),
        Tiling((14, 4, 1), 2, 2, 64, 16, 4, planes=True),
    ),
    "odd rows of several images": (
        Layer(3, 9, 7, 7, 40, 64, finished=True),
        Tiling((7, 1, 8), 1, 1, 64, 32, 4, planes=True),
    ),
    "every second pixel": (
        Layer(3, 2, 6, 17, 24, 70, stride=2, finished=True),
        Tiling((16, 4, 1), 1, 1, 64, 16, 4, planes=True),
    ),
    "taps apart": (
        Layer(3, 1, 9, 36, 32, 64, dilation=2, finished=True),
        Tiling((32, 1, 1), 2, 1, 64, 32, 3, **FAR),
    ),
    "bfloat16": (
        Layer(3, 1, 6, 64, 48, 64, brain=True),
        Tiling((64, 1, 1), 1, 1, 64, 16, 4, **ALL),
    ),
    "images side by side, staged": (
        Layer(3, 9, 7, 11, 40, 72, finished=True),
        Tiling((8, 1, 8), 2, 1, 64, 32, 2, boxes=2, staged=True, **STAGED),
    ),
    "all pixels of a tap, staged": (
        Layer(3, 2, 5, 18, 24, 24, finished=True, residual=True),
        Tiling((16, 4, 1), 3, 1, 16, 16, 4, staged=True),
    ),
    "windows that lie apart, staged": (
        Layer(3, 17, 4, 6, 16, 40, stride=2, brain=True),
        Tiling((1, 1, 64), 1, 1, 32, 16, 3, steps=(2, 2, 1), staged=True, **STAGED),
    ),
    "all pixels of several images": (
        Layer(3, 5, 3, 30, 32, 72, finished=True),
        Tiling((32, 1, 4), 1, 1, 64, 32, 3, planes=True),
    ),
    "rows that no map takes, of several": (
        Layer(3, 2, 6, 27, 48, 136, finished=True),
        Tiling((32, 4, 1), 2, 2, 128, 16, 3, planes=True),
    ),
    "all of a row, many rows": (
        Layer(3, 1, 17, 28, 16, 64, finished=True),
        Tiling((28, 8, 1), 1, 1, 64, 16, 4, planes=True),
    ),
    "single pixels apart": (
        Layer(1, 2, 5, 37, 24, 72, stride=2, finished=True),
        Tiling((32, 2, 1), 2, 1, 64, 16, 3, planes=True),
    ),
    "sums in parts": (
        Layer(3, 1, 9, 16, 80, 72, finished=True),
        Tiling((16, 4, 1), 1, 2, 64, 32, 4, part=32, planes=True),
    ),
}


@EMULATED
@SIMULATED
@pytest.mark.parametrize("name", PLANES)
def test_filters_are_rows_of_a_product_and_pixels_its_columns(name: str) -> None:
    p, tiling = PLANES[name]
    out = layer(p)
    hb.autoschedule(out, target="sm_90a", tilings={"total": tiling})
    kernel = hb.compile(out, target="sm_90a")
    kernels, plan = emit_kernels(kernel.module, find_target("sm_90a"))
    inputs = inputs_of(p)
    wanted = exact(p, **inputs)
    for ready in (True, False):
        result = check(kernel, **inputs, sizes=p.size, maps_ready=ready)
        assert np.linalg.norm(result - wanted) <= 1e-3 * np.linalg.norm(wanted)
        found = simulate(kernels, plan, inputs, p.size, flags=ready)
        assert found.faults == ()
        (result,) = found.outputs.values()
        assert np.linalg.norm(result - wanted) <= 1e-3 * np.linalg.norm(wanted)


@pytest.mark.parametrize(
    ("name", "columns"),
    [("several rows", 64), ("all pixels of several images", 128), ("all of a row, many rows", 224)],
)
def test_one_instruction_has_all_pixels_of_a_box(name: str, columns: int) -> None:
    """Vectors of Halide's have a slice of them each."""
    p, tiling = PLANES[name]
    out = layer(p)
    hb.autoschedule(out, target="sm_90a", tilings={"total": tiling})
    source = hb.compile(out, target="sm_90a").source
    assert {*re.findall(r"wgmma_m64n(\d+)k16", source)} == {str(columns)}


def test_only_pixels_that_are_read_are_copied() -> None:
    p, tiling = PLANES["single pixels apart"]
    schedules = [
        hb.autoschedule(layer(LAYERS["single pixels apart"]), target="sm_90a"),
        hb.autoschedule(layer(p), target="sm_90a", tilings={"total": tiling}),
    ]
    for source in (s.source for s in schedules):
        _copies_what_is_read(source)


def _copies_what_is_read(source: str) -> None:
    assert "total_a = hb.operand(total, 0, [r_x, x, y, n])\n" in source
    assert "total_a.compute_root()" in source
    assert "image_im.in_(" not in source


def test_results_in_planes_leave_by_boxes_or_by_shared_memory() -> None:
    """By boxes where rows of 64 pixels lie side by side as they are read; images that lie beside
    each other have their results turned.
    """
    machine = machine_for("sm_90a")
    wide = Shape((64, 64, 8), 320, 320, 9, rows=2, reach=(2, 2, 0), planes=True)
    found = candidates(wide, machine)[0]
    assert found.planes
    assert found.persistent
    assert found.box == (64, 1, 1)
    narrow = replace(wide, pixels=(32, 32, 8), filters=640, channels=640)
    found = candidates(narrow, machine)[0]
    assert found.staged
    assert found.box == (32, 1, 2)
    for shape in (wide, narrow):
        others = candidates(replace(shape, planes=False), machine)
        assert not any(t.planes or t.staged for t in others)


def test_what_is_added_is_read_from_the_image_itself() -> None:
    """Only what leads to the sum reads what was turned."""
    source = hb.autoschedule(layer(LAYERS["the image is added"]), target="sm_90a").source
    assert "image_im.in_(repeat_edge)" in source
    assert "image_im.in_()" not in source


@pytest.mark.parametrize("name", ["the image is added", "every second pixel"])
def test_the_printed_schedule_does_the_same(name: str) -> None:
    source = hb.autoschedule(layer(LAYERS[name]), target="sm_90a").source
    out = layer(LAYERS[name])
    exec(source, {"hb": hb, "hl": hl, "output": out})
    again = hb.compile(out, target="sm_90a")
    first = hb.compile(layer(LAYERS[name]), target="sm_90a", schedule="auto")
    assert again.source == first.source


def test_layers_of_one_image_share_what_is_turned() -> None:
    image = hl.ImageParam(F16, 4, "image")
    zero, every = hl.cast(F16, 0), (hl.Expr(), hl.Expr())
    sides = [(0, image.dim(d).extent()) for d in range(2)]
    edge = hl.BoundaryConditions.constant_exterior(image, zero, [*sides, every, every])
    source, outs = hl.Func("source"), []
    source[c, x, y, n] = edge[x, y, c, n]
    weights = [hl.ImageParam(F16, 4, f"w{k}") for k in range(2)]
    for k, taps in enumerate((3, 1)):
        r = hl.RDom([(0, image.dim(2).extent()), (0, taps), (0, taps)], "r")
        total, out = hl.Func(f"total{k}"), hl.Func(f"out{k}")
        pixel = source[r.x, x + r.y - taps // 2, y + r.z - taps // 2, n]
        total[c, x, y, n] += hl.f32(pixel) * hl.f32(weights[k][r.x, r.y, r.z, c])
        out[x, y, c, n] = total[c, x, y, n]
        outs.append(out)
    schedule = hb.autoschedule(outs, target="sm_90a")
    assert schedule.report.count("a layer on tensor units") == 2
    assert schedule.source.count(".compute_root().reorder_storage(") == 1
    p = Layer(3, 1, 5, 6, 16, 24)
    data = inputs_of(p)["image"]
    w = [np.random.default_rng(k).standard_normal((24, t, t, 16)).astype(np.float16)
         for k, t in enumerate((3, 1))]  # fmt: skip
    results = hb.compile(outs, target="sm_90a").interpret(
        image=data, w0=w[0], w1=w[1], sizes={"out0": p.size, "out1": p.size}
    )
    for found, a, taps in zip((results["out0"], results["out1"]), w, (3, 1), strict=True):
        own = Layer(taps, 1, 5, 6, 16, 24)
        wanted = exact(own, data, a.transpose(0, 3, 1, 2))
        assert np.linalg.norm(found - wanted) <= 1e-3 * np.linalg.norm(wanted)


def test_a_sum_too_short_to_turn_its_image_for_stays_where_it_is() -> None:
    """A matrix of colours: three planes to three."""
    image, w = hl.ImageParam(F16, 3, "image"), hl.ImageParam(F16, 2, "w")
    out, r = hl.Func("out"), hl.RDom([(0, 3)], "r")
    out[x, y, c] = hl.f32(0)
    out[x, y, c] += hl.f32(image[x, y, r]) * hl.f32(w[r, c])
    report = hb.autoschedule(out, target="sm_90a", sizes=(3, 480, 640)).report
    assert "it is too short to have its image copied" in report
    random = np.random.default_rng(0)
    data = random.standard_normal((3, 20, 30)).astype(np.float16)
    weights = random.standard_normal((3, 3)).astype(np.float16)
    kernel = hb.compile(out, target="sm_90a")
    result = kernel.interpret(image=data, w=weights, sizes=(3, 20, 30))
    wanted = np.einsum("chw,fc->fhw", data.astype(float), weights.astype(float))
    assert np.linalg.norm(result - wanted) <= 1e-3 * np.linalg.norm(wanted)
