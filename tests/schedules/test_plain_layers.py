"""Layers of a network without a schedule: sums over channels and a window of pixels go to tensor
units, whatever the window, and what keeps others from them is said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED, SIMULATED

import halide_bridge as hb
from selector.families.layers import Shape, candidates
from selector.gpu.codegen.program import emit_kernels
from selector.machine import machine_for
from selector.runtime.plan import MapArgument
from selector.simulate import simulate
from selector.targets import find_target

pytestmark = [EMULATED, SIMULATED]

F16, F32 = hl.Float(16), hl.Float(32)
c, f, x, y, n = (hl.Var(v) for v in "cfxyn")
Array = np.ndarray[Any, Any]


def layer(
    taps: tuple[int, int] = (3, 3),
    dilation: int = 1,
    padding: int = 0,
    stride: int = 1,
    kind: Any = F16,
    filters_first: bool = False,
    bias: bool = False,
    fixed: int = 0,
) -> hl.Func:
    image, w = hl.ImageParam(kind, 4, "image"), hl.ImageParam(kind, 4, "w")
    total, out, source = hl.Func("total"), hl.Func("out"), image
    if padding:
        source = hl.BoundaryConditions.constant_exterior(
            image, hl.cast(kind, 0), [(hl.Expr(), hl.Expr())]
            + [(image.dim(d).min(), image.dim(d).extent()) for d in (1, 2)]
            + [(hl.Expr(), hl.Expr())],
        )  # fmt: skip
    channels = fixed or image.dim(0).extent()
    r = hl.RDom([(0, channels), (0, taps[0]), (0, taps[1])], "r")
    column = stride * x + dilation * r.y - padding
    pixel = source[r.x, column, stride * y + dilation * r.z - padding, n]
    weight = w[f, r.x, r.y, r.z] if filters_first else w[r.x, r.y, r.z, f]
    total[f, x, y, n] += hl.f32(pixel) * hl.f32(weight)
    value = total[f, x, y, n]
    if bias:
        value = hl.max(value + hl.ImageParam(F32, 1, "bias")[f], 0)
    out[f, x, y, n] = hl.cast(F16, value)
    return out


def exact(
    image: Array, w: Array, size: tuple[int, ...], dilation: int, padding: int, stride: int
) -> Array:
    """``image`` of (n, y, x, c), ``w`` of (f, r, s, c)."""
    image = np.pad(image, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    total = np.zeros(size)
    for r, s in product(range(w.shape[1]), range(w.shape[2])):
        rows = slice(r * dilation, r * dilation + stride * size[1], stride)
        columns = slice(s * dilation, s * dilation + stride * size[2], stride)
        total += np.einsum("nhwc,kc->nhwk", image[:, rows, columns], w[:, r, s])
    return total


LAYERS: dict[str, tuple[dict[str, Any], tuple[int, int, int, int, int]]] = {
    "3 x 3": ({}, (2, 5, 9, 16, 24)),
    "channels that 16 does not divide": ({}, (1, 4, 5, 20, 12)),
    "5 x 1, apart": ({"taps": (5, 1), "dilation": 2}, (1, 3, 17, 32, 8)),
    "1 x 1": ({"taps": (1, 1)}, (3, 5, 7, 40, 72)),
    "zeros around": ({"padding": 1}, (1, 6, 5, 16, 16)),
    "pixels apart": ({"stride": 2, "padding": 1}, (2, 5, 7, 24, 16)),
    "single pixels apart": ({"stride": 3, "taps": (1, 1)}, (1, 5, 6, 16, 24)),
    "filters innermost": ({"filters_first": True}, (2, 3, 4, 24, 40)),
    "bias and ReLU": ({"bias": True}, (1, 5, 6, 16, 48)),
}


def drawn(
    options: dict[str, Any], shape: tuple[int, ...], size: tuple[int, ...]
) -> tuple[dict[str, Array], Array]:
    """The inputs of a ``layer`` of those options, an image of that shape first, and its results."""
    random, taps = np.random.default_rng(0), options.get("taps", (3, 3))
    image = random.standard_normal(shape).astype(np.float16)
    w = random.standard_normal((size[-1], taps[1], taps[0], shape[-1])).astype(np.float16)
    given = w.transpose(1, 2, 3, 0).copy() if options.get("filters_first") else w
    inputs: dict[str, Array] = {"image": image, "w": given}
    dilation, padding, stride = (
        options.get(name, usual) for name, usual in (("dilation", 1), ("padding", 0), ("stride", 1))
    )
    wanted = exact(image.astype(float), w.astype(float), size, dilation, padding, stride)
    if not options.get("bias"):
        return inputs, wanted
    inputs["bias"] = random.standard_normal(size[-1]).astype(np.float32)
    return inputs, np.maximum(wanted + inputs["bias"], 0)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_go_to_tensor_units_and_are_right(name: str) -> None:
    options, (images, high, wide, channels, filters) = LAYERS[name]
    out = layer(**options)
    schedule = hb.autoschedule(out, target="sm_90a", sizes=(4, 12, 12, 512))
    assert "a layer on tensor units by wgmma" in schedule.report
    taps, dilation = options.get("taps", (3, 3)), options.get("dilation", 1)
    padding, stride = options.get("padding", 0), options.get("stride", 1)
    reach = [dilation * (t - 1) - 2 * padding for t in taps]
    shape = (images, stride * high + reach[1], stride * wide + reach[0], channels)
    size = (images, high, wide, filters)
    inputs, wanted = drawn(options, shape, size)
    result = hb.compile(out, target="sm_90a").interpret(**inputs, sizes=size)
    assert np.linalg.norm(result - wanted) <= 1e-3 * np.linalg.norm(wanted)


APART: dict[str, tuple[dict[str, Any], tuple[int, int, int, int, int]]] = {
    "3 x 3, zeros around": ({"stride": 2, "padding": 1}, (2, 5, 7, 24, 16)),
    "3 x 3": ({"stride": 2}, (1, 6, 9, 72, 40)),
    "1 x 1": ({"stride": 2, "taps": (1, 1)}, (3, 5, 6, 136, 24)),
    "1 x 1, zeros around": ({"stride": 3, "taps": (1, 1), "padding": 1}, (1, 4, 7, 16, 24)),
    "every third of every second": ({"stride": 3, "dilation": 2}, (2, 3, 4, 16, 8)),
    "every ninth": ({"stride": 9, "taps": (3, 1)}, (1, 3, 4, 16, 8)),
}


@pytest.mark.parametrize("name", APART)
def test_only_the_pixels_that_windows_read_are_copied(name: str) -> None:
    """By one kernel, whatever remains at the ends of rows: where a page ends, or zeros begin."""
    options, (images, high, wide, channels, filters) = APART[name]
    out = layer(**options)
    hb.autoschedule(out, target="sm_90a", sizes=(images, 112, 112, 64))
    kernel = hb.compile(out, target="sm_90a")
    kernels, plan = emit_kernels(kernel.module, find_target("sm_90a"))
    (launch,) = plan.launches
    taps, dilation = options.get("taps", (3, 3)), options.get("dilation", 1)
    padding, stride = options.get("padding", 0), options["stride"]
    steps = [a.steps for a in launch.arguments if isinstance(a, MapArgument) and a.name == "image"]
    if max(taps) == 1:  # which of the pixels between is read is known, and said for rows at least
        assert steps == ([(1, 1, stride, 1, 1)] if padding else [()])
    else:
        assert steps == ([] if stride > 8 else [(1, stride, stride, 1)])
    reach = [dilation * (t - 1) - 2 * padding for t in taps]
    shape = [stride * (e - 1) + 1 + r for e, r in zip((high, wide), reach[::-1], strict=True)]
    size = (images, high, wide, filters)
    inputs, wanted = drawn(options, (images, *shape, channels), size)
    for ready in (True, False):
        result = check(kernel, **inputs, sizes=size, maps_ready=ready)
        assert np.linalg.norm(result - wanted) <= 1e-3 * np.linalg.norm(wanted)
        found = simulate(kernels, plan, inputs, size, flags=ready)
        assert found.faults == ()
        (result,) = found.outputs.values()
        assert np.linalg.norm(result - wanted) <= 1e-3 * np.linalg.norm(wanted)


DEEP: dict[str, tuple[dict[str, Any], tuple[int, int, int, int, int]]] = {
    "filters last": ({"padding": 1}, (1, 5, 7, 600, 40)),
    "pixels apart, with bias": ({"stride": 2, "bias": True}, (1, 7, 3, 584, 24)),
    "filters of the weights last": ({"filters_first": True}, (2, 3, 4, 520, 24)),
}


@pytest.mark.parametrize("name", DEEP)
def test_few_pixels_have_their_sums_in_parts(name: str) -> None:
    """Also where the last part has fewer channels; a kernel adds them."""
    options, (images, high, wide, channels, filters) = DEEP[name]
    out = layer(**options)
    taps, stride = options.get("taps", (3, 3)), options.get("stride", 1)
    padding = options.get("padding", 0)
    reach = taps[0] - 1 - 2 * padding
    shape = (images, stride * (high - 1) + 1 + reach, stride * (wide - 1) + 1 + reach, channels)
    size = (images, high, wide, filters)
    hb.autoschedule(out, target="sm_90a", sizes={"out": (1, 7, 7, 64), "image": (1, 9, 9, 1024)})
    kernel = hb.compile(out, target="sm_90a")
    assert [launch.once for launch in kernel.plan.launches] == [False, False]
    inputs, wanted = drawn(options, shape, size)
    for ready in (True, False):
        result = check(kernel, **inputs, sizes=size, maps_ready=ready)
        assert np.linalg.norm(result - wanted) <= 1e-3 * np.linalg.norm(wanted)


WHOLE: dict[str, tuple[dict[str, Any], tuple[int, ...], tuple[int, int, int, int, int]]] = {
    "images side by side": ({"padding": 1}, (32, 56, 56, 64), (9, 5, 11, 24, 40)),
    "one image": ({}, (1, 64, 64, 64), (1, 6, 70, 40, 24)),
    "apart, with bias": ({"dilation": 3, "bias": True}, (1, 64, 64, 64), (3, 4, 67, 32, 72)),
    "5 x 1": ({"taps": (5, 1)}, (32, 56, 56, 64), (5, 3, 9, 16, 8)),
    "1 x 5": ({"taps": (1, 5), "filters_first": True}, (4, 56, 56, 64), (2, 9, 10, 48, 16)),
    "weights that stay": ({"fixed": 16, "bias": True}, (4096, 64, 64, 16), (2, 9, 70, 16, 16)),
    "few weights that stay": ({"fixed": 12, "padding": 1}, (256, 64, 64, 12), (9, 7, 10, 12, 12)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_all_taps_read_one_copy_of_their_pixels(name: str) -> None:
    options, (*pixels, wide), (images, high, across, channels, filters) = WHOLE[name]
    out = layer(**options)
    taps, dilation = options.get("taps", (3, 3)), options.get("dilation", 1)
    padding = options.get("padding", 0)
    deep = options.get("fixed", 64)
    size = {"out": (*pixels, wide), "image": (*pixels[:1], pixels[1] + 6, pixels[2] + 6, deep)}
    schedule = hb.autoschedule(out, target="sm_90a", sizes=size)
    stay = "strip" in schedule.source
    assert stay == ("fixed" in options)
    assert schedule.source.count("pipeline_stages") == 2 - stay
    assert "unroll(r_y)" in schedule.source
    kernel = hb.compile(out, target="sm_90a")
    kernels, plan = emit_kernels(kernel.module, find_target("sm_90a"))
    reach = [dilation * (t - 1) - 2 * padding for t in taps]
    shape = (images, high + reach[1], across + reach[0], channels)
    result_size = (images, high, across, filters)
    inputs, wanted = drawn(options, shape, result_size)
    for ready in (True, False):
        result = check(kernel, **inputs, sizes=result_size, maps_ready=ready)
        assert np.linalg.norm(result - wanted) <= 1e-3 * np.linalg.norm(wanted)
        found = simulate(kernels, plan, inputs, result_size, flags=ready)
        assert found.faults == ()


def test_windows_are_copied_whole_where_they_lie_side_by_side() -> None:
    """Those of a phase as well; not where pixels lie apart, nor at once with more text than
    compiles in time.
    """
    machine = machine_for("sm_90a")
    shape = Shape((56, 56, 32), 64, 64, 9, reach=(2, 2, 0))
    found = candidates(shape, machine)[0]
    assert (found.taps, found.reach) == (9, (2, 2, 0))
    assert found.order == (2, 0, 1)
    assert found.box[1] == 1 or found.box[0] == 1
    assert candidates(replace(shape, steps=(2, 2, 1)), machine)[0].taps == 1
    assert candidates(replace(shape, phases=4), machine)[0].taps == 9
    large = candidates(replace(shape, taps=121, reach=(10, 10, 0)), machine)
    assert all(t.statements <= 96 for t in large)


def test_few_weights_stay_where_every_call_has_as_many() -> None:
    """Beside the pixels of two tiles, for all filters, and where results leave as boxes."""
    machine = machine_for("sm_90a")
    shape = Shape((64, 64, 4096), 16, 16, 9, reach=(2, 2, 0), rows=1, fixed=True)
    found = candidates(shape, machine)[0]
    assert found.strips
    assert found.persistent
    assert found.n >= shape.filters
    assert found.stages > 1
    assert found.shared_bytes <= 200 << 10
    for other in ({"fixed": False}, {"rows": 0}, {"filters": 300}, {"channels": 512}):
        assert not any(t.strips for t in candidates(replace(shape, **other), machine))


def test_a_single_run_has_no_ring_to_stay_for() -> None:
    """Blocks that stay go through a loop of runs; 1 x 1 taps of few channels are one run."""
    shape = Shape((56, 56, 32), 256, 16, 1, rows=1, steps=(2, 2, 1))
    assert not any(t.persistent for t in candidates(shape, machine_for("sm_90a")))
    deep = replace(shape, channels=256)
    assert candidates(deep, machine_for("sm_90a"))[0].persistent


def test_places_are_not_divided_up_within_a_turn() -> None:
    """Where a thread that feeds waits, or for each element that is stored, this took a quarter of
    the time.
    """
    out = layer(padding=1, bias=True)
    hb.autoschedule(
        out, target="sm_90a", sizes={"out": (32, 56, 56, 64), "image": (32, 56, 56, 64)}
    )
    source = hb.compile(out, target="sm_90a").source
    turns = source.split("for (int turn = (int)blockIdx.x;")
    assert len(turns) == 4  # of threads that copy, of the one that asks for boxes, of groups
    assert not any(f"floor_{kind}(out_" in turn for turn in turns for kind in ("div", "mod"))


MISSES: dict[str, Callable[[], hl.Func]] = {
    "float32": lambda: layer(kind=F32),
}


@pytest.mark.parametrize("why", MISSES)
def test_what_keeps_a_layer_from_a_tensor_unit_is_said(why: str) -> None:
    out = MISSES[why]()
    report = hb.autoschedule(out, target="sm_90a").report
    (line,) = (t for t in report.splitlines() if "not on a tensor unit" in t)
    assert why in line
    hb.compile(out, target="sm_90a")


@pytest.mark.parametrize(
    ("channels", "padding", "stride"), [(3, 3, 2), (5, 0, 2), (12, 1, 2), (21, 1, 1)]
)
def test_pixels_that_begin_anywhere_are_copied(channels: int, padding: int, stride: int) -> None:
    """And weights, channels up to multiples of 16 bytes, so that the copy engine takes them."""
    out = layer((7, 7), stride=stride, padding=padding)
    size = {"out": (8, 112, 112, 64), "image": (8, 229, 229, channels)}
    report = hb.autoschedule(out, target="sm_90a", sizes=size).report
    assert "a layer on tensor units by wgmma" in report
    kernel = hb.compile(out, target="sm_90a")
    *copies, last = kernel.plan.launches
    assert len(copies) == 2
    assert sum(isinstance(a, MapArgument) and "_in_" in a.name for a in last.arguments) == 2
    random = np.random.default_rng(0)
    shape = (2, *(stride * (e - 1) + 7 - 2 * padding for e in (5, 9)), channels)
    image = random.standard_normal(shape).astype(np.float16)
    w = random.standard_normal((24, 7, 7, channels)).astype(np.float16)
    wanted = exact(image.astype(float), w.astype(float), (2, 5, 9, 24), 1, padding, stride)
    for ready in (True, False):
        result = check(kernel, image=image, w=w, sizes=wanted.shape, maps_ready=ready)
        assert np.linalg.norm(result - wanted) <= 1e-3 * np.linalg.norm(wanted)


def test_few_channels_of_few_pixels_stay_on_cuda_cores() -> None:
    """Where the copies take longer."""
    out = layer((3, 3), stride=2)
    size = {"out": (1, 8, 8, 8), "image": (1, 17, 17, 3)}
    schedule = hb.autoschedule(out, target="sm_90a", sizes=size)
    assert "MemoryType.W" not in schedule.source
    hb.compile(out, target="sm_90a")


def test_few_pixels_that_begin_anywhere_come_by_threads() -> None:
    """Where neighbours are read: a copy would take longer than CUDA cores."""
    out = layer((1, 1))
    size = {"out": (1, 14, 14, 16), "image": (1, 14, 14, 333)}
    schedule = hb.autoschedule(out, target="sm_90a", sizes=size)
    assert "a layer on tensor units by wgmma" in schedule.report
    assert "align_bounds" not in schedule.source


def test_results_in_planes_have_pixels_side_by_side() -> None:
    """Lanes store those of one filter in as few lines as there are."""
    shape = Shape((56, 56, 32), 64, 64, 9, steps=(1, 1, 1), reach=(2, 2, 0), fixed=True)
    machine = machine_for("sm_90a")
    rows, planes = (candidates(replace(shape, planes=p), machine)[0] for p in (False, True))
    assert rows.box[2] >= 8
    assert planes.box[0] >= 8
    assert next(d for d in planes.order if planes.box[d] > 1) == 0


def test_sizes_choose_the_box() -> None:
    sources = {
        hb.autoschedule(layer(), target="sm_90a", sizes=size).source
        for size in ((4, 12, 12, 512), (1, 64, 64, 64), (32, 56, 56, 64))
    }
    assert len(sources) == 3


@pytest.mark.parametrize("pixels", [(12, 12, 4), (2048, 2048, 2048), (64, 64, 1), (7, 300)])
def test_the_pixels_of_a_group_lie_side_by_side(pixels: tuple[int, ...]) -> None:
    found = candidates(Shape(pixels, 512, 512, 9), machine_for("sm_90a"))
    assert found
    for tiling in found:
        assert prod(tiling.box) == 64
        assert tiling.groups == 1 or prod(tiling.box[tiling.along + 1 :]) == 1
        assert tiling.shared_bytes <= 200 << 10
    assert not candidates(Shape(pixels, 512, 512, 9), machine_for("sm_80"))


def test_sizes_choose_blocks_that_stay_and_parts_of_sums() -> None:
    """Blocks stay where several tiles follow each other whose filters lie side by side, as boxes of
    results do; sums have parts where there are few tiles. Neither where phases have results.
    """
    machine = machine_for("sm_90a")
    many, few = Shape((28, 28, 32), 512, 256, 1, rows=True), Shape((8, 8, 1), 128, 1280, 9)
    first, *others = candidates(many, machine)
    assert first.persistent
    assert all(sum(e > 1 for e in t.box) <= 2 for t in (first, *others))
    assert not candidates(replace(many, rows=False), machine)[0].persistent
    deep = candidates(few, machine)[0]
    assert deep.part % deep.k == 0 < deep.part < 1280
    assert not candidates(replace(few, phases=4), machine)[0].part
    assert not candidates(replace(few, channels=64), machine)[0].part
    assert not candidates(replace(few, pixels=(64, 64, 8)), machine)[0].part


def test_a_box_does_not_reach_further_than_the_copy_engine() -> None:
    """256 pixels along each dimension, with those between that no window reads."""
    for steps in ((2, 2, 1), (8, 1, 1)):
        shape = Shape((2000, 3, 1), 64, 64, 9, steps=steps)
        for t in candidates(shape, machine_for("sm_90a")):
            assert all(e * s <= 256 for e, s in zip(t.block, steps, strict=True))


def test_blocks_that_stay_have_fewer_filters_the_more_is_read_for_each() -> None:
    """The text of what leaves is as long as both together, and compiles as long."""
    machine = machine_for("sm_90a")
    shape = Shape((56, 56, 32), 256, 64, 9)
    stay = {
        reads: {t.n for t in candidates(replace(shape, rows=reads), machine) if t.persistent}
        for reads in (0, 2, 6)
    }
    assert not stay[0]
    assert max(stay[2]) == 128
    assert all(n <= 64 for n in stay[6])


def test_rows_of_filters_are_whole_lines() -> None:
    """A longer row takes whole lines of shared memory: 96 filters of two bytes as much as 128."""
    shape = Shape((14, 14, 8), 256, 256, 9, steps=(2, 2, 1), rows=1, across=True)
    for pixels in ((14, 14, 8), (30, 30, 12), (56, 56, 32)):
        found = candidates(replace(shape, pixels=pixels), machine_for("sm_90a"))
        assert all(t.n != 96 for t in found)
        out = layer(stride=2, filters_first=True, fixed=256)
        size = {"out": (*pixels[::-1], 256), "image": (pixels[2], 113, 113, 256)}
        assert "by wgmma" in hb.autoschedule(out, target="sm_90a", sizes=size).report
