"""Attention of few queries: blocks have parts of the keys, and another kernel joins them; heads
that share keys are rows of one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("halide")

import halide_bridge as hb
from casestudies.attention import CASE
from casestudies.attention.algorithm import attend
from casestudies.attention.problem import Problem
from casestudies.common.data import case_inputs, decoded, relative_error
from halide_bridge.schedules import schedule_attention
from selector.families.attention import (
    Shape,
    Tiling,
    estimate,
    pick,
    ranked,
    space,
    together,
)
from selector.gpu.codegen.program import emit_kernels
from selector.machine import machine_for
from selector.simulate import simulate
from selector.targets import find_target

pytestmark = pytest.mark.verified

H200 = machine_for("sm_90a")


def kernel(depth: int, keys: int, part: int, types: str = "f16-f16") -> hb.Kernel:
    tiling = Tiling(1, 64, keys, 2, 64, groups=True, channels=16, part=part)
    p = attend(depth, run=keys, types=types, part=part)
    return hb.compile(schedule_attention(p, tiling), target="sm_90a")


@pytest.mark.parametrize("flags", [True, False], ids=["maps", "no-maps"])
@pytest.mark.parametrize(
    ("problem", "part"),
    [
        (Problem(8, 1, 64, types="f16-f16", sharing=4, keys=1030), 128),  # nine parts
        (Problem(1, 70, 48, types="f16-f16", keys=257), 128),  # the last of one key, two tiles
        (Problem(2, 3, 64, types="f16-f16", keys=40), 128),  # less than a run
    ],
)
def test_parts_are_joined(problem: Problem, part: int, flags: bool) -> None:
    """Every fault that the simulator knows is reported."""
    found = kernel(problem.depth, 64, part)
    kernels, plan = emit_kernels(found.module, find_target("sm_90a"))
    inputs = case_inputs(CASE, problem, 3, np)
    result = simulate(kernels, plan, dict(inputs), problem.output.shape, flags=flags)
    assert result.faults == ()
    truth = CASE.reference(problem, decoded(problem, inputs, np), np)
    (output,) = result.outputs.values()
    assert relative_error(output, truth, np) < 5e-4


def test_rows_keep_their_numbers_in_registers() -> None:
    source = kernel(64, 64, 128).source
    assert "float peak[2];" in source
    assert "float total[2];" in source
    assert "float* const peak" not in source


def test_parts_of_very_different_sizes() -> None:
    """A part whose scores are far below the others' counts for nothing, and does no harm."""
    problem = Problem(1, 2, 64, types="f16-f16", keys=300)
    inputs = case_inputs(CASE, problem, 5, np)
    inputs["Q"][:] = 1
    inputs["K"][:, :128] = -60
    inputs["K"][:, 128:] = 60
    truth = CASE.reference(problem, decoded(problem, inputs, np), np)
    result = kernel(64, 64, 128).interpret(**inputs, sizes=problem.output.shape)
    assert relative_error(result, truth, np) < 1e-3


def test_parts_are_for_few_tiles() -> None:
    few, many = Shape(8, 4, 8192, 128), Shape(8, 4096, 8192, 128)
    found = pick(few, H200)
    assert found is not None
    assert found.parts(few.keys) * few.heads <= H200.multiprocessors
    assert found.part
    assert not any(t.part for t in space(many, H200))
    assert not any(t.part for t in space(Shape(1, 64, 64, 64), H200))  # two runs of keys at least
    assert not any(t.part for t in space(Shape(1, 640, 640, 64, causal=True), H200))


def test_parts_cost_less_where_there_are_few_tiles() -> None:
    few = Shape(8, 4, 65536, 128)
    tiling = Tiling(1, 64, 128, 3, 64, groups=True)
    whole = estimate(tiling, few, H200).microseconds
    parts = estimate(Tiling(1, 64, 128, 3, 64, groups=True, part=4096), few, H200)
    assert parts.microseconds < whole / 4
    assert parts.bound == "memory"


def test_heads_that_share_keys_are_rows() -> None:
    problem = Problem(8, 3, 64, types="f16-f16", sharing=4, keys=200)
    assert problem.shape == Shape(2, 12, 200, 64)
    assert Problem(8, 200, 64, causal=True, sharing=4).shape.heads == 8
    inputs = case_inputs(CASE, problem, 1, np)
    truth = CASE.reference(problem, decoded(problem, inputs, np), np)
    q = decoded(problem, inputs, np)["Q"].reshape(8, 3, 64)
    for head, own in enumerate(truth.reshape(8, 3, 64)):
        k, v = (inputs[name][head // 4].astype(float) for name in "KV")
        weights = np.exp(q[head] @ k.T / 8)
        assert np.allclose(own, weights @ v / weights.sum(1, keepdims=True))


def test_heads_that_share_keys_are_rows_where_that_is_worth_it() -> None:
    few, many = Shape(32, 1, 8192, 128), Shape(32, 4096, 4096, 128)
    (found,) = together(few, 4, H200)
    rows = replace(few, heads=8, queries=4)
    assert found.sharing == 4
    assert found.parts(few.keys) * rows.heads <= H200.multiprocessors
    assert estimate(found, rows, H200).microseconds < ranked(few, H200)[0][0]
    assert not together(many, 4, H200)
    (whole,) = together(Shape(512, 1, 32768, 128), 4, H200)  # as many tiles as multiprocessors
    assert whole.parts(32768) == 1
