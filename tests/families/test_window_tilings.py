"""The space of filters: what it holds compiles and does not spill, and gives the numbers; each
constraint has a case, the choice is quick and always the same.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import halide as hl
import numpy as np
import pytest
from clock import assert_quick
from verified import INTERPRETED

import halide_bridge as hb
from halide_bridge.schedules import Windows, schedule_windows
from selector.families.windows import Axis, Shape, Tiling, candidates, estimate, pick, ranked
from selector.families.windows.cost import read_bytes
from selector.families.windows.limits import beside, shared_bytes, why_not
from selector.families.windows.space import smallest, space
from selector.families.windows.tiling import group_outputs
from selector.machine import MACHINES, machine_for
from selector.runtime.nvrtc import compile_to_cubin, resource_usage
from selector.targets import find_target

ROOT = Path(__file__).resolve().parents[2]
HOPPER, AMPERE = find_target("sm_90a"), find_target("sm_80")
H200 = machine_for("sm_90a")
PHOTO = Shape(3840, 2160, Axis(5, first=-2), Axis(5, first=-2), declared=False)
SHAPES = {
    "square": PHOTO,
    "valid": Shape(1000, 700, Axis(7), Axis(7)),
    "rows": Shape(4096, 4096, Axis(16)),
    "columns": Shape(1920, 1080, Axis(1), Axis(9)),
    "half": Shape(1920, 1080, Axis(6, 2), Axis(6, 2)),
    "double": Shape(3840, 2160, Axis(4, phases=2), Axis(4, phases=2)),
    "triple": Shape(3840, 2160, Axis(3, phases=3), Axis(3, phases=3)),
    "large": Shape(6000, 4000, Axis(31, first=-15), Axis(31, first=-15), declared=False),
    "signal": Shape(1 << 22, 1, Axis(48), signal=True),
    "bytes": replace(PHOTO, bytes=1),
}


def filtered(shape: Shape, tiling: Tiling) -> Any:
    """A plain filter of a shape, scheduled so."""
    kind, wide = (hl.Float(16), hl.f32) if shape.bytes == 2 else (hl.UInt(8), hl.i32)
    image, weights = hl.ImageParam(kind, 2, "I"), hl.ImageParam(kind, 2, "K")
    source = image if shape.declared else hl.BoundaryConditions.repeat_edge(image)
    total, out, x, y = hl.Func("total"), hl.Func("out"), hl.Var("x"), hl.Var("y")
    t = hl.RDom([(0, shape.x.taps), (0, shape.y.taps)], "t")
    i, j = (
        a.step * (v if a.phases == 1 else v // a.phases) + r + a.first
        for a, v, r in ((shape.x, x, t.x), (shape.y, y, t.y))
    )
    p, q = shape.x.phases, shape.y.phases
    k = (p * t.x + x % p if p > 1 else t.x, q * t.y + y % q if q > 1 else t.y)
    total[x, y] = wide(0)
    total[x, y] += wide(source[i, j]) * wide(weights[k])
    out[x, y] = total[x, y]
    funcs = Windows(out, total, source, x, y, (t.x, t.y))
    return hb.compile(schedule_windows(funcs, shape, tiling), target="sm_90a")


def wanted(shape: Shape, image: Any, weights: Any, sizes: tuple[int, int]) -> Any:
    """In float64, by the definition."""
    (height, width), found = sizes, np.zeros(sizes)
    for s in range(shape.y.taps):
        for t in range(shape.x.taps):
            j, i = (
                a.step * (np.arange(n) // a.phases) + at + a.first
                for a, n, at in ((shape.y, height, s), (shape.x, width, t))
            )
            rows, columns = (np.clip(v, 0, n - 1) for v, n in zip((j, i), image.shape, strict=True))
            p, q = shape.x.phases, shape.y.phases
            taps = weights[q * s + np.arange(height) % q][:, p * t + np.arange(width) % p]
            found += taps.astype(np.float64) * image[rows][:, columns]
    return found


@INTERPRETED
@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in SHAPES if SHAPES[n].y.taps > 1 and n != "columns"])
def test_what_is_chosen_is_right(name: str) -> None:
    shape, random = SHAPES[name], np.random.default_rng(1)
    sizes = 37, 271
    extents = [
        a.step * (-(-n // a.phases) - 1) + a.window + max(0, a.first)
        for a, n in zip((shape.y, shape.x), sizes, strict=True)
    ]
    taps = shape.y.taps * shape.y.phases, shape.x.taps * shape.x.phases
    if shape.bytes == 1:
        image, weights = (random.integers(0, 256, n).astype(np.uint8) for n in (extents, taps))
    else:
        image, weights = (random.random(n).astype(np.float16) for n in (extents, taps))
    tried = [t for _, t in ranked(shape, H200)]
    for tiling in dict.fromkeys((*candidates(shape, H200), *tried[1::37])):
        kernel = filtered(shape, tiling)
        found = kernel.interpret(I=image, K=weights, sizes=sizes)
        truth = wanted(shape, image, weights, sizes)
        assert np.linalg.norm(found - truth) <= 1e-5 * np.linalg.norm(truth), tiling
        assert kernel.plan.launches[-1].shared_bytes <= 1.15 * shared_bytes(tiling, shape) + 8192


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
def test_every_gpu_has_a_choice(name: str, machine: Any) -> None:
    shape, target = SHAPES[name], find_target(machine.target)
    found = candidates(shape, machine)
    assert found == candidates(shape, machine)
    assert_quick(lambda: ranked(shape, machine), 0.1)
    assert found[0] == pick(shape, machine)
    assert not why_not(found[0], shape, target)
    assert any(t.unit == "warp" for t in found)


def test_the_choice_follows_the_size() -> None:
    """Small images have blocks for all multiprocessors."""
    small, large = replace(PHOTO, width=320, height=240), replace(PHOTO, width=16384, height=16384)
    first, last = (candidates(s, H200)[0] for s in (small, large))
    assert first.width * first.height * first.segments < last.width * last.height * last.segments


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"tap_rows": 2}, "do not divide"),
        ({"outputs": 100}, "whole instructions"),
        ({"vectors": 300, "boxes": False}, "unrolled"),
        ({"rows": 32, "tap_rows": 1}, "too many registers"),
        ({"units": 64, "boxes": False}, "2048 threads"),
        ({"rows": 8, "units": 8, "segments": 2, "stages": 7}, "does not fit shared memory"),
        ({"outputs": 4096 * 8, "rows": 1}, "lanes"),
    ],
)
def test_constraints(changes: dict[str, int], why: str) -> None:
    assert why in why_not(replace(Tiling(), **changes), PHOTO, HOPPER)


def test_groups_take_what_wgmma_does() -> None:
    tiling = Tiling("group", group_outputs(PHOTO.x), rows=4)
    assert not why_not(tiling, PHOTO, HOPPER)
    assert "no such instructions" in why_not(tiling, PHOTO, AMPERE)
    for shape in (SHAPES["bytes"], SHAPES["rows"], SHAPES["columns"]):
        assert "in two dimensions" in why_not(tiling, shape, HOPPER)
    assert "64 windows" in why_not(tiling, SHAPES["half"], HOPPER)


def test_a_schedule_is_in_the_space_once() -> None:
    for shape in SHAPES.values():
        found = [*space(shape, HOPPER)]
        assert len(found) == len({*found})


def test_labels_tell_schedules_apart() -> None:
    for shape in SHAPES.values():
        found = [*space(shape, HOPPER)]
        assert len(found) == len({t.label for t in found})


def test_there_is_a_schedule_where_none_has_room() -> None:
    huge = Shape(9000, 9000, Axis(700), Axis(700))
    assert [*space(huge, HOPPER)] == [smallest(huge)] == candidates(huge, H200)
    assert "does not fit shared memory" in why_not(smallest(huge), huge, HOPPER)
    for shape in SHAPES.values():
        assert not why_not(smallest(shape), shape, AMPERE) or shape.bytes == 1


@pytest.mark.parametrize("name", [n for n in SHAPES if n not in ("columns", "signal")])
def test_the_smallest_schedule_has_instructions(name: str) -> None:
    shape = SHAPES[name]
    assert any(u.block is not None for u in filtered(shape, smallest(shape)).report.updates)


@pytest.mark.nvrtc
@pytest.mark.parametrize("taps", [300, 1024])
def test_sums_over_several_bands_stay_in_registers(taps: int) -> None:
    shape = Shape(8192, 4096, Axis(taps))
    tiling = pick(shape, H200)
    assert not why_not(tiling, shape, HOPPER)
    cubin = compile_to_cubin(filtered(shape, tiling).source, "sm_90a")
    assert all(not used.stack_bytes for used in resource_usage(cubin).values())


def measured_blocks() -> dict[tuple[int, int], tuple[float, ...]]:
    """Of the page: microseconds of four blocks of groups by taps and the image's size."""
    page = (ROOT / "docs" / "results" / "performance.md").read_text()
    rows = re.findall(r"^\| (\d+) \|((?: \**[\d.]+\** \|){10})$", page, flags=re.MULTILINE)
    found: dict[tuple[int, int], tuple[float, ...]] = {}
    for size, cells in rows:
        times = [float(cell.strip(" *")) for cell in cells.split("|")[:-1]]
        found |= {(16, int(size)): tuple(times[1:5]), (32, int(size)): tuple(times[6:])}
    return found


def test_the_model_chooses_well_where_it_was_not_fitted() -> None:
    """Among the blocks of groups that the page has times of, at eleven sizes of an image."""
    lost: list[float] = []
    for (taps, size), times in measured_blocks().items():
        axis = Axis(taps)
        shape = Shape(size - taps, size - taps, axis, axis, aligned=size % 8 == 0)
        tilings = [
            Tiling("group", 512, 1, rows, 4, segments=n, stages=1 if taps == 32 and rows > 8 else 2)
            for rows, n in ((16, 4), (16, 3), (16, 2), (8, 2))
        ]
        foretold = [estimate(t, shape, H200).microseconds for t in tilings]
        lost.append(times[foretold.index(min(foretold))] / min(times) - 1)
    assert len(lost) == 22
    assert fmean(lost) < 0.03
    assert max(lost) < 0.15


@pytest.mark.parametrize(
    ("taps", "outputs", "vectors"),
    [(56, 256, 2), (64, 128, 4), (96, 256, 4), (224, 128, 8), (224, 128, 16)],
)
def test_windows_of_a_long_band_are_read_once(taps: int, outputs: int, vectors: int) -> None:
    """The matrices that a warp loads are as many bytes as the model says."""
    shape, tiling = Shape(4096, 4096, Axis(taps)), Tiling("warp", outputs, vectors, 1, 4)
    kernel = filtered(shape, tiling).source.split('extern "C"')[-1]
    loads = Counter(re.findall(r"\bldmatrix(\d?)\(", kernel))
    matrices = sum(int(count or 1) * times for count, times in loads.items())
    assert 128 * matrices == pytest.approx(read_bytes(tiling, shape) / tiling.units, rel=0.03)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
def test_short_bands_are_given_the_blocks_that_the_model_counts_on(machine: Any) -> None:
    """Those of few sums, and long bands, are the compiler's choice."""
    target = find_target(machine.target)
    for taps in (24, 48, 96):
        shape = Shape(4096, 4096, Axis(taps))
        for t in space(shape, target):
            if t.width == 512 and t.units == 4:
                assert t.resident == (beside(t, shape, target) if taps < 57 else 0)
            assert t.resident <= beside(t, shape, target) or t.resident == 3
            if t.width < 512:
                assert t.resident == 0
