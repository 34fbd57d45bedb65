"""Filters on warpgroups: right in the interpreter at ragged sizes, wgmma in the machine code."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from verified import INTERPRETED, MACHINE_CODE, Verified, nvrtc_inputs, texts_of_case

import halide_bridge as hb
from casestudies.common.case import Case
from casestudies.common.data import decoded, random_inputs, relative_error
from casestudies.common.filtering import space
from casestudies.common.registry import find_case
from casestudies.conv2d import CASE, build
from casestudies.conv2d.problem import Problem
from casestudies.downsample import CASE as DOWNSAMPLE
from casestudies.downsample.problem import Problem as Smaller
from casestudies.upsample import CASE as UPSAMPLE
from casestudies.upsample.problem import Problem as Larger
from selector.diagnostics import UserError
from selector.families.windows import pick
from selector.machine import machine_for
from selector.runtime.nvrtc import resource_usage, sass

SIZES = (
    Problem(257, 33, 16),
    Problem(1, 1, 16),
    Problem(515, 9, 32),
    Problem(67, 19, 7),
    Problem(131, 21, 32, 0, "clamp"),
    Problem(131, 21, 16, 0, "zero"),
    Problem(67, 19, 9, 1, "clamp"),
    Problem(101, 17, 16, element="bf16"),
)


def assert_right(kernel: Any, case: Case, problem: Any, *, seed: int) -> None:
    """The interpreter's numbers are those of float64."""
    inputs = random_inputs(problem, seed, np)
    found = kernel.interpret(**inputs, sizes=problem.output.shape)
    wanted = case.reference(problem, decoded(problem, inputs, np), np)
    assert relative_error(found, wanted, np) < 1e-6


@pytest.mark.parametrize("problem", SIZES, ids=lambda p: p.name)
def test_numbers(problem: Problem) -> None:
    assert_right(hb.compile(build(problem, "wgmma"), target="sm_90a"), CASE, problem, seed=3)


@pytest.mark.parametrize(
    ("case", "problem"),
    [
        (DOWNSAMPLE, p)
        for p in (
            Smaller(257, 33, 16),
            Smaller(1, 1, 16),
            Smaller(101, 37, 32),
            Smaller(255, 19, 9, spare=1),
            Smaller(131, 35, 12, 2, "clamp"),
            Smaller(67, 19, 32, 2, "zero"),
            Smaller(133, 23, 16, 4),
            Smaller(33, 41, 17, 4, "clamp", 1),
        )
    ]
    + [
        (UPSAMPLE, p)
        for p in (
            Larger(1026, 34, 16, spare=1),
            Larger(1, 1, 16),
            Larger(101, 37, 32),
            Larger(131, 35, 16, 2, "clamp"),
            Larger(67, 19, 32, 2, "zero"),
            Larger(67, 19, 6),
            Larger(133, 23, 20, 4),
        )
    ],
    ids=lambda x: x.name,
)
def test_numbers_of_other_resolutions(case: Case, problem: Smaller | Larger) -> None:
    assert_right(hb.compile(case.build(problem, "wgmma"), target="sm_90a"), case, problem, seed=4)


@pytest.mark.nvrtc
@MACHINE_CODE
@pytest.mark.parametrize(
    ("case", "problem"),
    [(c, p) for c in (CASE, DOWNSAMPLE, UPSAMPLE) for p in c.benchmark],
    ids=lambda x: x.name,
)
def test_machine_code(case: Case, problem: Problem | Smaller, verified: Verified) -> None:
    kernel = hb.compile(case.build(problem, "wgmma"), target="sm_90a")
    if verified(*nvrtc_inputs(kernel)):
        return
    cubin = kernel.cubin()
    (usage,) = resource_usage(cubin).values()
    assert usage.local_accesses == 0
    (code,) = sass(cubin).values()
    assert "HGMMA" in code
    assert "UBLKCP" in code


@pytest.mark.parametrize("name", ["conv2d", "downsample", "upsample"])
def test_large_images_have_warpgroups_where_there_are_any(name: str) -> None:
    case = find_case(name)
    for problem, target, unit in (
        (case.benchmark[1], "sm_90a", "wgmma"),
        (case.benchmark[1], "sm_80", "mma"),
        (case.small[0], "sm_90a", "mma"),
    ):
        kernel = hb.compile(case.scheduled(problem, "tensor", target), target=target)
        used = {s.block.instruction.partition(".")[0] for s in kernel.report.updates if s.block}
        assert used == {unit}


def test_tiles_are_the_models_choice_at_an_images_size() -> None:
    sizes = [Problem.of_image(s, s, 32) for s in (512, 1024, 2048, 4096)]
    for problem in sizes:
        assert problem.tilings.best == pick(problem.shape, machine_for("sm_90a"))
        assert problem.program.endswith(problem.tilings.best.label)
        assert problem.name == f"conv2d-k32-{problem.width}x{problem.height}"
    assert sizes[0].tilings.best.unit == "warp"
    assert sizes[-1].tilings.best.unit == "group"
    assert sizes[-1].tiling("wgmma") == sizes[-1].tilings.best != sizes[-1].tiling("tensor")
    assert space(sizes[-1])[0] == sizes[-1].tilings.best


def test_a_filter_that_warpgroups_do_not_take() -> None:
    rows = find_case("conv1d")
    with pytest.raises(UserError, match="warpgroups have no tiles for conv1d-k8-256x4"):
        rows.build(rows.small[0], "wgmma")


def test_a_case_study_says_what_its_pipeline_reads() -> None:
    """The problem's shape, by which tiles are chosen, is that of its Funcs."""
    for name in ("conv1d", "conv2d", "downsample", "upsample"):
        defined = importlib.import_module(f"casestudies.{name}").defined
        for problem in find_case(name).small:
            assert problem.axis == defined(problem).axis


def schedules() -> Iterator[tuple[Case, Any, Any]]:
    """What large images have on warpgroups: a size that has it, a small size."""
    for case, small in (
        (CASE, [Problem(515, 9, taps) for taps in (16, 32)]),
        (DOWNSAMPLE, [Smaller(257, 33, taps) for taps in (16, 32)]),
        (UPSAMPLE, [Larger(1026, 34, 16), Larger(101, 37, 32)]),
    ):
        for problem in small:
            found: dict[str, Any] = {}
            for size in (1024, 1536, 2048, 3072, 4096, 6144):
                other = replace(problem, width=size, height=size, spare=1)
                if other.tilings.best.unit == "group":
                    found.setdefault(other.program, other)
            yield from ((case, other, problem) for other in found.values())


@pytest.mark.slow
@pytest.mark.nvrtc
@MACHINE_CODE
@INTERPRETED
@pytest.mark.parametrize(
    ("case", "large", "small"), list(schedules()), ids=lambda x: getattr(x, "program", "")
)
def test_numbers_of_tiles_for_large_images(
    case: Case, large: Any, small: Any, verified: Verified
) -> None:
    kernel = hb.compile(case.build(large, "wgmma"), target="sm_90a")
    inputs = (*nvrtc_inputs(kernel), str(kernel.module), repr(small), texts_of_case(case))
    if verified(*inputs):
        return
    assert_right(kernel, case, small, seed=5)
    (usage,) = resource_usage(kernel.cubin()).values()
    assert usage.local_accesses == 0
