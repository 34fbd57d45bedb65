"""What may be an operand of a narrower type, and what would be rounded or wrap around."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from selector.ir.evaluator import evaluate_expr
from selector.ir.nodes import Binary, BinaryOp, Cast, Expr, FloatImm, IntImm, Select, Var
from selector.ir.types import BFLOAT16, BOOL, FLOAT16, FLOAT32, INT8, INT32, UINT8, Type
from selector.operands.exact import narrow

D = Var("d")  # 0 to 7
BYTE = Cast(UINT8, Binary(BinaryOp.MUL, D, IntImm(36)))
WIDE = Cast(INT32, BYTE)


def less(e: Expr, by: int) -> Expr:
    return Binary(BinaryOp.SUB, e, IntImm(by, e.type))


EXACT: dict[str, tuple[Expr, Type]] = {
    "a byte as a half": (Cast(FLOAT32, BYTE), FLOAT16),
    "a byte as a bfloat": (Cast(FLOAT32, BYTE), BFLOAT16),
    "a byte without its zero point": (less(WIDE, 128), INT8),
    "a sign": (less(Binary(BinaryOp.MUL, IntImm(2), Binary(BinaryOp.MOD, D, IntImm(2))), 1), INT8),
    "the one or the other": (
        Select(IntImm(1, BOOL), Cast(FLOAT32, BYTE), FloatImm(0.5, FLOAT32)), FLOAT16,
    ),
    "a negated byte": (
        Binary(BinaryOp.SUB, FloatImm(0.0, FLOAT32), Cast(FLOAT32, BYTE)), FLOAT16,
    ),
    "the greater one": (
        Binary(BinaryOp.MAX, Cast(FLOAT32, BYTE), FloatImm(3.0, FLOAT32)), FLOAT16,
    ),
    "a number of lanes": (D, INT8),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_a_value_keeps_its_value(name: str) -> None:
    e, t = EXACT[name]
    found = narrow(e, t, {"d": 8})
    assert found is not None
    assert found.type == t
    for d in range(8):
        value, wide = (evaluate_expr(x, {"d": np.int32(d)}) for x in (found, e))
        assert float(np.ravel(value)[0]) == float(np.ravel(wide)[0])


INEXACT: dict[str, tuple[Expr, Type]] = {
    "a tenth": (FloatImm(0.1, FLOAT32), FLOAT16),
    "a byte as a signed one": (WIDE, INT8),
    "a byte less a zero point that is small": (less(WIDE, 100), INT8),
    "a sum of bytes": (Binary(BinaryOp.ADD, WIDE, WIDE), UINT8),
    "a sum of floats": (Binary(BinaryOp.ADD, *(Cast(FLOAT32, BYTE),) * 2), FLOAT16),
    "a product of floats": (Binary(BinaryOp.MUL, *(Cast(FLOAT32, BYTE),) * 2), FLOAT16),
    "the negative of the least of bytes": (
        Binary(BinaryOp.MUL, IntImm(-1), Cast(INT32, Cast(INT8, BYTE))),
        INT8,
    ),
    "any float": (Var("x", FLOAT32), FLOAT16),
    "any index": (Var("n"), INT8),
}


@pytest.mark.parametrize("name", INEXACT)
def test_what_may_be_another_value_is_none(name: str) -> None:
    e, t = INEXACT[name]
    assert narrow(e, t, {"d": 8}) is None


def test_what_wraps_around_has_the_range_of_its_type() -> None:
    """``int8(d*36) - 100`` is any byte, whatever its parts are."""
    for by, t in itertools.product((1, 100), (INT8, UINT8)):
        e = less(Cast(INT8, Binary(BinaryOp.MUL, D, IntImm(36))), by)
        found = narrow(Cast(INT32, e), t, {"d": 8})
        assert (found is None) == (t == UINT8)
