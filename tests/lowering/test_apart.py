"""Fused loops over blocks that are apart again: which are, and that they count the same."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from selector.ir import parser
from selector.ir.evaluator import evaluate_scalar
from selector.ir.nodes import Binary, BinaryOp, Expr, Var
from selector.ir.printer import print_expr, print_stmt
from selector.ir.types import FLOAT32
from selector.lowering.apart import apart

parse = partial(parser.parse_stmt, types=dict.fromkeys("xy", FLOAT32))
A, B, C = map(Var, "abc")


def times(*factors: Expr) -> Expr:
    found, *others = factors
    for factor in others:
        found = Binary(BinaryOp.MUL, found, factor)
    return found


def test_a_loop_of_two_is_apart() -> None:
    loops, body = apart(("v", times(A, B)), parse("x[(v % a) + 7*(v/a)] = y[v/a]"))
    assert [(name, print_expr(extent)) for name, extent in loops] == [("v.1", "b"), ("v.0", "a")]
    assert print_stmt(body).strip() == "x[v.0 + (7*v.1)] = y[v.1]"


def test_a_loop_of_three_is_apart() -> None:
    stmt = parse("x[((v % (a*b)) % a) + ((v % (a*b))/a)] = y[v/(a*b)]")
    loops, body = apart(("v", times(times(A, B), C)), stmt)
    names = [name for name, _ in loops]
    assert [print_expr(extent) for _, extent in loops] == ["c", "b", "a"]
    assert print_stmt(body).strip() == f"x[{names[2]} + {names[1]}] = y[{names[0]}]"


def test_the_numbers_are_the_same_in_the_same_order() -> None:
    a, b = 5, 3
    expressions = [Binary(op, Var("v"), A) for op in (BinaryOp.MOD, BinaryOp.DIV)]
    before = [[evaluate_scalar(e, {"v": v, "a": a}) for e in expressions] for v in range(a * b)]
    after = [[low, high] for high in range(b) for low in range(a)]
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    ("text", "extent"),
    [
        ("x[v % a] = y[v]", times(A, B)),  # used as it is, too
        ("x[v % a] = y[v/b]", times(A, B)),  # by two numbers
        ("x[v % c] = y[v/c]", times(A, B)),  # by a number that the extent is not made of
        ("x[v % a] = y[v/a]", Binary(BinaryOp.ADD, A, B)),
        ("x[v % 4] = y[v/4]", times(A, B)),
        ("x[a] = y[b]", times(A, B)),
    ],
)
def test_others_stay(text: str, extent: Expr) -> None:
    stmt = parse(text)
    loops, body = apart(("v", extent), stmt)
    assert loops == (("v", extent),)
    assert body is stmt
