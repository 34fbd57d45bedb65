"""What a store computes several times has one name, unless a condition decides that it is."""

from __future__ import annotations

import pytest

from selector.gpu.cuda.expressions import TYPES
from selector.gpu.ir.memory import StorePair
from selector.gpu.ir.nodes import Kernel, Let, Local
from selector.gpu.ir.views import View
from selector.gpu.passes.name_repeated import name_repeated
from selector.ir.nodes import Binary, BinaryOp, Compare, CompareOp, Expr, FloatImm, Select, Var
from selector.ir.traverse import walk_expr
from selector.ir.types import FLOAT32, INT32, Type


def product(*factors: Expr) -> Expr:
    found, *rest = factors
    for e in rest:
        found = Binary(BinaryOp.MUL, found, e)
    return found


LONG = product(*(Var(f"x{n}", FLOAT32) for n in range(5)))  # nine nodes


def stored(*values: Expr) -> Kernel:
    return Kernel("k", 32, 1, (), (), (StorePair(View("to"), values),), shared=0, alignment=128)


@pytest.mark.parametrize("times", [3, 4])
def test_an_argument_that_is_read_often_has_a_name(times: int) -> None:
    before = stored(product(*[LONG] * times), LONG if times > 3 else Var("y", FLOAT32))
    after = name_repeated(before)
    if times < 4:
        assert after is before
        return
    (local,) = after.body
    assert isinstance(local, Local)
    let, store = local.body
    assert let == Let("float", ("value0",), (LONG,))
    assert isinstance(store, StorePair)
    assert all(e != LONG for v in store.values for e in walk_expr(v))
    assert store.values[1] == Var("value0", FLOAT32)


def test_a_name_is_none_that_the_values_have() -> None:
    """A parameter may be called ``value0``."""
    long = product(LONG, Var("value0", FLOAT32))
    (local,) = name_repeated(stored(product(*[long] * 4), long)).body
    assert isinstance(local, Local)
    assert local.body[0] == Let("float", ("value1",), (long,))


def test_what_is_computed_on_a_condition_stays_there() -> None:
    below = Compare(CompareOp.LT, Var("y", FLOAT32), FloatImm(0.0, FLOAT32))
    guarded = Select(below, product(*[LONG] * 4), FloatImm(0.0, FLOAT32))
    before = stored(guarded, Var("y", FLOAT32))
    assert name_repeated(before) is before
    (local,) = name_repeated(stored(guarded, LONG)).body  # this one is computed anyway
    assert isinstance(local, Local)
    assert len(local.body) == 2


def test_a_short_value_stays() -> None:
    short = product(Var("x", FLOAT32), Var("y", FLOAT32))
    before = stored(product(*[short] * 6))
    assert name_repeated(before) is before


@pytest.mark.parametrize("kind", [FLOAT32, INT32])
def test_what_both_arms_compute_has_a_name(kind: Type) -> None:
    """As where ``-v`` is stored in every other place."""
    factors = (Var(f"x{n}", kind) for n in range(13))
    long, zero = product(*factors), Var("zero", kind)  # of 25 nodes
    below = Compare(CompareOp.LT, Var("y", FLOAT32), FloatImm(0.0, FLOAT32))
    negated = Binary(BinaryOp.SUB, zero, long)
    (local,) = name_repeated(stored(Select(below, long, negated), zero)).body
    assert isinstance(local, Local)
    name = Var("value0", kind)
    assert local.body[0] == Let(TYPES[kind], ("value0",), (long,))
    store = local.body[1]
    assert isinstance(store, StorePair)
    assert store.values[0] == Select(below, name, Binary(BinaryOp.SUB, zero, name))
    one_arm = stored(Select(below, product(long, negated), zero), zero)
    assert name_repeated(one_arm) is one_arm
