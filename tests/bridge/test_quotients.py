"""Comparisons of quotients without the division say the same."""

from __future__ import annotations

from itertools import product

import pytest

from halide_bridge.quotients import undivided
from selector.ir.evaluator import evaluate_scalar
from selector.ir.lanes import lane
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Compare,
    CompareOp,
    Expr,
    IntImm,
    Ramp,
    Var,
)
from selector.ir.traverse import walk_expr

LANES = 12
NUMBER = Var("lane")


def wide(n: int | Expr) -> Expr:
    return Broadcast(IntImm(n) if isinstance(n, int) else n, LANES)


def truths(e: Expr) -> list[bool]:
    scalar = lane(e, ((NUMBER, LANES),))
    return [bool(evaluate_scalar(scalar, {"lane": n})) for n in range(LANES)]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("op", [CompareOp.LT, CompareOp.LE, CompareOp.GT, CompareOp.GE])
def test_an_ordering_of_a_quotient(op: CompareOp, turned: bool) -> None:
    for divisor, start, more, limit in product((2, 3), (-7, 0, 4), (-2, 0, 1), range(-4, 6)):
        inner = Ramp(IntImm(start), IntImm(1), LANES)
        number = Binary(BinaryOp.DIV, inner, wide(divisor))
        side = Binary(BinaryOp.ADD, number, wide(more))
        e = Compare(op, wide(limit), side) if turned else Compare(op, side, wide(limit))
        found = undivided(e)
        assert not any(isinstance(x, Binary) and x.op is BinaryOp.DIV for x in walk_expr(found))
        assert truths(found) == truths(e)


def test_what_stays() -> None:
    number = Binary(BinaryOp.DIV, Ramp(IntImm(0), IntImm(1), LANES), wide(3))
    both = Compare(CompareOp.LT, number, number)
    equal = Compare(CompareOp.EQ, number, wide(2))
    plain = Compare(CompareOp.LT, Ramp(IntImm(0), IntImm(1), LANES), wide(5))
    for e in (both, equal, plain):
        assert undivided(e) is e
