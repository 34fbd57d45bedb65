"""Nodes whose parts do not fit cannot be made, under ``python -O`` either."""

from __future__ import annotations

import subprocess
import sys

import pytest

from selector.diagnostics import InternalError
from selector.eqsat.decode import Decoder, of_one_type
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Binary, BinaryOp, Broadcast, IntImm, Ramp, Var
from selector.ir.types import FLOAT32, INT32, INT64, UINT8

PROGRAM = """
from selector.ir.nodes import *
from selector.ir.types import BOOL, FLOAT32, INT32, INT64, IllTyped, Type
x, wide, real = Var("x"), Var("w", INT64), Var("f", FLOAT32)
made = [
    lambda: Binary(BinaryOp.MUL, x, wide),
    lambda: Compare(CompareOp.LT, x, wide),
    lambda: Ramp(wide, IntImm(1), 8),
    lambda: Ramp(x, x, 0),
    lambda: Broadcast(x, 0),
    lambda: Cast(INT64.with_lanes(2), x),
    lambda: Select(x, real, real),
    lambda: Select(Var("p", BOOL), x, wide),
    lambda: Not(x),
    lambda: Load(FLOAT32.with_lanes(8), "A", x),
    lambda: Load(FLOAT32, "A", x, Var("p", BOOL.with_lanes(2))),
    lambda: Store("A", x, Broadcast(real, 2)),
    lambda: VectorReduce(ReduceOp.ADD, Broadcast(real, 3), 2),
    lambda: IntImm(1, FLOAT32),
    lambda: FloatImm(1.0, INT32),
    lambda: Shuffle((x,), (1,)),
    lambda: Type(INT32.kind, 7),
]
refused = 0
for make in made:
    try:
        make()
    except IllTyped as error:
        refused += bool(str(error))
print(refused, len(made))
"""


@pytest.mark.parametrize("flags", [(), ("-O",)])
def test_what_does_not_fit_is_refused(flags: tuple[str, ...]) -> None:
    command = [sys.executable, *flags, "-c", PROGRAM]
    refused, every = subprocess.check_output(command, text=True).split()
    assert refused == every


def test_sums_have_the_type_of_their_terms() -> None:
    wide = Var("w", INT64)
    back = (Affine.of(wide) * 16 + 3).to_expr()
    assert back.type == INT64
    assert to_affine(back) == Affine.of(wide) * 16 + 3


def test_numbers_of_rules_take_the_type_beside_them() -> None:
    a, b = of_one_type(Var("w", INT64), IntImm(16))
    assert b == IntImm(16, INT64)
    a, b = of_one_type(Ramp(IntImm(0), IntImm(300), 4), Broadcast(Var("u", UINT8), 4))
    assert a == Ramp(IntImm(0, UINT8), IntImm(44, UINT8), 4)
    with pytest.raises(InternalError, match="int32 beside one of type int64"):
        of_one_type(Var("x", INT32), Var("w", INT64))


def test_equal_parts_of_any_type_are_a_broadcast() -> None:
    part = ("Atom", "float32", 1, "f")
    found = Decoder().expr(("Ramp", part, ("Int", 0), 4))
    assert found == Broadcast(Var("f", FLOAT32), 4)
    step = Decoder().expr(("Bop", "*", ("Lit", "int64", 64), ("Int", 16)))
    assert step == Binary(BinaryOp.MUL, IntImm(64, INT64), IntImm(16, INT64))


def test_numbers_beside_other_types_are_of_them_where_sums_are_simplified() -> None:
    wide = Var("w", INT64)
    found = Decoder({"x": wide}).expr(("Bop", "+", ("Int", 3), ("Sym", "x")))
    assert found == Binary(BinaryOp.ADD, IntImm(3, INT64), wide)
