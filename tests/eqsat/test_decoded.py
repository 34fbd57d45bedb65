"""Bytes that an algorithm decodes are told by their values, in whatever way it is written."""

from __future__ import annotations

import numpy as np
import pytest

from selector.diagnostics import ParseError
from selector.ir import float8
from selector.ir.evaluator import evaluate_expr
from selector.ir.nodes import Expr, FloatImm, Load
from selector.ir.parser import parse_expr, parse_module
from selector.ir.types import E4M3, E5M2, FLOAT16, INT8, UINT8, IllTyped, Type
from selector.operands.decoded import decoded

BYTE = "A[ramp(3, 1, 8)]"
WIDE = f"uint16x8({BYTE})"
E5M2_TEXT = f"(float16x8)reinterpret((uint16x8)shift_left({WIDE}, x8((uint16)8)))"
"""The upper half of a half."""


def masked(bits: int) -> str:
    return f"(uint16x8)bitwise_and({WIDE}, x8((uint16){bits}))"


REST = masked(127)
MOVED = f"(uint16x8)shift_left({masked(128)}, x8((uint16)8)) + {REST}*x8((uint16)128)"
E4M3_TEXT = (
    f"(float16x8)reinterpret(select({REST} == x8((uint16)127), x8((uint16)32256), {MOVED}))"
    "*x8(256.0h)"
)


def is_load(e: Expr) -> bool:
    return isinstance(e, Load)


def expr(text: str) -> Expr:
    return parse_expr(text, types={"A": UINT8, "B": UINT8, "S": INT8, "H": FLOAT16})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (E4M3_TEXT, E4M3),
        (E5M2_TEXT, E5M2),
        (f"float32x8({E4M3_TEXT})", E4M3),
        (f"float32x8({E5M2_TEXT})*x8(1.0f)", E5M2),
        (f"select({BYTE} == x8((uint8)128), x8(0.0h), {E4M3_TEXT})", E4M3),
    ],
)
def test_they_are_told(text: str, wanted: Type) -> None:
    """The last one loses the sign of a zero."""
    e = expr(text)
    found = decoded(e, is_load)
    assert found == (wanted, expr(BYTE))
    values = evaluate_expr(e, memory={"A": np.arange(256, dtype=np.uint8)})
    assert np.array_equal(values, float8.values(wanted)[3:11])


@pytest.mark.parametrize(
    "text",
    [
        f"{E4M3_TEXT}*x8(2.0h)",
        f"select({BYTE} == x8((uint8)1), x8(0.0h), {E4M3_TEXT})",  # one byte is another
        f"select({REST} == x8((uint16)127), x8(0.0h), {E4M3_TEXT})",  # NaN is zero
        f"float32x8({BYTE})",
        E5M2_TEXT.replace("A[", "S["),
        f"{E5M2_TEXT}*{E5M2_TEXT.replace('A[', 'B[')}",
        f"{E5M2_TEXT}*x8((float16)scale)",
        "H[ramp(0, 1, 8)]",
        f"x2({E5M2_TEXT})",  # not lane by lane
        f"(float16x8)exp_f16({E5M2_TEXT})",
        WIDE,
    ],
)
def test_what_is_something_else_is_not(text: str) -> None:
    assert decoded(expr(text), is_load) is None


def test_a_byte_is_one_of_the_value_that_it_is_decoded_to() -> None:
    """By the formats' definition, in Python's floats."""
    for t, bias, mantissa in ((E4M3, 7, 3), (E5M2, 15, 2)):
        for byte, found in enumerate(float8.values(t).tolist()):
            power, part = byte >> mantissa & (0x7F >> mantissa), byte & (1 << mantissa) - 1
            if t == E5M2 and power == 31:
                wanted = float("nan") if part else float("inf")
            elif byte & 0x7F == 0x7F:
                wanted = float("nan")
            else:
                whole = part / (1 << mantissa) + (power > 0)
                wanted = whole * 2.0 ** (max(power, 1) - bias)
            wanted = -wanted if byte >> 7 else wanted
            assert np.array_equal(found, wanted, equal_nan=True), (t, byte)


@pytest.mark.parametrize("t", [E4M3, E5M2.with_lanes(8)])
def test_the_type_reads_as_it_prints(t: Type) -> None:
    assert Type.parse(str(t)) == t
    assert t.stored == UINT8.with_lanes(t.lanes)


def test_nothing_is_computed_in_such_types() -> None:
    with pytest.raises(IllTyped, match="no literals of e4m3"):
        FloatImm(1.0, E4M3)


HEAD = """module m
input A: uint8 [(0, 16, 1)]
output O: float32 [(0, 16, 1)]
body {
 O[ramp(0, 1, 16)] = VALUE
}
"""


def test_programs_have_bytes() -> None:
    whole = str(parse_module(HEAD.replace("VALUE", "float32x16(A[ramp(0, 1, 16)])")))
    assert "uint8" in whole
    cast = HEAD.replace("VALUE", "float32x16((e4m3x16)A[ramp(0, 1, 16)])")
    for text in (cast, HEAD.replace("A: uint8", "A: e4m3")):
        with pytest.raises(ParseError):
            parse_module(text)
