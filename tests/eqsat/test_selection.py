"""What must be selected is selected, with the right shape, and computes the same numbers."""

from __future__ import annotations

import pytest
from tensor_programs import (
    SM80,
    Spec,
    check_same,
    check_selected,
    convolution,
    instructions,
    matmul,
    program,
)

from selector.eqsat import select
from selector.eqsat.solve import forget
from selector.intrinsics import find
from selector.ir.nodes import Call, ExprVar, IntImm, Load, Location, LocToLoc, Memory, Ramp
from selector.ir.parser import parse_module
from selector.ir.traverse import walk_all_exprs, walk_stmt
from selector.ir.types import FLOAT16

pytestmark = pytest.mark.verified

SPECS = [Spec(), Spec("bfloat16"), Spec("float16", "float16"), Spec("int8", "int32"),
         Spec("uint8", "int32")]  # fmt: skip


def extents(call: Call) -> tuple[int, ...]:
    return tuple(a.value for a in call.args[:3] if isinstance(a, IntImm))


@pytest.mark.parametrize("style", ["nested", "sums"])
@pytest.mark.parametrize("a_layout", ["row", "column"])
@pytest.mark.parametrize("b_layout", ["row", "column"])
def test_matmul_layouts(style: str, a_layout: str, b_layout: str):
    module = matmul(32, 32, 16, a_layout=a_layout, b_layout=b_layout, style=style)
    (call,) = instructions(check_selected(module).module)
    assert extents(call) == (32, 32, 16)
    a, b = call.args[4], call.args[5]
    assert isinstance(a, Load)
    assert isinstance(b, Load)
    assert a.type == FLOAT16.with_lanes(32 * 16)
    assert isinstance(a.index, Ramp)
    assert a.index.count == 32
    assert isinstance(b.index, Ramp)
    assert b.index.count == 16


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("acc_left", [False, True])
def test_matmul_operands_in_any_order(swapped: bool, acc_left: bool):
    check_selected(matmul(32, 16, 32, swapped=swapped, acc_left=acc_left))


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_types(spec: Spec):
    for module in (matmul(32, 16, 32, spec), convolution(256, 5, spec=spec)):
        (call,) = instructions(check_selected(module).module)
        record = find(call.name)
        assert record is not None
        assert (str(record.a_type), str(record.c_type)) == (spec.operand, spec.accumulator)


@pytest.mark.parametrize(
    ("tile", "shape"),
    [
        ((16, 16, 16), "wmma.mma.m16n16k16"),
        ((32, 8, 16), "wmma.mma.m32n8k16"),
        ((8, 32, 16), "wmma.mma.m8n32k16"),
        ((16, 8, 16), "mma.m16n8k16"),
        ((48, 40, 16), "mma.m16n8k16"),
        ((24, 32, 7), "wmma.mma.m8n32k16"),
        ((64, 32, 100), "wmma.mma.m16n16k16"),
        ((128, 64, 4), "wmma.mma.m16n16k16"),
    ],
)
def test_shapes(tile: tuple[int, int, int], shape: str):
    (call,) = instructions(check_selected(matmul(*tile)).module)
    assert call.name.startswith(shape)
    assert extents(call) == tile


@pytest.mark.parametrize("only", ["wmma", "mma", "wmma.mma.m8n32k16.f16.f32"])
def test_restricted_instructions(only: str):
    selection = check_selected(matmul(32, 32, 16), (only,))
    (call,) = instructions(selection.module)
    record = find(call.name)
    assert record is not None
    assert only in (record.family, record.name)


@pytest.mark.parametrize("taps", [*range(1, 18), 31, 64, 101, 200, 255])
def test_convolution_with_any_number_of_taps(taps: int):
    (call,) = instructions(check_selected(convolution(256, taps)).module)
    m, n, k = extents(call)
    assert m * n == 256
    assert k == taps + n - 1


@pytest.mark.slow
@pytest.mark.parametrize("taps", range(1, 301, 7))
def test_convolution_up_to_300_taps(taps: int):
    check_selected(convolution(128, taps))


@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("reverse", ["", "I", "K"])
def test_convolution_strides(stride: int, dilation: int, reverse: str):
    module = convolution(256, 5, stride, dilation, reverse=reverse)
    (call,) = instructions(check_selected(module).module)
    toeplitz = call.args[5]
    assert isinstance(toeplitz, ExprVar)
    assert isinstance(toeplitz.value, Call)
    rows, _, st, d = (a.value for a in toeplitz.value.args[:4] if isinstance(a, IntImm))
    assert st * dilation == d * stride, "the common divisor of both strides is left out"
    assert rows == extents(call)[2]


def test_a_convolution_along_a_symbolic_stride():
    update = (
        "acc[ramp(0, 1, 128)] = (float32x128)vector_reduce_add(float32x640("
        "I[ramp(ramp(2, I.stride.1, 5), x5(I.stride.1*2), 128)])*x128(float32x5(K[ramp(0, 1, 5)])))"
        " + acc[ramp(0, 1, 128)]"
    )
    module = program({"I": ("float16", (3, 260)), "K": ("float16", (5,))}, update, 128, Spec())
    (call,) = instructions(check_selected(module).module)
    assert "toeplitz(19, 8, 2, 1" in str(select(module, SM80).module)
    assert extents(call) == (16, 8, 19)


def test_interleaved_channels():
    """A stride of 3 along pixels and taps alike is a unit, not a band three times as wide."""
    (call,) = instructions(check_selected(convolution(128, 9, 3, 3)).module)
    assert extents(call) == (16, 8, 16)


def test_channels_that_are_vectorized_with_the_pixels():
    """The taps slide over the slow dimension: the banded matrix is the left operand."""
    update = (
        "acc[ramp(0, 1, 256)] = (float32x256)vector_reduce_add(float32x2304("
        "I[ramp(ramp(ramp(0, 16, 9), x9(1), 16), x144(16), 16)])*x256(float32x9(K[ramp(0, 1, 9)])))"
        " + acc[ramp(0, 1, 256)]"
    )
    module = program({"I": ("float16", (16, 24)), "K": ("float16", (9,))}, update, 256, Spec())
    selection = check_selected(module)
    (call,) = instructions(selection.module)
    assert extents(call) == (16, 16, 24)
    assert isinstance(call.args[4], ExprVar)
    assert "toeplitz.t 24 x 16" in str(selection.report)


def masked(index_mask: str, kernel_mask: str = "") -> str:
    image = f"I[ramp(ramp(0, 1, 5), x5(1), 128){' if ' + index_mask if index_mask else ''}]"
    kernel = f"K[ramp(0, 1, 5){' if ' + kernel_mask if kernel_mask else ''}]"
    return (
        f"acc[ramp(0, 1, 128)] = (float32x128)vector_reduce_add(float32x640({image})*"
        f"x128(float32x5({kernel}))) + acc[ramp(0, 1, 128)]"
    )


@pytest.mark.parametrize(
    ("index_mask", "kernel_mask"),
    [
        ("ramp(ramp(3, 1, 5), x5(1), 128) < x640(100)", ""),
        ("x640(4) <= ramp(ramp(0, 1, 5), x5(1), 128)", ""),
        ("x128(ramp(0, 1, 5)) < x640(3)", ""),
        ("", "ramp(0, 1, 5) < x5(3)"),
        (
            "(ramp(ramp(3, 1, 5), x5(1), 128) < x640(100)) && (x128(ramp(0, 1, 5)) < x640(4))",
            "ramp(0, 1, 5) < x5(3)",
        ),
    ],
)
def test_convolution_predicates(index_mask: str, kernel_mask: str):
    buffers = {"I": ("float16", (132,)), "K": ("float16", (5,))}
    check_selected(program(buffers, masked(index_mask, kernel_mask), 128, Spec()))


ROWS = "ramp(x32(2), x32(1), 16) < x512(9)"
COLUMNS = "x16(ramp(x2(0), x2(1), 16)) < x512(11)"
TERMS = "x256(ramp(0, 1, 2)) < x512(1)"


@pytest.mark.parametrize("mask_a", ["", ROWS, COLUMNS, TERMS, f"({ROWS}) && ({COLUMNS})"])
@pytest.mark.parametrize("mask_b", ["", ROWS, COLUMNS, f"({COLUMNS}) && ({TERMS})"])
def test_matmul_predicates(mask_a: str, mask_b: str):
    a = f"A[ramp(x16(ramp(0, 1, 2)), x32(A.stride.1), 16){' if ' + mask_a if mask_a else ''}]"
    b = f"B[x16(ramp(ramp(0, B.stride.1, 2), x2(1), 16)){' if ' + mask_b if mask_b else ''}]"
    update = (
        f"acc[ramp(0, 1, 256)] = (float32x256)vector_reduce_add(float32x512({a})*float32x512({b}))"
        " + acc[ramp(0, 1, 256)]"
    )
    buffers = {"A": ("float16", (2, 16)), "B": ("float16", (16, 2))}
    check_selected(program(buffers, update, 256, Spec()))


def test_a_select_with_zero_is_a_predicate():
    update = (
        "acc[ramp(0, 1, 256)] = (float32x256)vector_reduce_add(select("
        f"{ROWS}, float32x512(A[ramp(x16(ramp(0, 1, 2)), x32(A.stride.1), 16)]), x512(0.0f))*"
        "float32x512(B[x16(ramp(ramp(0, B.stride.1, 2), x2(1), 16))])) + acc[ramp(0, 1, 256)]"
    )
    buffers = {"A": ("float16", (2, 16)), "B": ("float16", (16, 2))}
    check_selected(program(buffers, update, 256, Spec()))


def test_products_of_bytes_taken_in_int16():
    update = (
        "acc[ramp(0, 1, 256)] = (int32x256)vector_reduce_add(int32x4096("
        "int16x4096(A[ramp(x16(ramp(0, 1, 16)), x256(A.stride.1), 16)])*"
        "int16x4096(B[x16(ramp(ramp(0, B.stride.1, 16), x16(1), 16))]))) + acc[ramp(0, 1, 256)]"
    )
    buffers = {"A": ("int8", (16, 16)), "B": ("int8", (16, 16))}
    check_selected(program(buffers, update, 256, Spec("int8", "int32")))


def test_fill_and_read_hold_any_lane_wise_value():
    module = convolution(128, 5)
    text = str(module)
    text = text.replace("= x128(0.000000f)", "= float32x128(I[ramp(0, 1, 128)]) + x128(2.000000f)")
    text = text.replace(
        "out[ramp(0, 1, 128)] = acc[ramp(0, 1, 128)]",
        "out[ramp(0, 1, 128)] = max(acc[ramp(0, 1, 128)]*x128(3.000000f), x128(0.000000f))",
    )
    selected = check_selected(parse_module(text)).module
    names = [e.name for e in walk_all_exprs(selected.body) if isinstance(e, Call)]
    assert names.count("tile.fill") == 1
    assert names.count("tile.read") == 1


def test_updates_of_one_accumulator_share_instruction_and_block():
    """Alone the second update would take another shape; together they must not."""
    update = "\n".join(
        f"acc[ramp(0, 1, 256)] = (float32x256)vector_reduce_add(float32x{256 * t}("
        f"I[ramp(ramp(0, 1, {t}), x{t}(1), 256)])*x256(float32x{t}(K[ramp(0, 1, {t})])))"
        " + acc[ramp(0, 1, 256)]"
        for t in (3, 40)
    )
    buffers = {"I": ("float16", (300,)), "K": ("float16", (40,))}
    calls = instructions(check_selected(program(buffers, update, 256, Spec())).module)
    assert len(calls) == 2
    assert len({(c.name, extents(c)[:2]) for c in calls}) == 1


def test_no_movement_is_left_and_nothing_else_changes():
    module = convolution(256, 16)
    selected = select(module, SM80).module
    assert not any(isinstance(e, LocToLoc) for e in walk_all_exprs(selected.body))
    assert Location.WMMA.value == "wmma"
    kinds = [s.memory for s in walk_stmt(selected.body) if hasattr(s, "memory")]
    assert kinds == [Memory.WMMA_ACCUMULATOR]
    plain = parse_module(str(module).replace("WMMAAccumulator", "Register"))
    assert select(plain, SM80).module == plain
    assert select(plain, SM80).reports == ()


def test_selection_is_deterministic():
    modules = [convolution(256, t) for t in (5, 9, 64)] + [matmul(32, 32, 16)]
    first = [str(select(m, SM80).module) for m in modules]
    for order in (range(4), (3, 1, 0, 2)):
        forget()
        again = {i: str(select(modules[i], SM80).module) for i in order}
        assert [again[i] for i in range(4)] == first


def test_unrolled_copies_are_selected_once():
    body = "\n".join(
        f"{{\nallocate acc[float32 * 128] in WMMAAccumulator\n"
        f"acc[ramp(0, 1, 128)] = x128(0.0f)\n"
        f"acc[ramp(0, 1, 128)] = (float32x128)vector_reduce_add(float32x1024("
        f"I[ramp(ramp({128 * i}, 1, 8), x8(1), 128)])*x128(float32x8(K[ramp(0, 1, 8)])))"
        f" + acc[ramp(0, 1, 128)]\n"
        f"out[ramp({128 * i}, 1, 128)] = acc[ramp(0, 1, 128)]\n}}"
        for i in range(8)
    )
    text = (
        "module unrolled\ninput I: float16 [(0, 1031, 1)]\ninput K: float16 [(0, 8, 1)]\n"
        f"output out: float32 [(0, 1024, 1)]\nbody {{\n{body}\n}}"
    )
    module = parse_module(text)
    selection = check_selected(module)
    assert len(instructions(selection.module)) == 8
    assert [(r.stage, r.copies) for r in selection.reports] == [
        ("init", 8), ("update", 8), ("read", 8),
    ]  # fmt: skip


def test_non_strict_leaves_the_scope_as_plain_code():
    module = matmul(4, 64, 16)
    selection = select(module, SM80, strict=False)
    assert not instructions(selection.module)
    assert selection.report.misses
    check_same(module, selection.module)
    assert "WMMAAccumulator" not in str(selection.module)
