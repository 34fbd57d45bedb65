"""``holds_everywhere`` against trying all values of the digits."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from selector.ir.interpreter import evaluate_scalar
from selector.ir.nodes import Binary, BinaryOp, Call, Compare, CompareOp, Expr, IntImm, Var
from selector.ir.types import BOOL
from selector.lowering.predicates import TRUE, conjunction, holds_everywhere

X, Y, N = Var("i"), Var("j"), Var("n")
ORDERS = (CompareOp.LT, CompareOp.LE, CompareOp.GT, CompareOp.GE)


def add(a: Expr, b: Expr) -> Expr:
    return Binary(BinaryOp.ADD, a, b)


def mul(a: Expr, b: Expr) -> Expr:
    return Binary(BinaryOp.MUL, a, b)


def linear(i: int, j: int, n: int, c: int) -> Expr:
    terms = [mul(IntImm(f), v) for f, v in ((i, X), (j, Y), (n, N))]
    return add(add(add(terms[0], terms[1]), terms[2]), IntImm(c))


factors = st.integers(-4, 4)
sums = st.builds(linear, factors, factors, factors, st.integers(-20, 20))
comparisons = st.builds(Compare, st.sampled_from(ORDERS), sums, sums)
conditions = st.recursive(comparisons, lambda c: st.builds(conjunction, c, c), max_leaves=3)


@given(conditions, st.integers(1, 5), st.integers(1, 5), st.integers(-10, 10))
def test_the_answer_is_exact(condition: Expr, extent_i: int, extent_j: int, n: int) -> None:
    answer = holds_everywhere(condition, {X: extent_i, Y: extent_j})
    assert answer is not None
    everywhere = all(
        evaluate_scalar(condition, {"i": i, "j": j, "n": n})
        for i, j in itertools.product(range(extent_i), range(extent_j))
    )
    assert bool(evaluate_scalar(answer, {"n": n})) == everywhere


def test_a_condition_without_digits_is_its_own_answer() -> None:
    condition = Compare(CompareOp.EQ, N, IntImm(3))
    assert holds_everywhere(condition, {X: 4}) is condition


def test_what_is_not_known_is_not_guessed() -> None:
    product = Compare(CompareOp.LT, mul(X, N), IntImm(8))
    assert holds_everywhere(product, {X: 4}) is None
    square = Compare(CompareOp.LT, mul(X, X), IntImm(8))
    assert holds_everywhere(square, {X: 4}) is None
    equal = Compare(CompareOp.EQ, X, IntImm(0))
    assert holds_everywhere(equal, {X: 4}) is None
    either = Binary(BinaryOp.OR, Compare(CompareOp.LT, X, IntImm(9)), equal)
    assert holds_everywhere(either, {X: 4}) is None
    rest = Compare(CompareOp.LT, Binary(BinaryOp.MOD, X, IntImm(3)), IntImm(3))
    assert holds_everywhere(rest, {X: 4}) is None
    table = Call(BOOL, "lookup", (X,))
    assert holds_everywhere(table, {X: 4}) is None


def test_a_constant_answer_is_a_constant() -> None:
    assert holds_everywhere(Compare(CompareOp.LT, X, IntImm(4)), {X: 4}) == TRUE
    assert holds_everywhere(Compare(CompareOp.LT, X, IntImm(3)), {X: 4}) == IntImm(0, BOOL)


def test_conjunction_folds() -> None:
    a, b = Compare(CompareOp.LT, N, IntImm(4)), Compare(CompareOp.LT, N, IntImm(5))
    assert conjunction(TRUE, a) is a
    assert conjunction(a, TRUE) is a
    assert conjunction(a, a) is a
    assert conjunction(a, b) == Binary(BinaryOp.AND, a, b)
