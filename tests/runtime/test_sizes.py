"""Output sizes that follow from the inputs, and the check that inputs are large enough."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime_plans import add, buffer, ceil_div, conv_plan, zero_to

from selector.diagnostics import ArgumentError
from selector.ir.nodes import Binary, BinaryOp, Cast, Expr, IntImm, Role, ScalarParam, Var
from selector.ir.remarks import Requirement
from selector.ir.types import BFLOAT16, FLOAT32, INT32
from selector.runtime import arguments
from selector.runtime.arguments import dense_size
from selector.runtime.plan import Plan
from selector.runtime.prepare import output_sizes
from selector.runtime.sizes import Size, check_requirements, environment

W = Var("output.extent.0")


def one_dimensional(maximum: Expr, minimum: Expr | None = None, rank: int = 1) -> Plan:
    """A plan that reads ``[minimum, maximum]`` of I for an output of width W."""
    low = IntImm(0) if minimum is None else minimum
    plan = conv_plan()
    return replace(
        plan,
        buffers=(buffer("I", 1), buffer("output", rank, FLOAT32, Role.OUTPUT)),
        requirements=(Requirement("I", 0, low, maximum),),
        launches=(),
    )


def inferred(plan: Plan, **extents: tuple[int, ...]) -> tuple[int, ...]:
    """Output shape, last axis innermost, for inputs of those shapes."""
    known = {b.name: dense_size(b, extents[b.name]) for b in plan.buffers if b.name in extents}
    return output_sizes(plan, known, {}, None)["output"].extents[::-1]


def times(a: Expr, b: int) -> Expr:
    return Binary(BinaryOp.MUL, a, IntImm(b))


@given(st.integers(1, 5000), st.integers(1, 300), st.integers(1, 300))
def test_a_convolution_gives_its_valid_region(width: int, height: int, taps: int) -> None:
    if width >= taps:
        assert inferred(conv_plan(), I=(height, width), K=(taps,)) == (height, width - taps + 1)


@given(st.integers(1, 10000))
def test_stride_two_halves(width: int) -> None:
    plan = one_dimensional(add(times(add(W, -1), 2), 3))  # 4 taps at stride 2
    if width >= 4:
        assert inferred(plan, I=(width,)) == ((width - 4) // 2 + 1,)


@given(st.integers(4, 10000))
def test_two_phases_double(width: int) -> None:
    half = Binary(BinaryOp.DIV, add(W, -1), IntImm(2))
    assert inferred(one_dimensional(add(half, 3)), I=(width,)) == (2 * (width - 3),)


@given(st.integers(256, 10000))
def test_rounded_up_reads_give_whole_tiles(width: int) -> None:
    plan = one_dimensional(add(times(ceil_div(W, 256), 256), -1))
    assert inferred(plan, I=(width,)) == (width // 256 * 256,)


def test_the_tightest_of_several_inputs_decides() -> None:
    plan = one_dimensional(add(W, -1))
    plan = replace(
        plan,
        buffers=(buffer("J", 1), *plan.buffers),
        requirements=(*plan.requirements, zero_to("J", 0, add(W, 9))),
    )
    assert inferred(plan, I=(100,), J=(60,)) == (50,)


@pytest.mark.parametrize(
    ("maximum", "rank"),
    [
        (IntImm(63), 1),  # not bounded
        (Binary(BinaryOp.MIN, W, IntImm(63)), 1),  # bounded from some width on
        (add(add(W, Var("output.extent.1")), -1), 2),  # two unknowns in one bound
        (Binary(BinaryOp.SUB, IntImm(63), W), 1),  # reads less for more
    ],
)
def test_what_does_not_follow_is_asked_for(maximum: Expr, rank: int) -> None:
    with pytest.raises(ArgumentError, match=r"output: its axis \d does not follow") as caught:
        inferred(one_dimensional(maximum, rank=rank), I=(64,))
    assert "sizes={'output': (...)}" in caught.value.hint


def test_constant_extents_need_no_inputs() -> None:
    plan = one_dimensional(IntImm(7))
    fixed = buffer("output", 1, FLOAT32, Role.OUTPUT, e0=64)
    plan = replace(plan, buffers=(plan.buffers[0], fixed))
    assert inferred(plan, I=(8,)) == (64,)


def check(plan: Plan, **extents: tuple[int, ...]) -> None:
    known = {b.name: dense_size(b, extents[b.name]) for b in plan.buffers}
    check_requirements(plan, environment(plan, known, {}))


def test_too_small_an_input_is_named_with_axis_and_numbers() -> None:
    with pytest.raises(ArgumentError) as caught:
        check(conv_plan(), I=(8, 4096), K=(64,), output=(8, 4160))
    assert caught.value.what == (
        "I: axis 1 needs 4223 elements, has 4096, for output of shape (8, 4160)"
    )


def test_reads_before_the_first_element_are_refused() -> None:
    plan = one_dimensional(W, minimum=IntImm(-2))
    with pytest.raises(ArgumentError, match="I: axis 0 is read from -2 on, and begins at 0"):
        check(plan, I=(64,), output=(8,))


def test_an_empty_output_needs_nothing() -> None:
    check(conv_plan(), I=(0, 3), K=(64,), output=(0, 4160))


def test_strides_and_extents_are_bound_under_both_names() -> None:
    plan = conv_plan()
    env = environment(plan, {"I": Size((10, 3), (1, 12))}, {"n": 4})
    assert (env["I.extent.0"], env["I.extent.1"], env["I.stride.1"], env["n"]) == (10, 3, 12, 4)


def test_positions_in_floats_follow_numbers_of_the_call() -> None:
    """As Halide bounds what is read at ``floor(width * scale)``, in float32 as the kernel does."""
    scale = ScalarParam("scale", FLOAT32)
    last = Cast(INT32, Binary(BinaryOp.MUL, Cast(FLOAT32, W), Var("scale", FLOAT32)))
    plan = replace(one_dimensional(last), scalars=(scale,))
    numbers = arguments.numbers(plan, {"scale": np.float32(0.7)})
    sizes = {"I": Size((8,), (1,)), "output": Size((10,), (1,))}
    check_requirements(plan, environment(plan, sizes, numbers))  # 10 * 0.7f is 7.0
    sizes["output"] = Size((12,), (1,))
    with pytest.raises(ArgumentError, match="axis 0 needs 9 elements, has 8"):
        check_requirements(plan, environment(plan, sizes, numbers))


def test_functions_of_positions_are_known_wherever_a_call_comes_from() -> None:
    """A process that loads a kernel has no interpreter."""
    code = """
from runtime_plans import conv_plan
from dataclasses import replace
from selector.ir.nodes import Call, Cast, IntImm, Var
from selector.ir.remarks import Requirement
from selector.ir.types import FLOAT32, INT32
from selector.runtime.sizes import Size, check_requirements, environment
own = Cast(INT32, Call(FLOAT32, "floor_f32", (Cast(FLOAT32, Var("output.extent.0")),)))
plan = replace(conv_plan(), requirements=(Requirement("I", 0, IntImm(0), own),))
sizes = {n: Size((9, 9)[:k], (1, 9)[:k]) for n, k in (("I", 2), ("K", 1), ("output", 2))}
try:
    check_requirements(plan, environment(plan, sizes, {}))
except Exception as error:
    print(error)
"""
    here = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True)
    assert "axis 1 needs 10 elements, has 9" in done.stdout, done.stderr


def test_numbers_of_bfloat16_are_no_bits() -> None:
    plan = replace(conv_plan(), scalars=(ScalarParam("scale", BFLOAT16), ScalarParam("n", INT32)))
    given = {"scale": np.uint16(0x3F80), "n": np.int32(-3)}
    assert arguments.numbers(plan, given) == {"scale": 1.0, "n": -3}
