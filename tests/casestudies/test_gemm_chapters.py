"""The GEMMs of NVDSL's chapters: right at their sizes and at ragged ones, and the instructions
they are about.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb
from casestudies.common.data import case_inputs, decoded, relative_error
from casestudies.gemm import CASE
from casestudies.gemm.algorithm import multiply
from casestudies.gemm.chapters import CHAPTERS
from casestudies.gemm.problem import Problem
from casestudies.gemm.schedule import tensor
from casestudies.gemm.tiles import WARPS
from selector.diagnostics import ScheduleError
from selector.families.contraction import Tiling
from selector.ir.parser import parse_module
from selector.runtime.nvrtc import resource_usage, sass

pytestmark = pytest.mark.verified


@cache
def compiled(chapter: str) -> Any:
    return hb.compile(tensor(multiply("f16-f32"), CHAPTERS[chapter]), target="sm_90a")


@pytest.mark.parametrize("chapter", CHAPTERS)
@pytest.mark.parametrize("size", [(128, 128, 64), (256, 384, 512), (129, 127, 65), (1, 1, 1)])
def test_results(chapter: str, size: tuple[int, int, int]) -> None:
    problem = Problem(*size)
    inputs = case_inputs(CASE, problem, 5, np)
    result = compiled(chapter).interpret(**inputs, sizes=problem.output.shape)
    truth = CASE.reference(problem, decoded(problem, inputs, np), np)
    assert relative_error(result, truth, np) < 1e-6
    np.testing.assert_allclose(result, truth, rtol=1e-3, atol=1e-3)  # as the paper's listing does


@pytest.mark.nvrtc
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_machine_code(chapter: str) -> None:
    """Two rows of four wgmma, nobody waiting for them but the loop; three boxes of operands, asked
    for ahead of the loop and in it."""
    kernel = compiled(chapter)
    (text,) = sass(kernel.cubin()).values()
    (usage,) = resource_usage(kernel.cubin()).values()
    assert not usage.local_accesses
    names = ("HGMMA", "UTMALDG", "WARPGROUP.ARRIVE", "WARPGROUP.DEPBAR")
    assert [len(re.findall(rf"\b{re.escape(n)}\b", text)) for n in names] == [8, 6, 1, 2]
    assert "HGMMA.64x128x16" in text
    (launch,) = kernel.plan.launches
    assert launch.threads == (256 if chapter == "warp-specialized" else 128)


@pytest.mark.nvrtc
@pytest.mark.parametrize(
    ("types", "size"),
    [
        ("f16-f16", {"stages": 2}),  # instructions are waited for at once
        ("bf16-f32", {"parts_m": 2, "n": 256}),
        ("f16-f32", {"copied": "AB"}),
    ],
)
def test_other_kernels_that_feed_themselves(types: str, size: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"n": 128, "m": 128, "parts_m": 1, "stages": 3}
    groups = Tiling(**(usual | size), self_fed=True)
    kernel = hb.compile(tensor(multiply(types), groups), target="sm_90a")
    assert not any(u.local_accesses for u in resource_usage(kernel.cubin()).values())
    problem = Problem(129, 127, 200, types)
    inputs = case_inputs(CASE, problem, 6, np)
    result = kernel.interpret(**inputs, sizes=problem.output.shape)
    truth = CASE.reference(problem, decoded(problem, inputs, np), np)
    assert relative_error(result, truth, np) <= CASE.tolerance[problem.output.element]


def test_the_directive_is_part_of_the_program() -> None:
    module = hb.lower(tensor(multiply("f16-f32"), CHAPTERS["multistage"]), target="sm_90a")
    assert "\nself_fed C: 1\n" in str(module)
    assert parse_module(str(module)) == module


@pytest.mark.parametrize("other", [{"cluster": 2}, {"persistent": 1}])
def test_what_needs_a_group_of_its_own(other: dict[str, Any]) -> None:
    groups = Tiling(n=128, m=128, parts_m=1, stages=3, self_fed=True, **other)
    with pytest.raises(ScheduleError, match=r"cannot (feed itself|be persistent)"):
        hb.compile(tensor(multiply("f16-f32"), groups), target="sm_90a")


def plain() -> hl.Func:
    x, xi, out = hl.Var("x"), hl.Var("xi"), hl.Func("out")
    out[x] = hl.cast(hl.Float(32), x)
    return out.gpu_tile(x, xi, 64)


def unstaged_warps() -> hl.Func:
    return tensor(multiply("f16-f32"), replace(WARPS, stages=1))


def unstaged_groups() -> hl.Func:
    return tensor(multiply("f16-f32"), Tiling(n=128, m=128, parts_m=1, stages=1))


@pytest.mark.parametrize("build", [plain, unstaged_warps, unstaged_groups])
def test_there_has_to_be_something_to_feed(build: Callable[[], hl.Func]) -> None:
    hb.compile(build(), target="sm_90a", cache=False)
    with pytest.raises(ScheduleError, match="cannot feed itself") as caught:
        hb.compile(hb.self_fed(build()), target="sm_90a")
    assert "stages operands" in caught.value.why
    assert "pipeline_stages" in caught.value.hint
