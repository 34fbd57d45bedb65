"""The space of attention: what it holds compiles and does not spill, and gives the numbers; the
choice is quick and always the same.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from clock import assert_quick
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

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
    for_warps,
    pick,
    ranked,
    space,
    usual,
)
from selector.families.attention.space import registers_left, registers_needed
from selector.machine import machine_for
from selector.runtime.nvrtc import resource_usage
from selector.targets import find_target

pytestmark = pytest.mark.verified

HOPPER, H200 = find_target("sm_90a"), machine_for("sm_90a")
DEPTHS = st.sampled_from((16, 20, 32, 40, 48, 64, 72, 80, 96, 100, 112, 128, 192, 250, 256))
SHAPES = st.builds(
    Shape, st.integers(1, 200), st.integers(1, 3000), st.integers(1, 3000), DEPTHS, st.booleans(),
    st.just(0), st.integers(0, 1),
)  # fmt: skip
PLAIN = Shape(64, 4096, 4096, 64)


def compiled(shape: Shape, tiling: Tiling) -> hb.Kernel:
    causal, part = shape.causal, tiling.part
    p = attend(shape.depth, causal=causal, run=tiling.keys, types="f16-f16", part=part)
    return hb.compile(schedule_attention(p, tiling), target="sm_90a")


@pytest.mark.nvrtc
@settings(max_examples=6, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(SHAPES, st.integers(0, 10_000))
def test_what_the_space_holds_compiles(shape: Shape, index: int) -> None:
    """Nothing spills, but for copies by threads of a group that has few registers, and shared
    memory is what is said.
    """
    shape = replace(shape, matrices=0)
    found = list(space(shape, H200))
    assert usual(shape) in found
    tiling = found[index % len(found)]
    kernel = compiled(shape, tiling)
    for usage in resource_usage(kernel.cubin()).values():
        most = 2 * tiling.keys if tiling.persistent else 8
        assert usage.local_accesses <= most, tiling.label
    said = tiling.shared_bytes(shape.depth, 0)
    launch = kernel.plan.launches[0]
    assert len(kernel.plan.launches) == 1 + (tiling.part > 0)
    assert launch.shared_bytes <= HOPPER.shared_memory
    if not tiling.persistent:
        assert said <= launch.shared_bytes <= said + 2048, tiling.label


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 3), st.integers(1, 200), DEPTHS, st.booleans(), st.integers(0, 10_000))
def test_what_the_space_holds_is_right(
    heads: int, length: int, depth: int, causal: bool, index: int
) -> None:
    problem = Problem(heads, length, depth, causal, types="f16-f16")
    found = list(space(problem.shape, H200))
    kernel = compiled(problem.shape, found[index % len(found)])
    inputs = case_inputs(CASE, problem, 3, np)
    truth = CASE.reference(problem, decoded(problem, inputs, np), np)
    result = kernel.interpret(**inputs, sizes=problem.output.shape)
    assert relative_error(result, truth, np) < 1e-3


@settings(max_examples=60, deadline=None)
@given(SHAPES)
def test_the_choice_is_the_best_or_the_usual_one(shape: Shape) -> None:
    found = pick(shape, H200)
    times = {tiling: t for t, tiling in ranked(shape, H200)}
    assert found is not None
    assert times[found] <= min(times.values()) / 0.95 + 1e-9
    assert found.heads_first == shape.causal
    assert registers_needed(shape.depth, found.keys) <= registers_left(found.units)


def test_the_choice_is_quick_and_always_the_same() -> None:
    shape = Shape(200, 1777, 1777, 96, causal=True)
    assert ranked(shape, H200) == ranked(shape, H200)
    assert_quick(lambda: ranked(shape, H200), 0.2)


def test_no_choice_without_warpgroups_or_registers() -> None:
    assert pick(PLAIN, machine_for("sm_80")) is None
    assert not list(space(replace(PLAIN, depth=512), H200))


def test_warps_have_what_registers_and_shared_memory_hold() -> None:
    small = machine_for("sm_86")
    assert [t.keys for t in for_warps(PLAIN, machine_for("sm_80"))] == [64, 32]
    assert [t.keys for t in for_warps(replace(PLAIN, depth=256), small)] == []
    assert [t.keys for t in for_warps(replace(PLAIN, depth=200), small)] == [32]
    assert not list(for_warps(replace(PLAIN, depth=512), machine_for("sm_80")))


@pytest.mark.parametrize(
    ("more", "less"),
    [
        (Shape(65, 4096, 4096, 64), PLAIN),
        (Shape(64, 4096, 4096, 128), PLAIN),
        (PLAIN, Shape(64, 4096, 4096, 64, causal=True)),
        (Shape(64, 4096, 4096, 64, causal=True), Shape(64, 4096, 4096, 64, True, window=512)),
        (Shape(133, 64, 64, 64), Shape(132, 64, 64, 64)),
    ],
)
def test_more_work_costs_more(more: Shape, less: Shape) -> None:
    for persistent in (0, 1):
        tiling = Tiling(2, 64, 64, 2, 64, groups=True, persistent=persistent)
        found = [estimate(tiling, shape, H200).microseconds for shape in (more, less)]
        assert found[0] >= found[1]
        assert found[0] > found[1] or more.heads * 16 < 132 * 20


def test_what_bounds_a_schedule_is_said() -> None:
    tiling = usual(PLAIN)
    assert estimate(tiling, PLAIN, H200).bound == "weights"
    assert estimate(tiling, replace(PLAIN, depth=128), H200).bound == "products"
    assert estimate(tiling, replace(PLAIN, queries=64, keys=64), H200).bound == "between"


@pytest.mark.parametrize("blocks", [(128, 128), (64, 192), (96, 64), (128, 100), (0, 0)])
def test_tiles_are_parts_of_a_masks_blocks_where_they_can_be(blocks: tuple[int, int]) -> None:
    every = [t for t in space(PLAIN, H200) if not t.part]
    fits = [t for t in every if blocks[0] % t.keys == blocks[1] % t.block == 0]
    found = [t for t in space(replace(PLAIN, blocks=blocks), H200) if not t.part]
    assert found == (fits or every)
    assert bool(fits) is (blocks[1] != 100)
