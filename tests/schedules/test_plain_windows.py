"""Which filters of an image go to tensor units without a schedule, and what keeps others from them.
What they compute is tested with the other plain pipelines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from plain_pipelines import F16, F32, U8
from plain_windows import BFLOAT, WINDOWS, gathering, stored, summed, x, y
from verified import EMULATED

import halide_bridge as hb
from selector.gpu.codegen.program import emit_kernels
from selector.ir.nodes import IntImm, Var
from selector.simulate import simulate
from selector.targets import find_target

pytestmark = pytest.mark.verified


TWO = (
    "window_of_computed_taps",
    "window_pixels",
    "window_pixels_edge",
    "window_pixels_bytes",
)  # kernels

APART = {"window_separable"}  # two kernels are foretold to take less at a usual size

PLANES = ("window_planes", "window_planes_batch")  # each with taps of its own, few of them


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", [*WINDOWS, "bfloat"])
def test_windows_go_to_tensor_units(name: str, target: str) -> None:
    outputs = WINDOWS.get(name, BFLOAT)().outputs
    schedule = hb.autoschedule(outputs, target=target)
    if name in PLANES and target == "sm_80":  # CUDA cores take as long as memory
        assert "and what they read, in registers" in schedule.report
        return
    assert "windows on tensor units by" in schedule.report
    with gathering(name):
        kernel = hb.compile(outputs, target=target)
    assert "mma" in str(kernel.report)
    several = name in TWO or name in APART
    assert kernel.source.count("__global__") == 1 + several


def filtered(term: Callable[..., Any], kind: Any = F16, wide: Any = F32) -> hl.Func:
    image, weights = hl.ImageParam(kind, 2, "image"), hl.ImageParam(kind, 2, "weights")
    return stored(summed(term(image, weights, hl.RDom([(0, 5), (0, 3)])), kind=wide))


def clamped(image: Any, weights: Any, t: Any) -> Any:
    inside = image[hl.clamp(x + t.x, 0, y + 5), y + t.y]
    return hl.f32(inside) * hl.f32(weights[t.x, t.y])


MISSES: dict[str, tuple[Callable[[Any, Any, Any], Any], Any, Any]] = {
    "a window of the image: keep indices inside by one of": (clamped, F16, F32),
    "not lie along the innermost dimension": (
        lambda i, w, _: (
            (u := hl.RDom([(0, 3)])), hl.f32(i[2 * x, y + u]) * hl.f32(w[u, 0]),
        )[1], F16, F32,
    ),
    "more than the taps of a window": (
        lambda i, w, t: hl.f32(i[x + t.x, y]) * hl.f32(w[t.x, t.y]), F16, F32,
    ),
    "the same all along an axis": (
        lambda i, w, t: hl.f32(i[x + t.x, y + t.y]) * hl.f32(w[t.x, 0]), F16, F32,
    ),
    "has elements of float32": (
        lambda i, w, t: i[x + t.x, y + t.y] * w[t.x, t.y], F32, F32,
    ),
    "products of uint8 are not taken in int32": (
        lambda i, w, t: hl.f32(i[x + t.x, y + t.y]) * hl.f32(w[t.x, t.y]), U8, F32,
    ),
    "is not known": (
        lambda i, w, _: (
            (u := hl.RDom([(0, w.width()), (0, 3)])),
            hl.f32(i[x + u.x, y + u.y]) * hl.f32(w[u.x, u.y]),
        )[1], F16, F32,
    ),
    "a condition says": (
        lambda i, w, t: (
            t.where(t.x <= t.y + 2), hl.f32(i[x + t.x, y + t.y]) * hl.f32(w[t.x, t.y]),
        )[1], F16, F32,
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", MISSES)
def test_what_keeps_a_window_from_a_tensor_unit_is_said(why: str) -> None:
    out = filtered(*MISSES[why])
    schedule = hb.autoschedule(out, target="sm_90a")
    (line,) = (t for t in schedule.report.splitlines() if "not on a tensor unit" in t)
    assert why in line
    assert "MemoryType.W" not in schedule.source
    hb.compile(out, target="sm_90a")


def test_bytes_times_single_floats_want_those_to_be_rounded() -> None:
    """The bytes are right as they are."""
    image, taps, out = hl.ImageParam(U8, 2, "image"), hl.ImageParam(F32, 2, "taps"), hl.Func("out")
    t = hl.RDom([(0, 5), (0, 5)])
    out[x, y] = hl.sum(hl.f32(image[x + t.x, y + t.y]) * taps[t.x, t.y])
    report = hb.autoschedule(out, target="sm_90a").report
    assert "`taps_im` has elements of float32, which tensor units do not multiply" in report


@EMULATED
@pytest.mark.parametrize(("step", "taps", "apart"), [(4, 4, True), (3, 2, True), (4, 5, False)])
def test_windows_that_do_not_overlap_stay_on_cuda_cores(step: int, taps: int, apart: bool) -> None:
    """Each pixel is read once: there is nothing that a tile would share."""
    image, weights = hl.ImageParam(F16, 2, "image"), hl.ImageParam(F16, 2, "weights")
    r, total, out = hl.RDom([(0, taps), (0, taps)], "r"), hl.Func("total"), hl.Func("out")
    pixel = image[step * x + r.x, step * y + r.y]
    total[x, y] += hl.f32(pixel) * hl.f32(weights[r.x, r.y])
    out[x, y] = hl.cast(F16, total[x, y])
    report = hb.autoschedule(out, target="sm_90a", sizes=(270, 480)).report
    assert ("its windows do not overlap, and CUDA cores sum them up" in report) == apart
    assert ("windows on tensor units" in report) != apart
    random, size = np.random.default_rng(1), (13, 21)
    high, wide = ((n - 1) * step + taps for n in size)
    data, w = (random.standard_normal(s).astype(np.float16) for s in ((high, wide), (taps, taps)))
    result = check(hb.compile(out, target="sm_90a"), image=data, weights=w, sizes=size)
    exact = np.zeros(size)
    for v in range(taps):
        for u in range(taps):
            part = data[v::step, u::step][: size[0], : size[1]]
            exact += part.astype(float) * float(w[v, u])
    assert np.linalg.norm(result - exact) <= 1e-3 * np.linalg.norm(exact)


@pytest.mark.parametrize("name", ["pixels_to_planes", "planes_to_pixels"])
def test_blocks_of_the_channels_of_a_pixel_follow_each_other(name: str) -> None:
    """What one of them has loaded or stored of a sector is in the cache for the others."""
    outputs = WINDOWS[f"window_{name}"]().outputs
    with gathering(name):
        kernel = hb.compile(outputs, target="sm_90a", schedule="auto", sizes=(3, 90, 500))
    (launch,) = kernel.plan.launches
    assert launch.grid[0] in (IntImm(3), Var("out.extent.0"))
    planar = hb.compile(WINDOWS["window_columns_9"]().outputs, target="sm_90a", schedule="auto")
    assert planar.plan.launches[0].grid[2] == Var("out.extent.2")


def test_rows_and_columns_change_places_in_a_kernel_of_its_own() -> None:
    """Only planes may lie elsewhere: neighbours along x would be stored one by one."""
    image, weights = hl.ImageParam(F16, 2, "image"), hl.ImageParam(F16, 1, "weights")
    t, turned = hl.RDom([(0, 9)]), hl.Func("turned")
    total = summed(hl.f32(image[x + t, y]) * hl.f32(weights[t]))
    turned[y, x] = total[x, y]
    assert hb.compile(turned, schedule="auto", target="sm_90a").source.count("__global__") == 2


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_bytes_by_signed_taps(target: str) -> None:
    """Pixels without a sign and taps with one: instructions take any two bytes."""
    image, weights = hl.ImageParam(U8, 2, "image"), hl.ImageParam(hl.Int(8), 2, "weights")
    t = hl.RDom([(0, 5), (0, 3)])
    terms = hl.i32(image[x + t.x, y + t.y]) * hl.i32(weights[t.x, t.y])
    out = stored(summed(terms, kind=hl.Int(32)))
    assert "windows on tensor units by" in hb.autoschedule(out, target=target).report
    kernel = hb.compile(out, target=target)
    assert "pack8(" not in kernel.source.partition("// total: ")[2]
    kernels, plan = emit_kernels(kernel.module, find_target(target))
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (12, 304)).astype(np.uint8)
    taps = rng.integers(-128, 128, (3, 5)).astype(np.int8)
    found = simulate(kernels, plan, {"image": pixels, "weights": taps}, (10, 300))
    windows = np.lib.stride_tricks.sliding_window_view(pixels.astype(int), taps.shape)
    assert found.faults == ()
    assert np.array_equal(found.outputs["out"], np.sum(windows * taps, axis=(2, 3)))


@pytest.mark.parametrize("taps", [31, 32])
def test_bytes_have_windows_of_any_size(taps: int) -> None:
    """A warp's text has hundreds of statements then, of few kinds."""
    image, weights = hl.ImageParam(U8, 2, "image"), hl.ImageParam(F16, 2, "weights")
    t, out = hl.RDom([(0, taps), (0, taps)]), hl.Func("out")
    total = summed(hl.f32(image[x + t.x, y + t.y]) * hl.f32(weights[t.x, t.y]))
    out[x, y] = total[x, y]
    report = hb.autoschedule(out, target="sm_90a", sizes=(4000, 3000)).report
    assert "windows on tensor units by mma" in report
