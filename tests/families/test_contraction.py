"""The space of contractions: what it calls valid compiles and does not spill, each constraint has a
case, the choice is right, quick and always the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("halide")

from clock import assert_quick
from emulation import run

import halide_bridge as hb
from casestudies.common.data import case_inputs, decoded, relative_error
from casestudies.gemm import CASE
from casestudies.gemm.algorithm import multiply
from casestudies.gemm.problem import LAYOUTS, Problem
from casestudies.gemm.schedule import tensor
from casestudies.gemm.tiles import groups_for
from selector.diagnostics import UserError
from selector.families.contraction import (
    Shape,
    Tiling,
    choice,
    estimate,
    pick,
    ranked,
    space,
    usual,
    why_not,
)
from selector.families.contraction.cost import least, resident
from selector.families.contraction.limits import shared_bytes
from selector.families.contraction.space import band_at_once, copies, finished, tiles
from selector.machine import MACHINES, machine_for
from selector.runtime.nvrtc import resource_usage
from selector.targets import find_target

pytestmark = pytest.mark.verified

HOPPER = find_target("sm_90a")
H200 = machine_for("sm_90a")
ROUNDING = 1e-9  # of sums of the same times in another order
EXTENTS = st.one_of(st.integers(1, 300), st.integers(1, 1100).map(lambda x: 8 * x))
SHAPES = st.builds(
    Problem, EXTENTS, EXTENTS, EXTENTS, st.sampled_from(("f16-f16", "f16-f32", "s8-s32")),
    st.sampled_from(LAYOUTS), batch=st.sampled_from((1, 1, 3, 100)),
)  # fmt: skip


def compiled(problem: Problem, tiling: Tiling, target: str = "sm_90a") -> Any:
    batched = problem.batch > 1
    product = multiply(problem.types, problem.layout, problem.epilogue, batched=batched)
    return hb.compile(tensor(product, tiling), target=target)


def has_room(kernel: Any, problem: Problem, tiling: Tiling) -> None:
    """Shared memory is what the model says, and no accumulator or operand spills: where bytes are
    gathered one by one, or elements of rows that begin at no word, the compiler puts a few numbers
    of the loop away rather than take more registers.
    """
    usages = resource_usage(kernel.cubin())
    size = 1 if problem.types.startswith("s8") else 2
    words = all(n * size % 4 == 0 for n in (problem.m, problem.n, problem.k))
    gathers = bool({*problem.shape.across} - {*tiling.copied}) or not words
    gathers = gathers and tiling.unit == "warp"
    assert all(u.local_accesses <= 8 * gathers for u in usages.values()), tiling.label
    foretold = shared_bytes(tiling, problem.shape)
    launch = kernel.plan.launches[-2 if tiling.part else -1]
    if tiling.persistent:
        assert foretold <= launch.shared_bytes <= HOPPER.shared_memory
    else:
        assert launch.shared_bytes == foretold, tiling.label


@pytest.mark.nvrtc
@settings(max_examples=12, deadline=None)
@given(SHAPES, st.integers(0, 10_000))
def test_what_the_space_holds_compiles(problem: Problem, index: int) -> None:
    found = list(space(problem.shape, H200))
    tiling = found[index % len(found)]
    has_room(compiled(problem, tiling), problem, tiling)


FLAT = Problem(25088, 64, 256, "f16-f16", "nt", "bias-relu")
TALL = Problem(65536, 64, 64, "f16-f16")
SMALL = Problem(64, 64, 64, "f16-f16", batch=1024)
BLOCK = Tiling(n=64, m=64, parts_m=1, stages=2, band=1)


@pytest.mark.nvrtc
@pytest.mark.parametrize(
    ("problem", "tiling"),
    [
        (FLAT, replace(BLOCK, k=128)),
        (FLAT, replace(BLOCK, m=192, parts_m=3)),
        (TALL, replace(BLOCK, m=128, parts_m=2, stages=3, persistent=2)),
        (FLAT, replace(BLOCK, m=128, stages=3, persistent=2)),
        (FLAT, replace(BLOCK, m=128, n=96, parts_m=2, persistent=2)),
        (SMALL, BLOCK),
        (SMALL, replace(BLOCK, stages=5, persistent=2)),
    ],
    ids=lambda x: getattr(x, "label", None),
)
def test_a_multiprocessor_holds_as_many_blocks_as_foretold(
    problem: Problem, tiling: Tiling
) -> None:
    """As many as the compiler's registers let it hold, where they decide."""
    (usage,) = resource_usage(compiled(problem, tiling).cubin()).values()
    assert not usage.local_accesses
    assert HOPPER.multiprocessor is not None
    registers = HOPPER.multiprocessor.registers // (-(-usage.registers // 8) * 8 * tiling.threads)
    assert resident(tiling, problem.shape, HOPPER) == registers


def test_blocks_that_stay_multiply_and_store_in_turn() -> None:
    """One group has nothing to hide its stores behind, two blocks have each other."""
    one = replace(BLOCK, stages=12, persistent=1)
    two = replace(BLOCK, stages=5, persistent=2)
    shape = Shape(25088, 256, 64, along_b=True)
    assert estimate(two, shape, H200).microseconds < 0.9 * estimate(one, shape, H200).microseconds


ONE_WAVE = Shape(2000, 1000, 2048, along_b=True)
SQUARE_TILE = Tiling(n=128, m=128, stages=7)


def test_neighbours_that_run_at_once_share_rows_without_a_cluster() -> None:
    """4 x 4 tiles of 16 blocks have 8 tiles' rows, 16 x 1 have 17; clusters gain nothing then."""
    square = estimate(replace(SQUARE_TILE, band=4), ONE_WAVE, H200)
    column = estimate(replace(SQUARE_TILE, band=16), ONE_WAVE, H200)
    pair = estimate(replace(SQUARE_TILE, band=4, cluster=2), ONE_WAVE, H200)
    assert square.cache < pair.cache < 1.4 * column.cache
    assert square.cache < 0.75 * column.cache
    assert square.microseconds < pair.microseconds


def test_blocks_that_stay_share_rows_in_a_cluster_only() -> None:
    shape, stays = Shape(4096, 4096, 4096), replace(SQUARE_TILE, persistent=1)
    alone, pair = (estimate(replace(stays, cluster=c), shape, H200).cache for c in (1, 2))
    assert pair < 0.9 * alone


def test_the_copy_engine_makes_zeros_slowly() -> None:
    """Of the last tiles: 96 rows of 128 lie beyond 1568, of 64 only 32; none does at 1536."""
    tall, low = (Tiling(64, 128, stages=9, band=1), Tiling(128, 64, parts_m=1, stages=9, band=1))
    for rows, most in ((1536, 1.05), (1568, 0.9)):
        shape = Shape(rows, 512, 2048, along_b=True)
        ratio = estimate(low, shape, H200).microseconds / estimate(tall, shape, H200).microseconds
        assert ratio < most
        assert (ratio > 0.95) == (rows == 1536)


@pytest.mark.parametrize(
    ("tiles_m", "tiles_n", "m", "n", "band"),
    [
        (16, 8, 128, 128, 4),  # 4 x 4
        (13, 8, 128, 64, 1),  # 2 x 8, and no row of tiles too many
        (8, 16, 64, 160, 8),  # 8 x 2
        (3, 40, 64, 64, 3),  # all of them
    ],
)
def test_bands_of_blocks_that_run_at_once(
    tiles_m: int, tiles_n: int, m: int, n: int, band: int
) -> None:
    assert band_at_once(tiles_m, tiles_n, m, n) == band


def test_warps_turn_bytes_slowly() -> None:
    """85.2 microseconds, where 23.6 suffice with a copy of B ahead (H100, 2048^3)."""
    across = Shape(2048, 2048, 2048, 1, 4, True, False)
    tiling = Tiling(128, 128, 128, 2, 4, 3, "warp", band=0)
    assert estimate(tiling, across, H200).multiplying > 60
    assert estimate(tiling, replace(across, along_b=True), H200).multiplying < 20
    assert pick(across, H200).copied == "B"


@pytest.mark.nvrtc
@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_120"])
@pytest.mark.parametrize("index", [0, 7, 40])
def test_spaces_of_other_targets_compile(target: str, index: int) -> None:
    problem = Problem(200, 264, 136, "f16-f16")
    found = list(space(problem.shape, machine_for(target)))
    tiling = found[index % len(found)]
    assert tiling.unit == "warp"
    kernel = compiled(problem, tiling, target)
    usages = resource_usage(kernel.cubin())
    assert not any(u.local_accesses for u in usages.values())


SQUARE = Shape(1024, 1024, 1024, 2, 2, True, True)
BYTES = Shape(1024, 1024, 1024, 1, 4, True, True)
ACROSS = Shape(1024, 1024, 1024, 1, 4, True, False)
NARROW = Shape(1024, 1024, 1024, 2, 2, True, False)
GROUP = Tiling(n=128, m=128, parts_m=2, stages=4)
WARP = Tiling(n=64, m=64, parts_n=2, parts_m=2, unit="warp", band=0)
DEEP = replace(GROUP, k=128, depth=32)

REFUSED = (
    (replace(GROUP, n=120, parts_n=7), SQUARE, "do not divide the tile"),
    (replace(GROUP, m=96), SQUARE, "no multiple of 64 x 8"),
    (replace(GROUP, n=100), SQUARE, "no multiple of 64 x 8"),
    (replace(WARP, m=24), SQUARE, "no multiple of 16 x 8"),
    (replace(GROUP, k=24), SQUARE, "no multiple of 16"),
    (replace(GROUP, stages=17), SQUARE, "1 to 16 stages"),
    (replace(WARP, cluster=2, band=8), SQUARE, "neither stay nor form clusters"),
    (replace(WARP, persistent=1), SQUARE, "neither stay nor form clusters"),
    (replace(WARP, n=48, parts_n=3, self_fed=True), NARROW, "does not bring these operands"),
    (replace(WARP, k=128, depth=32, self_fed=True), ACROSS, "does not bring these operands"),
    (replace(DEEP, m=256, k=256, stages=2), BYTES, "more than 65535 elements"),
    (DEEP, ACROSS, "along the sum only"),
    (replace(DEEP, copied="B"), replace(ACROSS, batch=3), "not turned by a copy"),
    (replace(GROUP, stages=1, persistent=1), SQUARE, "nothing is staged ahead"),
    (replace(GROUP, teams=2), SQUARE, "teams take turns"),
    (replace(GROUP, self_fed=True, cluster=2), SQUARE, "have a group that feeds"),
    (replace(GROUP, n=80, cluster=4), SQUARE, "nothing to share"),
    (
        replace(GROUP, m=80, n=64, parts_m=1, parts_n=1, swapped=True, cluster=4, band=0),
        SQUARE,
        "nothing to share",
    ),
    (replace(WARP, n=256, m=256, parts_n=8, parts_m=8), SQUARE, "2048 threads"),
    (replace(GROUP, n=256, m=192, parts_m=3, stages=2), SQUARE, "its block leaves it 128"),
    (replace(GROUP, stages=8), SQUARE, "bytes of shared memory"),
    (replace(GROUP, stages=2, persistent=2), SQUARE, "which blocks beside its own leave 80"),
    (replace(WARP, n=128, m=128, parts_m=4), replace(BYTES, along_a=False), "turn bytes of A"),
    (replace(GROUP, part=96), SQUARE, "no multiple of a run"),
    (replace(GROUP, part=512, persistent=1), SQUARE, "of their own"),
    (replace(GROUP, adders=2), SQUARE, "nothing is added"),
    (replace(GROUP, part=64, adders=64), SQUARE, "2048 threads add"),
)


@pytest.mark.parametrize(("tiling", "shape", "why"), REFUSED)
def test_each_constraint(tiling: Tiling, shape: Shape, why: str) -> None:
    assert why in why_not(tiling, shape, HOPPER)
    for known, kind in ((GROUP, SQUARE), (WARP, SQUARE), (DEEP, BYTES)):
        assert not why_not(known, kind, HOPPER)


def refused_by_the_compiler(tiling: Tiling, shape: Shape) -> bool:
    layout = ("n" if shape.along_a else "t") + ("t" if shape.along_b else "n")
    types = "s8-s32" if shape.integers else "f16-f16"
    try:
        problem = Problem(shape.m, shape.n, shape.k, types, layout, batch=shape.batch)
        compiled(problem, tiling).cubin()
    except UserError:
        return True
    return False


@pytest.mark.nvrtc
@pytest.mark.parametrize(
    ("tiling", "shape"),
    [
        (t, s)
        for t, s, why in REFUSED
        if all(
            x not in why
            for x in ("neither stay", "do not divide", "of their own", " add", "turn", "beside")
        )
    ],
)
def test_what_is_refused_does_not_compile(tiling: Tiling, shape: Shape) -> None:
    """The constraints are those of the compiler, and no others."""
    assert refused_by_the_compiler(tiling, shape)


def test_a_target_without_the_instructions() -> None:
    assert "no such instructions" in why_not(GROUP, SQUARE, find_target("sm_80"))
    assert not why_not(WARP, SQUARE, find_target("sm_80"))
    fed = replace(WARP, self_fed=True)
    assert "copy engine" in why_not(fed, SQUARE, find_target("sm_80"))


@settings(max_examples=40, deadline=None)
@given(SHAPES)
def test_the_choice_is_quick_and_always_the_same(problem: Problem) -> None:
    shape, found = problem.shape, set[Tiling]()

    def choose() -> None:
        choice._best.cache_clear()  # pyright: ignore[reportPrivateUsage]
        found.add(pick(shape, H200))

    choose()
    assert_quick(choose, 0.02)
    (chosen,) = found
    assert not why_not(chosen, shape, HOPPER)


@settings(max_examples=60, deadline=None)
@given(SHAPES, st.sampled_from(MACHINES))
def test_the_choice_is_the_best_of_the_space(problem: Problem, machine: Any) -> None:
    shape = problem.shape
    best = ranked(shape, machine)[0][0]
    assert estimate(choice.best(shape, machine), shape, machine).microseconds <= best * (
        1 + ROUNDING
    )


@pytest.mark.parametrize(
    "shape",
    [  # whose best tile is only the best with another ring, run or grid than its plainest
        Shape(128, 205, 217, 2, 4, True, True, batch=100),
        Shape(33, 8512, 277, 2, 4, False, True),
        Shape(57, 2048, 258, 2, 2, False, True, batch=12),
        Shape(256, 2360, 1024, 1, 4, True, True, batch=3),
    ],
)
def test_the_choice_is_not_decided_by_plain_schedules(shape: Shape) -> None:
    best = ranked(shape, H200)[0][0]
    assert estimate(choice.best(shape, H200), shape, H200).microseconds <= best * (1 + ROUNDING)


@pytest.mark.parametrize(
    "shape",
    [  # of 6,000 drawn shapes, those that took longest: parts of sums, operands to copy
        Shape(5424, 928, 1192, 1, 1, True, False),
        Shape(4760, 291, 4426, 1, 1, True, True, batch=3),
        Shape(223, 202, 7792, 2, 4, False, True),
        Shape(175, 2296, 2296, 1, 4, True, False),
        Shape(126, 149, 2504, 2, 2, True, False, batch=3),
    ],
)
def test_the_choice_is_quick_where_the_space_is_largest(shape: Shape) -> None:
    def choose() -> None:
        choice._best.cache_clear()  # pyright: ignore[reportPrivateUsage]
        pick(shape, H200)

    assert_quick(choose, 0.02)


@settings(max_examples=10, deadline=None)
@given(SHAPES, st.sampled_from(MACHINES))
def test_no_schedule_takes_less_than_the_least(problem: Problem, machine: Any) -> None:
    shape = problem.shape
    for tile in tiles(shape, machine):
        for copied in copies(tile, shape):
            bound = least(tile, copied, shape, machine)
            for tiling in finished(tile, copied, shape, machine):
                found = estimate(tiling, shape, machine).microseconds
                assert found >= bound * (1 - ROUNDING), tiling.label


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
@pytest.mark.parametrize(
    "shape",
    [
        Shape(27, 4808, 1, 1, 4, True, False, batch=100),  # bytes that no group reads
        Shape(2, 2174, 488, batch=5000),  # too narrow for large tiles
        Shape(79, 4, 35, 2, 4, False, False, batch=5000),
    ],
)
def test_many_narrow_products_have_a_choice(shape: Shape, machine: Any) -> None:
    assert not why_not(pick(shape, machine), shape, find_target(machine.target))


@settings(max_examples=8, deadline=None)
@given(SHAPES.filter(lambda p: p.multiply_adds <= 1 << 22))
def test_the_choice_is_right(problem: Problem) -> None:
    kernel = compiled(problem, pick(problem.shape, H200))
    inputs = case_inputs(CASE, problem, 3, np)
    result = kernel.interpret(**inputs, sizes=problem.output.shape)
    truth = CASE.reference(problem, decoded(problem, inputs, np), np)
    assert relative_error(result, truth, np) <= CASE.tolerance[problem.output.element]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
def test_every_gpu_has_a_choice(machine: Any) -> None:
    for size in (1, 100, 1024, 8192):
        shape = Shape(size, size, size)
        found = estimate(pick(shape, machine), shape, machine)
        macs = machine.tera_macs("wgmma.f16") or machine.tera_macs("mma.f16")
        least = max(shape.multiply_adds / macs / 1e6, 3 * size * size * 2 / machine.copy / 1e6)
        assert least <= found.microseconds < 40 * least + 20
        assert found.bound in ("memory", "cache", "filling", "multiplying", "storing", "waiting")


def test_swapped_operands_are_right() -> None:
    for unit, tile in (("group", {"n": 64, "m": 24}), ("warp", {"n": 64, "m": 8, "parts_n": 2})):
        usual = GROUP if unit == "group" else WARP
        tiling = replace(usual, **({"parts_n": 1} | tile), parts_m=1, swapped=True)
        problem = Problem(19, 130, 100, "f16-f16", "nt")
        assert not why_not(tiling, problem.shape, HOPPER)
        kernel = compiled(problem, tiling)
        inputs = case_inputs(CASE, problem, 3, np)
        result = kernel.interpret(**inputs, sizes=problem.output.shape)
        truth = CASE.reference(problem, decoded(problem, inputs, np), np)
        assert relative_error(result, truth, np) <= CASE.tolerance["f16"]


PARTED = (
    (Problem(100, 136, 1000, "f16-f16"), replace(GROUP, n=64, m=64, parts_m=1, part=256)),
    (Problem(70, 130, 301, "f16-f32", "tt", "bias-relu"), replace(GROUP, part=64)),
    (Problem(70, 72, 301, "s8-s8", "nt", "scale"), replace(DEEP, part=128)),
    (Problem(70, 65, 300, "f16-f16", "nt", batch=3), replace(WARP, part=128)),
    (Problem(260, 72, 330, "f16-f16"), replace(GROUP, part=192, cluster=2, band=2)),
    (Problem(150, 72, 300, "f16-f16", batch=3), replace(GROUP, n=64, m=64, parts_m=1, part=64)),
    (Problem(37, 70, 1090, "f16-f16"), replace(GROUP, n=32, m=64, parts_m=1, part=64, adders=32)),
    (Problem(70, 40, 301, "s8-s32", "nt"), replace(DEEP, part=128, adders=2)),
    (Problem(70, 40, 700, "f16-f32", batch=3), replace(WARP, part=64, adders=4)),
)


@pytest.mark.parametrize(("problem", "tiling"), PARTED, ids=lambda x: getattr(x, "name", None))
def test_sums_in_parts_are_right(problem: Problem, tiling: Tiling) -> None:
    """And the same in every run; the last part ends with the sum."""
    assert not why_not(tiling, problem.shape, HOPPER)
    kernel = compiled(problem, tiling)
    inputs = case_inputs(CASE, problem, 3, np)
    result = kernel.interpret(**inputs, sizes=problem.output.shape)
    truth = CASE.reference(problem, decoded(problem, inputs, np), np)
    assert relative_error(result, truth, np) <= CASE.tolerance[problem.output.element]
    emulated = run(kernel, **inputs, sizes=problem.output.shape)
    assert relative_error(emulated, truth, np) <= CASE.tolerance[problem.output.element]


@pytest.mark.parametrize(("k", "run"), [(9, 16), (16, 16), (30, 32), (33, 64)])
def test_the_run_of_a_short_sum_is_no_longer(k: int, run: int) -> None:
    runs = {t.k for t in space(Shape(1000, 1000, k), H200)}
    assert runs == {run}


def test_rings_of_blocks_that_stay_go_on() -> None:
    """Their next tile is on its way while the last one is multiplied."""
    found = [t for t in space(Shape(64, 64, 64, batch=1024), H200) if t.persistent]
    assert max(t.stages for t in found) > 2
    assert {t.persistent for t in found} == {1, 2}
    problem, tiling = Problem(70, 60, 40, "f16-f16", batch=9), replace(GROUP, n=64, m=64, parts_m=1)
    kernel = compiled(problem, replace(tiling, stages=5, band=1, persistent=2))
    inputs = case_inputs(CASE, problem, 3, np)
    truth = CASE.reference(problem, decoded(problem, inputs, np), np)
    emulated = run(kernel, **inputs, sizes=problem.output.shape)
    assert relative_error(emulated, truth, np) <= CASE.tolerance["f16"]


def test_many_parts_are_added_by_several_threads() -> None:
    few, many = Shape(512, 512, 16384), Shape(32, 32, 1 << 18)
    assert {t.adders for t in space(few, H200) if t.part} == {1}
    assert {t.adders for t in space(many, H200) if t.part} == {1, 8, 16, 32}


def test_bytes_across_the_sum_are_copied_for_the_same_schedule() -> None:
    lying, across = Problem(64, 4096, 4096, "s8-s32", "nt"), Problem(64, 4096, 4096, "s8-s32")
    assert groups_for(across.shape) == replace(groups_for(lying.shape), copied="B")
    assert groups_for(lying.shape) == pick(lying.shape, H200)


def test_where_the_model_promises_little_the_usual_tiling_is_picked() -> None:
    square, skinny = Shape(2048, 2048, 2048), Shape(8, 4096, 4096)
    assert pick(square, H200) == usual(square, H200) != choice.best(square, H200)
    assert pick(skinny, H200) == choice.best(skinny, H200)
    older = machine_for("sm_80")
    assert pick(square, older) == choice.best(square, older)


@pytest.mark.parametrize(
    ("m", "n", "k", "operations", "alone"),
    [
        (1576, 3072, 768, 27, 2),
        (6272, 1536, 384, 27, 1),
        (1576, 3072, 768, 7, 2),
        (12544, 768, 192, 7, 1),
    ],
)
def test_much_that_becomes_of_sums_is_shared_by_groups(
    m: int, n: int, k: int, operations: int, alone: int
) -> None:
    """With one group those took 19 to 58 % longer on an H200; a store ``alone`` has tiles for one,
    unless wider ones take fewer rounds.
    """
    shape = Shape(m, n, k, result_bytes=4, along_b=True, reads=True)
    machine = machine_for("sm_90a", "H200")
    assert pick(shape, machine).parts == alone
    assert pick(replace(shape, operations=operations), machine).parts > 1
