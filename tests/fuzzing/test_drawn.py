"""What is drawn: directives by hand and those of the compiler's own schedules, rows that lie apart,
single floats on warpgroups. All is right, and it is seen to be what it is said to be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from fuzzing import plain, reference, resampled
from fuzzing.choices import index
from fuzzing.draw import draw, unscheduled, warpgroup_product
from fuzzing.features import features
from fuzzing.formats import FORMATS, bytes_of, from_bytes
from fuzzing.oracles import Clock, Compiled, compiled, directives, pipeline_of, run_program
from fuzzing.program import Axis, Operand, Program, Staging, Sum
from fuzzing.writing import pipeline_text
from selector.ir import float8
from selector.ir.types import Type

pytestmark = [pytest.mark.verified, pytest.mark.nvrtc, pytest.mark.gcc]


def assert_right(p: Program) -> None:
    """It is, and another number would not be."""
    outcome = run_program(p)
    assert (outcome.kind, outcome.text, outcome.notes) == ("ok", "", ())
    expected = reference.result(p, reference.inputs(p))
    wrong = expected.copy()
    wrong.flat[wrong.size // 2] += 30
    assert reference.differs(p, expected, wrong)


@pytest.mark.parametrize(
    ("family", "name"),
    [
        (plain.layer, "phased"),
        (plain.factors, "operand"),
        (plain.factors, "clone"),
        (plain.factors, "from_zero"),
        (resampled.taps, "grouped"),
    ],
)
def test_directives_of_the_compiler_are_drawn_and_right(
    family: Callable[[Random], Program], name: str
) -> None:
    for p in map(family, map(Random, range(60))):
        pipeline = pipeline_of(p)
        pipeline()
        if f"scheduled by {name}" in directives(pipeline):
            break
    else:
        pytest.fail(f"no hb.{name} in 60 programs")
    assert_right(p)
    assert f"scheduled by {name}" in run_program(p).used


@pytest.mark.parametrize("number", range(3))
def test_layers_of_single_channels_are_right(number: int) -> None:
    assert_right(plain.depthwise(Random(number)))


def product(**changes: object) -> Program:
    """A matrix product, its factors staged along the depth."""
    staging = Staging("loop", "inner", rounding=8)
    a = Operand("A", "f16", (index((1, "r.x")), index((1, "y"))), staging=staging)
    b = Operand("B", "f16", (index((1, "x")), index((1, "r.x"))), staging=staging)
    axes = (Axis(41, 16, 2), Axis(21, 16, 1, 2))
    p = Program("product", "sm_80", "wmma", axes, (Sum(96, 16),), a, b, "f32", at="block")
    return replace(p, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("produce", ["scale", "pair"])
@pytest.mark.parametrize("name", ["a", "b"])
def test_a_factor_in_the_sum_is_staged(name: str, produce: str, swapped: bool) -> None:
    factor = replace(getattr(product(), name), produce=produce, inline=True)
    p = product(swapped=swapped, **{name: factor})
    assert "hb.operand(acc, " in pipeline_text(p)
    assert "made_" not in pipeline_text(p).split("scheduled:")[0]
    assert_right(p)


@pytest.mark.parametrize("start", ["one", "bias"])
def test_what_a_sum_starts_from_is_added_by_its_reader(start: str) -> None:
    p = product(start=start, from_zero=True)
    assert "hb.from_zero(acc, out)" in pipeline_text(p)
    assert_right(p)


@pytest.mark.parametrize("pitch", [(0, 1), (1, 0), (3, 8), (8, 24)])
def test_rows_may_lie_apart(pitch: tuple[int, int]) -> None:
    """What lies between them is no number."""
    p, before = product(pitch=pitch), pitch[0]
    beside = reference.inputs(product())
    for name, array in reference.inputs(p).items():
        assert np.array_equal(array, beside[name])
        wide = array.base
        assert wide is not None
        assert wide.shape[-1] == array.shape[-1] + sum(pitch)
        assert np.isnan(wide[..., :before]).all()
        assert np.isnan(wide[..., before + array.shape[-1] :]).all()
    assert_right(p)


def test_single_floats_are_drawn_for_warpgroups() -> None:
    drawn = (warpgroup_product(Random(n)) for n in range(400))
    for p in (p for p in drawn if p.a.type == "f32" and not p.masks and not p.a.produce):
        made = compiled(p, Clock(str))
        if isinstance(made, Compiled):
            break
    else:
        pytest.fail("none of 400 programs compiled")
    assert "tf32" in made.kernel.source
    assert "wgmma" in made.kernel.source
    assert_right(p)


@pytest.mark.parametrize("kind", FORMATS)
def test_bytes_are_the_floats_of_their_format(kind: str) -> None:
    every = np.arange(256, dtype=np.uint8)
    ours = float8.from_bytes(every, Type.parse(kind))
    assert np.array_equal(from_bytes(every, kind), ours, equal_nan=True)
    assert {abs(v) for v in from_bytes(np.array(bytes_of(kind, "small")), kind)} == {1, 2, 3}


@pytest.mark.parametrize("auto", [False, True])
def test_floats_of_eight_bits_are_drawn(auto: bool) -> None:
    """For their own instructions, and decoded."""
    wanted = {True, False}
    for n in range(3000):
        p = draw(11, n)
        own = "fp8" in p.instructions
        if own not in wanted or p.a.produce not in FORMATS or p.family != "rows":
            continue
        made = compiled(unscheduled(p, 11, n) if auto else p, Clock(str))
        if not isinstance(made, Compiled):
            continue
        used = {u.block.instruction for u in made.kernel.report.updates if u.block is not None}
        if own and not any(kind in name for name in used for kind in FORMATS):
            continue
        assert_right(made.program)
        wanted.remove(own)
        if not wanted:
            return
    pytest.fail(f"not drawn, or never selected: {wanted}")


def test_all_of_it_is_drawn() -> None:
    found = {f for n in range(1500) for f in features(draw(8, n))}
    wanted = {"rows apart in memory", "one array twice", "directive from_zero"}
    wanted |= {f"family {name}" for name in ("layer", "depthwise", "factors", "taps")}
    assert wanted <= found
    assert any("in the sum" in f for f in found)


def test_errors_are_those_of_sums_of_which_an_epilogue_leaves_little() -> None:
    """Of 512 sums of single floats, rounded to tf32, an activation leaves three small ones."""
    a = Operand("A", "f32", (index((1, "x")), index((1, "y"), (1, "r.x"))), "scale",
                staging=Staging("block"))  # fmt: skip
    b = Operand("B", "f32", (index((1, "r.x")),))
    p = Program(
        "columns", "sm_80", "wmma", (Axis(1), Axis(512, 256)), (Sum(3, 3),), a, b, "f32",
        swapped=True, epilogue=("relu", "clamp"), result="f16", values="real",
        instructions=("tf32",), inputs=723503093,
    )  # fmt: skip
    assert np.count_nonzero(reference.result(p, reference.inputs(p))) < 10
    assert_right(p)
