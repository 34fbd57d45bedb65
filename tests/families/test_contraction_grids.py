"""Bands of block columns, and tiles that a group which feeds leaves its registers to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("halide")

from emulation import run

import halide_bridge as hb
from casestudies.common.data import case_inputs, decoded, relative_error
from casestudies.gemm import CASE
from casestudies.gemm.algorithm import multiply
from casestudies.gemm.problem import Problem
from casestudies.gemm.schedule import tensor
from selector.families.contraction import Shape, Tiling, estimate, pick, ranked, why_not
from selector.families.contraction.filling import tiles_of
from selector.families.contraction.tiling import neighbours
from selector.machine import machine_for
from selector.runtime.nvrtc import resource_usage
from selector.targets import find_target

pytestmark = pytest.mark.verified

HOPPER, H200 = find_target("sm_90a"), machine_for("sm_90a")
WIDE = Tiling(n=64, m=128, stages=3, band=2, cluster=2, wide=True)
LARGE = Tiling(n=160, m=256, stages=3, persistent=1, cluster=2, wide=True)


def compiled(problem: Problem, tiling: Tiling) -> Any:
    assert not why_not(tiling, problem.shape, HOPPER)
    product = multiply(problem.types, problem.layout, problem.epilogue, batched=problem.batch > 1)
    return hb.compile(tensor(product, tiling), target="sm_90a")


@pytest.mark.gcc
@pytest.mark.parametrize(
    ("problem", "tiling"),
    [
        (Problem(130, 330, 200, "f16-f16"), WIDE),
        (Problem(256, 256, 136, "f16-f32", "tt", "bias-relu"), replace(WIDE, persistent=1)),
        (Problem(300, 200, 130, "f16-f16", "nt"), replace(WIDE, band=4, cluster=1)),
        (Problem(140, 330, 72, "f16-f16", batch=3), WIDE),
        (Problem(300, 330, 136, "f16-f16"), LARGE),
    ],
    ids=lambda x: getattr(x, "label", getattr(x, "name", None)),
)
def test_bands_of_columns_are_right(problem: Problem, tiling: Tiling) -> None:
    """And what neighbours bring each other is A."""
    kernel = compiled(problem, tiling)
    inputs = case_inputs(CASE, problem, 3, np)
    truth = CASE.reference(problem, decoded(problem, inputs, np), np)
    result = kernel.interpret(**inputs, sizes=problem.output.shape)
    assert relative_error(result, truth, np) <= CASE.tolerance[problem.output.element]
    emulated = run(kernel, **inputs, sizes=problem.output.shape)
    assert relative_error(emulated, truth, np) <= CASE.tolerance[problem.output.element]
    lines = kernel.plan.source.split('extern "C"')[1].splitlines()
    shared = {"map_A": False, "map_B": False}
    for line in lines:
        for name in shared:
            shared[name] |= name in line and "tensor_share" in line
    assert shared == {"map_A": tiling.cluster > 1, "map_B": False}


@pytest.mark.nvrtc
@pytest.mark.parametrize(
    "tiling", [LARGE, replace(LARGE, n=192), replace(LARGE, n=176, persistent=0, stages=4)]
)
def test_who_feeds_leaves_registers_to_large_tiles(tiling: Tiling) -> None:
    kernel = compiled(Problem(1024, 1024, 1024, "f16-f16"), tiling)
    assert "more_registers<232>" in kernel.plan.source
    assert not any(u.local_accesses for u in resource_usage(kernel.cubin()).values())


def test_an_instruction_has_to_fit_into_the_equal_share() -> None:
    """The assembler does not know what is given later."""
    square = Shape(2048, 2048, 2048)
    assert "its block leaves it 128" in why_not(
        Tiling(n=224, m=192, parts_m=3, stages=2), square, HOPPER
    )
    assert not why_not(Tiling(n=192, m=192, parts_m=3, stages=3), square, HOPPER)


def test_columns_are_numbered_in_bands() -> None:
    assert "in bands" in why_not(replace(WIDE, band=0), Shape(1024, 1024, 1024), HOPPER)


def test_bands_of_columns_are_bands_of_rows_of_the_transposed_product() -> None:
    lying, upright = Shape(3000, 5000, 1024), Shape(5000, 3000, 1024)
    rows, columns = Tiling(band=6), Tiling(n=128, m=256, band=6, wide=True)
    assert tiles_of(columns, lying) == tiles_of(rows, upright)[::-1]
    for count in (16, 132, 264):
        assert neighbours(columns, count, 20, 24) == neighbours(rows, count, 24, 20)[::-1]
    assert (rows.shared, columns.shared, replace(rows, band=0).shared) == ("B", "A", "A")


@pytest.mark.parametrize(("size", "most"), [(5000, 412), (2304, 44)])
def test_products_that_large_tiles_are_for(size: int, most: float) -> None:
    """One H200, 2026-11-30: 128 x 256 takes 440 and 58 us, 256 x 160 and 256 x 176 take 391, 40."""
    shape = Shape(size, size, size, along_a=False, along_b=True)
    found = pick(shape, H200)
    assert found.m * found.n > 128 * 256
    assert estimate(found, shape, H200).microseconds < most
    assert any(t.wide for _, t in ranked(shape, H200))
