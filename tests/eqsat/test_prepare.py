"""Updates in other forms: what is split, scaled and sliced computes the same, and what is not says
why."""

from __future__ import annotations

import numpy as np
import pytest
from tensor_programs import SM80, Spec, check_selected, instructions, program, random_inputs

from selector.diagnostics import SelectionError
from selector.eqsat import select
from selector.ir.interpreter import interpret
from selector.ir.module import Module
from selector.ir.parser import parse_module
from selector.targets import find_target

LANES, HALF = 256, Spec()
ACC = f"acc[ramp(0, 1, {LANES})]"
BUFFERS = {"A": ("float16", (16, 16)), "B": ("float16", (16, 16))}


def product(kind: str = "float32", factor: str = "") -> str:
    a = f"{kind}x4096(A[ramp(x16(ramp(0, 1, 16)), x256(A.stride.1), 16)])"
    b = f"{kind}x4096(B[x16(ramp(ramp(0, B.stride.1, 16), x16(1), 16))])"
    left = f"(x4096({factor})*{a})" if factor else a
    return f"({kind}x{LANES})vector_reduce_add({left}*{b})"


def module(update: str, init: str = "", spec: Spec = HALF) -> Module:
    buffers = {name: (spec.operand, extents) for name, (_, extents) in BUFFERS.items()}
    return program(buffers, update, LANES, spec, init=init or None)


def test_integers_stay_exact_under_a_factor():
    """Also where the factor makes the sum wrap around."""
    spec = Spec("int8", "int32")
    m = module(f"{ACC} = {product('int32', '123456789')} + {ACC}", spec=spec)
    check_selected(m)
    arrays = {
        k: np.random.default_rng(1).integers(-128, 128, v.shape).astype(np.int8)
        for k, v in random_inputs(m).items()
    }
    expected = interpret(m, arrays)["out"]
    np.testing.assert_array_equal(interpret(select(m, SM80).module, arrays)["out"], expected)


def test_an_index_with_a_name_stands_where_it_is_used():
    where = "ramp(x16(ramp(0, 1, 16)), x256(A.stride.1), 16)"
    update = f"{ACC} = {product().replace(where, 'where')} + {ACC}"
    assert "A[where]" in update
    check_selected(module(f"let where = {where}\n{update}"))


@pytest.mark.parametrize("factor", ["-1.0f", "0.25f", "-8.0f"])
def test_a_power_of_two_is_taken_out_of_a_sum_that_starts_anywhere(factor: str):
    update = f"{ACC} = {product(factor=factor)} + {ACC}"
    check_selected(module(update, f"{ACC} = float32x256(A[ramp(0, 1, 256)])"))


@pytest.mark.parametrize(
    ("update", "init", "why"),
    [
        (
            f"{ACC} = {product(factor='3.0f')} + {ACC}\n{ACC} = {product(factor='5.0f')} + {ACC}",
            f"{ACC} = x256(1.0f)", "have different factors",
        ),
        (
            f"{ACC} = {product(factor='3.0f')} + {ACC}", f"{ACC} = x256(1.0f)",
            "a factor and start from a value that is not zero",
        ),
        (
            f"for (i, 0, 4) {{\n{ACC} = {product(factor='float32(i)')} + {ACC}\n}}", "",
            "changes while they are summed",
        ),
    ],
)  # fmt: skip
def test_factors_that_stay_say_why(update: str, init: str, why: str):
    with pytest.raises(SelectionError) as caught:
        select(module(update, init), SM80)
    assert why in caught.value.why
    assert "multiply where" in caught.value.hint


def test_sums_with_different_factors_have_accumulators_of_their_own():
    update = f"{ACC} = {product(factor='3.0f')} + {ACC}\n{ACC} = {product()} + {ACC}"
    check_selected(module(update))
    check_selected(module(update, f"{ACC} = float32x256(A[ramp(0, 1, 256)])"))


def test_a_factor_of_a_half_accumulator_stays():
    """Without it the sum may leave the range of 16 bits."""
    update = f"{ACC} = {product('float16', '0.25h').replace('float16x4096(', '(')} + {ACC}"
    with pytest.raises(SelectionError, match="16 bits"):
        select(module(update, spec=Spec("float16", "float16")), SM80)


def sliced(rows: int, stride: str) -> Module:
    count = LANES * 5 * rows
    image = f"I[ramp(ramp(ramp(0, 1, 5), x5({stride}), {rows}), x{5 * rows}(1), {LANES})]"
    kernel = f"K[ramp(0, 1, {5 * rows})]"
    update = (
        f"{ACC} = (float32x{LANES})vector_reduce_add(float32x{count}({image})*"
        f"x{LANES}(float32x{5 * rows}({kernel}))) + {ACC}"
    )
    buffers = {"I": ("float16", (LANES + 4, rows)), "K": ("float16", (5 * rows,))}
    return program(buffers, update, LANES, Spec())


@pytest.mark.parametrize("rows", [2, 3, 7])
def test_a_reduction_over_two_dimensions_is_one_statement_for_each_row(rows: int):
    selection = check_selected(sliced(rows, "I.stride.1"))
    assert len(instructions(selection.module)) == rows
    (update,) = selection.report.updates
    assert update.copies == rows


def test_rows_that_follow_each_other_are_one_reduction():
    """Two levels that are one run of memory in both operands need no slices."""
    assert len(instructions(check_selected(sliced(3, "5")).module)) == 1


def test_too_many_rows_are_refused():
    with pytest.raises(SelectionError, match="2 reduction dimensions"):
        select(sliced(65, "I.stride.1"), SM80)


@pytest.mark.parametrize("target", ["sm_80", "amx"])
def test_a_new_variant_needs_no_new_code(target: str):
    """Dilation 3 with stride 2 and 7 taps: nothing knows of it."""
    kind, memory = ("float16", "WMMAAccumulator") if target == "sm_80" else ("bfloat16", "AMXTile")
    update = (
        f"{ACC} = (float32x{LANES})vector_reduce_add(float32x1792("
        f"I[ramp(ramp(0, 3, 7), x7(2), {LANES})])*x{LANES}(float32x7(K[ramp(0, 1, 7)]))) + {ACC}"
    )
    buffers = {"I": (kind, (2 * LANES + 20,)), "K": (kind, (7,))}
    text = str(program(buffers, update, LANES, Spec(kind))).replace("WMMAAccumulator", memory)
    m = parse_module(text)
    selected = select(m, find_target(target))
    (call,) = instructions(selected.module)
    assert call.name.startswith(("wmma.", "mma.", "amx.tdpbf16ps"))
    (temporary,) = (t for t in selected.report.updates[0].temporaries if "oeplitz" in t)
    assert "stride 2, dilation 3" in temporary
    arrays = random_inputs(m)
    np.testing.assert_array_equal(
        interpret(selected.module, arrays)["out"], interpret(m, arrays)["out"]
    )
