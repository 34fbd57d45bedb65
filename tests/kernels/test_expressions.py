"""Scalar expressions of a program become legal ones, and those text with the brackets they need."""

from __future__ import annotations

import pytest

from selector.cpu.scalar import CScalarEmitter
from selector.gpu.codegen.scalars.legal import ScalarEmitter
from selector.gpu.codegen.scalars.names import Names
from selector.gpu.codegen.scalars.storage import Space, Storage
from selector.gpu.cuda.expressions import spell
from selector.gpu.ir.expressions import POINTER, element, plus, pointer
from selector.ir.nodes import BufferParam, Dim, Expr, FloatImm, IntImm, Role, Var
from selector.ir.parser import parse_expr
from selector.ir.types import FLOAT16, FLOAT32, INT32, INT64, Type

SIZE = Var("I.extent.0")
IMAGE = BufferParam("I", FLOAT16, (Dim(IntImm(0), SIZE, IntImm(1)),), Role.INPUT)
CASES = {
    "a*4 + b - 3": ("a * 4 + b - 3", "a * 4 + b - 3"),
    "(a + b)*c": ("(a + b) * c", "a * c + b * c"),
    "a/8 + a % 8": ("(a >> 3) + (a & 7)", "(a & 7) + (a >> 3)"),
    "a/3": ("floor_div(a, 3)", "floor_div(a, 3)"),
    "(uint32)u / (uint32)v": ("v == 0u ? 0u : u / v", "v == 0u ? 0u : u / v"),
    "(int8)p + (int8)q": ("(s8)((int)p + (int)q)", "(s8)((int)p + (int)q)"),
    "(uint16)p * (uint16)q": (
        "(u16)((u32)(int)p * (u32)(int)q)", "(u16)((u32)(int)p * (u32)(int)q)",
    ),
    "(float16)h*(float16)h": ("to_f16(to_f32(h) * to_f32(h))", "to_f16(to_f32(h) * to_f32(h))"),
    "float16((float32)exp_f32((float32)x))": ("to_f16(exp_rounded(x))", "to_f16(expf(x))"),
    "(float32)pow_f32(2.000000f, (float32)x)": ("exp2f(x)", "exp2f(x)"),
    "float32(float16((float32)tanh_f32((float32)x)))": (
        "tanh_approximate(x)", "to_f32(to_f16(tanhf(x)))",
    ),
    "min((float32)x, 1.000000f)": ("fminf(x, 1.0f)", "min(x, 1.0f)"),
    "(int32)shift_right(a, 2)": ("shifted_right(a, 2)", "shifted_right(a, 2)"),
    "a < b && b < c || !(a == c)": (
        "(a < b && b < c) || !(a == c)", "(a < b && b < c) || !(a == c)",
    ),
}  # fmt: skip


def test_a_number_has_no_brackets_to_spare() -> None:
    assert spell(parse("a - (b - c)")) == "a - (b - c)"
    assert spell(parse("a + (0 - 5)")) == "a + (0 - 5)"
    assert spell(parse("a + -5")) == "a - 5"
    assert spell(IntImm(-(1 << 31))) == "-2147483647 - 1"


@pytest.mark.parametrize(("t", "suffix"), [(INT32, ""), (INT64, "ll")])
def test_the_least_number_is_added_as_it_is(t: Type, suffix: str) -> None:
    a, least = Var("a", t), -(1 << (t.bits - 1))
    assert spell(plus(a, IntImm(least + 1, t))) == f"a - {-(least + 1)}{suffix}"
    assert spell(plus(a, IntImm(least, t))) == f"a + ({least + 1}{suffix} - 1)"


def parse(text: str) -> Expr:
    return parse_expr(text)


@pytest.mark.parametrize("text", CASES)
def test_legal_in_both_languages(text: str) -> None:
    e = parse(text)
    kernel, c = ScalarEmitter(Names(), {}), CScalarEmitter(Names(), {})
    found = spell(kernel.legal(e)), spell(c.legal(e), c.words)
    assert tuple(x.replace("_2", "") for x in found) == CASES[text]  # letters are taken


def test_loads_are_zero_outside() -> None:
    storages = {"I": Storage("I", FLOAT16, Space.GLOBAL, IMAGE, SIZE)}
    load = parse("(float16)I[xo + 1]")
    assert spell(ScalarEmitter(Names(), storages).legal(load)) == (
        "(u32)(xo + 1) < (u32)I_extent_0 ? I[xo + 1] : f16{}"
    )
    c = CScalarEmitter(Names(), storages)
    assert spell(c.legal(load), c.words) == ("(u64)(xo + 1) < (u64)I_extent_0 ? I[xo + 1] : (f16)0")


@pytest.mark.parametrize(
    ("value", "t", "text"),
    [(-0.0, FLOAT32, "-0.0f"), (0.0, FLOAT16, "f16{}"), (-0.0, FLOAT16, "f16{32768}"),
     (1.0, FLOAT16, "f16{15360}"), (float("inf"), FLOAT32, "__int_as_float(0x7f800000)")],
)  # fmt: skip
def test_constants(value: float, t: Type, text: str) -> None:
    assert spell(FloatImm(value, t)) == text


def test_elements() -> None:
    rows = element(POINTER, pointer("acc"), 2)
    assert spell(element(FLOAT32, rows, "i")) == "acc[2][i]"
    assert spell(element(FLOAT32, pointer("p"), "i", Var("slot"))) == "(p + slot)[i]"
