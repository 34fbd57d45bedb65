"""Layers whose pixels have phases with taps of their own: transposed convolutions, and what reads
an image that is to be larger. They go to tensor units, in one launch, and are right at sizes that
neither tiles nor phases divide.
"""

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
from selector.gpu.codegen.program import emit_kernels
from selector.simulate import simulate
from selector.targets import find_target

pytestmark = EMULATED

F16 = hl.Float(16)
c, x, y, n = (hl.Var(v) for v in "cxyn")
Array = np.ndarray[Any, Any]
TARGET = "sm_90a"


@dataclass(frozen=True)
class Layer:
    """``step`` times as many pixels, from ``taps`` x ``taps`` spread weights, or else, ``larger``,
    from windows of the image with its pixels repeated. ``forward``: taps go up, and pixels down.
    """

    taps: int
    step: int
    batch: int
    high: int
    wide: int
    channels: int
    filters: int
    planar: bool = False
    larger: bool = False
    forward: bool = False

    @property
    def back(self) -> int:
        return (self.taps - self.step) // 2

    @property
    def size(self) -> tuple[int, ...]:
        return (self.batch, self.high, self.wide, self.filters)


def plain(p: Layer) -> hl.Func:
    image, w, bias = (
        hl.ImageParam(F16, 4, "image"),
        hl.ImageParam(F16, 4, "w"),
        hl.ImageParam(hl.Float(32), 1, "bias"),
    )
    every, sides = (hl.Expr(), hl.Expr()), [(0, image.dim(d).extent()) for d in range(4)]
    around = [*sides[:2], every, every] if p.planar else [every, *sides[1:3], every]
    source = hl.BoundaryConditions.constant_exterior(image, hl.cast(F16, 0), around)
    span = p.taps if p.larger else -(-p.taps // p.step)
    if span * p.step > p.taps and not p.larger:  # a phase has fewer taps than others
        of_taps = [every, (0, p.taps), (0, p.taps), every]
        w = hl.BoundaryConditions.constant_exterior(w, hl.cast(F16, 0), of_taps)
    channels = image.dim(2 if p.planar else 0).extent()
    r, last = hl.RDom([(0, channels), (0, span), (0, span)], "r"), span - 1
    total, out, inner = hl.Func("total"), hl.Func("out"), (c, x, y, n)

    def place(v: Any, k: Any) -> tuple[Any, Any]:
        if p.larger:
            return v / p.step + k - p.taps // 2, k
        if p.forward:
            return (v + p.back) / p.step - k, (v + p.back) % p.step + p.step * k
        return (v + p.back) / p.step - last + k, (v + p.back) % p.step + p.step * (last - k)

    (across, u), (down, v) = place(x, r.y), place(y, r.z)
    if p.planar:
        turned, weights = hl.Func("turned"), hl.Func("weights")
        turned[inner], weights[inner] = source[x, y, c, n], w[x, y, c, n]
        source, w = turned, weights
    total[inner] += hl.f32(source[r.x, across, down, n]) * hl.f32(w[r.x, u, v, c])
    args = (x, y, c, n) if p.planar else inner
    out[args] = hl.cast(F16, hl.max(total[inner] + bias[c], 0.0))
    return out


def exact(p: Layer, image: Array, w: Array) -> Array:
    """``image`` of (n, y, x, c), ``w`` of (f, r, s, c)."""
    total = np.zeros(p.size)
    reach = p.taps // 2 if p.larger else -(-p.taps // p.step)
    padded = np.pad(image, ((0, 0), (reach, reach), (reach, reach), (0, 0)))
    for j in range(p.high):
        for i in range(p.wide):
            for t in range(p.taps):
                for s in range(p.taps):
                    if p.larger:
                        at = j // p.step + t - p.taps // 2, i // p.step + s - p.taps // 2
                    elif (j + p.back - t) % p.step or (i + p.back - s) % p.step:
                        continue
                    else:
                        at = (j + p.back - t) // p.step, (i + p.back - s) // p.step
                    pixel = padded[:, at[0] + reach, at[1] + reach]
                    total[:, j, i] += pixel @ w[:, t, s].T
    return total


LAYERS = {
    "4 x 4, by 2": Layer(4, 2, 2, 10, 14, 24, 40),
    "neither tiles nor phases divide it": Layer(4, 2, 1, 7, 9, 20, 24),
    "3 x 3, by 2": Layer(3, 2, 2, 9, 8, 24, 40),
    "5 x 5, by 3": Layer(5, 3, 1, 8, 8, 16, 24),
    "3 x 3, taps going up": Layer(3, 2, 1, 9, 8, 24, 40, forward=True),
    "5 x 5, taps going up": Layer(5, 2, 2, 7, 10, 48, 24, forward=True),
    "3 x 3, by 3": Layer(3, 3, 1, 8, 7, 16, 24),
    "6 x 6, by 2": Layer(6, 2, 1, 6, 5, 32, 16),
    "planes": Layer(4, 2, 2, 9, 12, 24, 16, planar=True),
    "repeated pixels": Layer(3, 2, 1, 9, 6, 16, 24, larger=True),
}


@pytest.mark.parametrize("name", LAYERS)
def test_phases_go_to_tensor_units_and_are_right(name: str) -> None:
    p = LAYERS[name]
    out, random = plain(p), np.random.default_rng(5)
    about = (4, 128, 64, 64) if p.planar else (4, 64, 64, 128)
    schedule = hb.autoschedule(out, target=TARGET, sizes=about)
    assert "a layer on tensor units by wgmma" in schedule.report
    assert "hb.phased(total, out" in schedule.source
    high, wide = (-(-e // p.step) for e in (p.high, p.wide))
    image = random.standard_normal((p.batch, high, wide, p.channels)).astype(np.float16)
    w = random.standard_normal((p.filters, p.taps, p.taps, p.channels)).astype(np.float16)
    bias = random.standard_normal(p.filters).astype(np.float32)
    wanted = np.maximum(exact(p, image.astype(float), w.astype(float)) + bias, 0)
    turn, size = (0, 3, 1, 2), p.size
    if p.planar:
        image, w = image.transpose(turn).copy(), w.transpose(turn).copy()
        wanted, size = wanted.transpose(turn), tuple(p.size[d] for d in turn)
    given = {"image": image, "w": w, "bias": bias}
    kernel = hb.compile(out, target=TARGET, name="phases")
    found = [kernel.interpret(**given, sizes=size)]
    kernels, plan = emit_kernels(kernel.module, find_target(TARGET))
    for flags in (True, False):
        run = simulate(kernels, plan, given, size, flags=flags)
        assert run.faults == ()
        found.append(run.outputs["out"])
    found.append(check(kernel, **given, sizes=size))
    for result in found:
        error = np.linalg.norm(np.asarray(result, float) - wanted)
        assert error <= 1e-3 * np.linalg.norm(wanted)


def test_phases_are_one_launch() -> None:
    """Each block has one phase; the copy engine brings its taps."""
    out = plain(LAYERS["4 x 4, by 2"])
    hb.autoschedule(out, target=TARGET, sizes=(4, 64, 64, 128))
    source = hb.compile(out, target=TARGET).source
    assert source.count("__global__") == 1
    assert "cp.async.bulk.tensor" in source


def with_windows_apart() -> hl.Func:
    """Weights have phases, the image has none: its windows are two pixels apart within one."""
    image, w, out = hl.ImageParam(F16, 3, "image"), hl.ImageParam(F16, 3, "w"), hl.Func("out")
    r = hl.RDom([(0, image.dim(0).extent()), (0, 3)], "r")
    out[c, x, n] += hl.f32(image[r.x, x + r.y, n]) * hl.f32(w[r.x, x % 2 + 2 * r.y, c])
    return out


def with_phases_that_lie_apart() -> hl.Func:
    """Along one dimension, where windows lie apart along the other."""
    image, w, out = hl.ImageParam(F16, 4, "image"), hl.ImageParam(F16, 4, "w"), hl.Func("out")
    r = hl.RDom([(0, image.dim(0).extent()), (0, 3), (0, 3)], "r")
    pixel = image[r.x, x / 2 + r.y, 2 * y + r.z, n]
    out[c, x, y, n] += hl.f32(pixel) * hl.f32(w[r.x, r.y, r.z, c])
    return out


OTHERS: dict[str, Callable[[], hl.Func]] = {
    "its taps and its windows do not have the same phases": with_windows_apart,
    "its pixels have phases, and windows that lie apart": with_phases_that_lie_apart,
}


@pytest.mark.parametrize("why", OTHERS)
def test_other_phases_are_products_of_what_each_tap_reads(why: str) -> None:
    out = OTHERS[why]()
    sizes = (256, *(64,) * (out.dimensions() - 1))
    report = hb.autoschedule(out, target=TARGET, sizes=sizes).report
    assert "on tensor units by wgmma" in report
    assert "a layer" not in report


def transposed(image_type: Any, weight_type: Any) -> hl.Func:
    """3 x 3, by 2, of bytes."""
    image, w = hl.ImageParam(image_type, 4, "image"), hl.ImageParam(weight_type, 4, "w")
    source, out = hl.BoundaryConditions.constant_exterior(image, 0), hl.Func("out")
    r = hl.RDom([(0, 32), (0, 3), (0, 3)], "r")
    pixel = source[r.x, x / 2 + r.y - 2, y / 2 + r.z - 2, n]
    weight = w[r.x, x % 2 + 4 - 2 * r.y, y % 2 + 4 - 2 * r.z, c]
    out[c, x, y, n] += hl.i32(pixel) * hl.i32(weight)
    return out


FEW, MANY = (2, 16, 24, 40), (256, 16, 24, 40)


@pytest.mark.parametrize(
    ("sizes", "tensor"), [(None, False), (FEW, False), (MANY, True)], ids=["unknown", "few", "many"]
)
def test_without_warpgroups_many_images_share_the_taps_of_a_pixel(
    sizes: tuple[int, ...] | None, tensor: bool
) -> None:
    """Those are the rows of a product for each pixel: a tile of them would be empty."""
    out = transposed(hl.UInt(8), hl.UInt(8))
    report = hb.autoschedule(out, target="sm_80", sizes=sizes).report
    assert ("on tensor units by mma" in report) == tensor
    assert ("only warpgroups have layers with phases" in report) != tensor


@pytest.mark.parametrize("sizes", [None, FEW])
def test_bytes_of_two_types_are_a_layer(sizes: tuple[int, ...] | None) -> None:
    out, random = transposed(hl.UInt(8), hl.Int(8)), np.random.default_rng(7)
    report = hb.autoschedule(out, target=TARGET, sizes=sizes).report
    assert "a layer on tensor units by wgmma" in report
    kernel, (images, high, wide) = hb.compile(out, target=TARGET), (1, 5, 7)
    assert "u8.s8" in kernel.source
    image = random.integers(0, 256, (images, 3, 4, 32)).astype(np.uint8)
    w = random.integers(-128, 128, (24, 6, 6, 32)).astype(np.int8)
    padded = np.pad(image.astype(int), ((0, 0), (2, 2), (2, 2), (0, 0)))
    wanted = np.zeros((images, high, wide, 24), int)
    for j, i, t, s in np.ndindex(high, wide, 3, 3):
        taps = w[:, j % 2 + 4 - 2 * t, i % 2 + 4 - 2 * s].astype(int)
        wanted[:, j, i] += padded[:, j // 2 + t, i // 2 + s] @ taps.T
    assert np.array_equal(check(kernel, image=image, w=w, sizes=wanted.shape), wanted)


def test_what_has_phases_is_the_same() -> None:
    """With hb.phased alone; its own Func is computed for one phase at a time, or for all before."""
    image = hl.ImageParam(F16, 1, "image")
    data = np.arange(9, dtype=np.float16)
    wanted = np.array([2.0 * data[(i + 1) // 3] + (i + 1) % 3 for i in range(20)])
    for apart in (True, False):
        f, out = hl.Func("f"), hl.Func("out")
        f[x] = 2 * hl.f32(image[(x + 1) / 3]) + (x + 1) % 3
        out[x] = f[x]
        xo, xp, xt = hl.Var("xo"), hl.Var("xp"), hl.Var("xt")
        phased: Any = hb.phased(f, out, [(x, xo, xp, 3)])
        assert phased.dimensions() == 2
        out.compute_root().split(xo, xo, xt, 4).reorder(xt, xo, xp)
        out.gpu_blocks(xo, xp).gpu_threads(xt)
        if apart:
            phased.compute_root().gpu_single_thread()
        else:
            phased.compute_at(out, xt)
        found = hb.compile(out, target="sm_80").interpret(image=data, sizes=(20,))
        assert np.array_equal(found, wanted)


def test_what_has_no_phases_is_refused() -> None:
    f, out, xo, xp = hl.Func("f"), hl.Func("out"), hl.Var("xo"), hl.Var("xp")
    f[x] = x
    out[x] = f[x + 1]
    with pytest.raises(ScheduleError, match="has no such phases in `out`"):
        hb.phased(f, out, [(y, xo, xp, 2)])
    with pytest.raises(ScheduleError, match="has no such phases in `out`"):
        hb.phased(f, out, [(x, xo, xp, 1)])
    with pytest.raises(ScheduleError, match="`f` has no phases in `out`"):
        hb.phased(f, out, [(x, xo, xp, 2)])
