"""Pictures as users have them, plain: with any boundary, of bytes, channels next to each other, or
a part of a larger one. Right at sizes that no tile divides, as selected (the interpreter) and as
emitted (the simulator), and read in pieces of 16 bytes.
"""

from __future__ import annotations

import warnings
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check as run_text
from plain_pipelines import F16, U8
from verified import EMULATED

import halide_bridge as hb
from selector.diagnostics import PerformanceWarning, ScheduleError
from selector.gpu.codegen.program import emit_kernels
from selector.simulate import simulate
from selector.targets import find_target

pytestmark = EMULATED

x, y, c = (hl.Var(name) for name in "xyc")
MODES = {
    "repeat_edge": "edge",
    "mirror_image": "symmetric",
    "mirror_interior": "reflect",
    "repeat_image": "wrap",
    "constant_exterior": "constant",
}
SIZES = ((40, 301), (35, 304), (2, 3))
KINDS = {"f16": F16, "u8": U8, "s8": hl.Int(8)}


def filtered(name: str, edge: str, taps: int, channels: int = 0) -> hl.Func:
    """``taps`` x ``taps`` around each pixel, of ``channels`` next to each other or of one plane."""
    args, kind = (c, x, y) if channels else (x, y), KINDS[name]
    image, weights = hl.ImageParam(kind, len(args), "I"), hl.ImageParam(F16, 2, "K")
    boundary = getattr(hl.BoundaryConditions, edge)
    zero = (hl.cast(kind, 0),) if edge == "constant_exterior" else ()
    source, r = boundary(image, *zero), hl.RDom([(0, taps), (0, taps)], "r")
    total, output = hl.Func("total"), hl.Func("output")
    at = (x + r.x - taps // 2, y + r.y - taps // 2)
    window = source[(c, *at) if channels else at]
    total[args] = hl.f32(0)
    total[args] += hl.f32(window) * hl.f32(weights[r.x, r.y])
    output[args] = total[args]
    if channels:
        output.bound(c, 0, channels)
    return output


def made(kind: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(3)
    if kind == "f16":
        return rng.uniform(-1, 1, shape).astype(np.float16)
    low = 0 if kind == "u8" else -128
    return rng.integers(low, low + 256, shape).astype(np.uint8 if kind == "u8" else np.int8)


def truth(image: np.ndarray, weights: np.ndarray, edge: str) -> np.ndarray:
    """In float64."""
    taps, (height, width) = len(weights), image.shape[:2]
    around = (taps // 2, taps - 1 - taps // 2)
    sides = [around, around, *[(0, 0)] * (image.ndim - 2)]
    padded: Any = np.pad(image.astype(float), sides, mode=MODES[edge])  # type: ignore[call-overload]
    found = np.zeros(image.shape)
    for s in range(taps):
        for t in range(taps):
            found += float(weights[s, t]) * padded[s : s + height, t : t + width]
    return found


def check(output: hl.Func, kind: str, edge: str, taps: int, channels: int = 0) -> str:
    """Compile without a word about copies, run at all sizes; the source."""
    report = hb.autoschedule(output, target="sm_90a").report
    assert "windows on tensor units by" in report
    with warnings.catch_warnings():
        warnings.simplefilter("error", PerformanceWarning)
        kernel = hb.compile(output, target="sm_90a", name="filter")
    kernels, plan = emit_kernels(kernel.module, find_target("sm_90a"))
    weights = made("f16", taps, taps)
    for height, width in SIZES:
        shape = (height, width, channels)[: 3 if channels else 2]
        image = made(kind, *shape)
        expected = truth(image, weights, edge)
        given = {"I": image, "K": weights}
        results = [kernel.interpret(**given, sizes=shape)]
        for flags in (True, False):
            found = simulate(kernels, plan, given, shape, flags=flags)
            assert found.faults == ()
            results.append(found.outputs["output"])
        for result in results:
            assert np.linalg.norm(result - expected) <= 1e-6 * np.linalg.norm(expected)
    return kernel.source


@pytest.mark.parametrize("edge", MODES)
def test_what_lies_beyond_an_edge(edge: str) -> None:
    """Tiles that lie inside are copied without a thought about it."""
    source = check(filtered("f16", edge, 5), "f16", edge, 5)
    inside, _, beyond = source.partition("copy16(shared_address(to), from);")
    assert "held" not in source
    assert ("parts[part] = load_shifted(" in source) == (edge != "constant_exterior")
    assert "floor_mod" not in inside.partition("__global__")[2]
    assert ("floor_mod_near(" in beyond) == (edge.startswith("mirror") or edge == "repeat_image")


@pytest.mark.parametrize(
    ("kind", "channels", "edge"),
    [
        *(("f16", 3, edge) for edge in MODES),
        ("u8", 3, "mirror_image"),
        ("u8", 3, "constant_exterior"),
        ("f16", 2, "repeat_image"),
        ("u8", 4, "repeat_edge"),
    ],
)
def test_pixels_of_several_channels(kind: str, channels: int, edge: str) -> None:
    source = check(filtered(kind, edge, 5, channels), kind, edge, 5, channels)
    dense, *others = source.split("__global__")[1:]
    assert len(others) == 1
    assert "copy16(" in dense
    assert "held" not in dense


@pytest.mark.parametrize("kind", ["u8", "s8"])
@pytest.mark.parametrize("taps", [3, 4, 5])
def test_bytes_by_f16(kind: str, taps: int) -> None:
    """They are staged as bytes, and two are converted together where a warp reads them."""
    source = check(filtered(kind, "repeat_edge", taps), kind, "repeat_edge", taps)
    assert f" = {kind}_pair{'_odd' * (taps == 3)}(" in source
    assert f"{kind}* const repeat_edge_in_total" in source


@pytest.mark.parametrize(
    ("kind", "edge", "taps", "channels"),
    [("s8", "mirror_image", 3, 0), ("u8", "mirror_image", 5, 3), ("f16", "repeat_image", 5, 0)],
)
def test_the_text_computes_it(kind: str, edge: str, taps: int, channels: int) -> None:
    """Whatever lay in memory, in whatever order threads run."""
    output = filtered(kind, edge, taps, channels)
    hb.autoschedule(output, target="sm_90a")
    kernel = hb.compile(output, target="sm_90a", name="filter")
    shape = (35, 301, channels)[: 3 if channels else 2]
    image, weights = made(kind, *shape), made("f16", taps, taps)
    found, expected = run_text(kernel, sizes=shape, I=image, K=weights), truth(image, weights, edge)
    assert np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected)


def test_a_part_of_a_picture_with_more_channels() -> None:
    """Pixels that are further apart than they have channels have the other kernel."""
    output = filtered("u8", "mirror_image", 5, 3)
    hb.autoschedule(output, target="sm_90a")
    kernel = hb.compile(output, target="sm_90a")
    kernels, plan = emit_kernels(kernel.module, find_target("sm_90a"))
    weights, image = made("f16", 5, 5), made("u8", 41, 310, 4)[3:38, 5:306, :3]
    expected = truth(image, weights, "mirror_image")
    found = simulate(kernels, plan, {"I": image, "K": weights}, image.shape)
    assert found.faults == ()
    for result in (
        found.outputs["output"],
        kernel.interpret(I=image, K=weights, sizes=image.shape),
    ):
        assert np.linalg.norm(result - expected) <= 1e-6 * np.linalg.norm(expected)


def test_the_schedule_of_pixels_can_be_pasted() -> None:
    output, again = filtered("f16", "repeat_edge", 3, 3), filtered("f16", "repeat_edge", 3, 3)
    text = hb.autoschedule(output, target="sm_90a").source
    assert "hb.interleaved(output2, 3)" in text
    exec(text, {"output": again, "hl": hl, "hb": hb})
    sources = [hb.compile(f, target="sm_90a", name="filter").source for f in (output, again)]
    assert sources[0] == sources[1]


def test_one_channel_is_no_pixel() -> None:
    with pytest.raises(ScheduleError, match="pixels of 1 channel"):
        hb.interleaved(hl.Func("f"), 1)
