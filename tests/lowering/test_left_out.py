"""Iterations that a number of the block leaves out: what is asked is the same in all lanes and
threads, and where it does not hold nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("halide")

import halide as hl

import halide_bridge as hb
from selector.ir.contents import loaded
from selector.ir.evaluator import evaluate_expr, evaluate_scalar
from selector.ir.kinds import BinaryOp, CompareOp
from selector.ir.module import Module
from selector.ir.nodes import (
    Binary,
    Broadcast,
    Compare,
    Expr,
    IfThenElse,
    IntImm,
    Load,
    Not,
    Ramp,
    Var,
)
from selector.ir.traverse import free_vars, walk_stmt
from selector.ir.types import BOOL, INT32
from selector.lowering.left_out import opposite
from selector.lowering.one_value import one_value

pytestmark = pytest.mark.verified

X, T = Var("x"), Var("t")
THREADS = 3


def lanes(base: Expr, step: int, count: int) -> Expr:
    return Ramp(base, IntImm(step), count)


def scaled(terms: dict[Expr, int], offset: int) -> Expr:
    found: Expr = IntImm(offset)
    for value, factor in terms.items():
        found = Binary(BinaryOp.ADD, Binary(BinaryOp.MUL, value, IntImm(factor)), found)
    return found


def divided(e: Expr, divisor: int) -> Expr:
    return Binary(BinaryOp.DIV, e, Broadcast(IntImm(divisor), e.type.lanes))


@settings(max_examples=300, deadline=None)
@given(
    of_x=st.sampled_from((0, 1, 16, 32, 64, 96, 128)),
    of_thread=st.sampled_from((-16, 0, 1, 16, 32)),
    offset=st.integers(-70, 70),
    step=st.sampled_from((-1, 0, 1, 2)),
    count=st.sampled_from((2, 8, 16, 32)),
    divisor=st.sampled_from((1, 7, 32, 64, 128)),
)
def test_what_is_one_value_is_that_of_every_lane_of_every_thread(
    of_x: int, of_thread: int, offset: int, step: int, count: int, divisor: int
) -> None:
    e = divided(lanes(scaled({X: of_x, T: of_thread}, offset), step, count), divisor)
    found = one_value(e, {"t": THREADS})
    all_of_them = {
        x: {int(v) for t in range(THREADS) for v in np.ravel(evaluate_expr(e, {"x": x, "t": t}))}
        for x in range(-4, 5)
    }
    if found is not None:
        assert free_vars(found) <= {"x"}
        assert all(all_of_them[x] == {evaluate_scalar(found, {"x": x})} for x in all_of_them)
    elif step >= 0 and of_thread >= 0 and all(d % divisor == 0 for d in (of_x, offset)):
        assert any(len(values) > 1 for values in all_of_them.values())


def test_a_value_may_be_read_where_all_lanes_read_one() -> None:
    index = divided(lanes(scaled({X: 64}, 32), 1, 32), 128)
    found = one_value(Load(INT32.with_lanes(32), "b", index), {})
    assert found == Load(INT32, "b", Binary(BinaryOp.DIV, X, IntImm(2)))
    assert one_value(Load(INT32.with_lanes(32), "b", lanes(X, 1, 32)), {}) is None
    assert one_value(T, {"t": 2}) is None


def test_the_opposite_of_a_condition() -> None:
    for op, (a, b) in product(CompareOp, ((1, 2), (2, 2), (3, 2))):
        c = Compare(op, IntImm(a), IntImm(b))
        assert evaluate_scalar(opposite(c), {}) != evaluate_scalar(c, {})
    c = Var("c", BOOL)
    assert opposite(opposite(c)) == c == opposite(Not(c))


Mask = Callable[[hl.ImageParam, hl.Expr, hl.Expr, hl.Expr], hl.Expr]
"""A score of key n and query m behind a mask."""

SIZES = {"Q": (16, 1024, 64), "K": (16, 1024, 64), "V": (16, 1024, 64), "mask": (16, 16)}
LOW = hl.f32(-np.inf)


def attention(score: Mask) -> hl.Func:
    c, n, m, h = map(hl.Var, "cnmh")
    q, k, v = (hl.ImageParam(hl.Float(16), 3, name) for name in "QKV")
    mask = hl.ImageParam(hl.UInt(8), 2, "mask")
    names = ["scores", "seen", "peak", "weight", "total", "rounded", "mixed", "output"]
    scores, seen, peak, weight, total, rounded, mixed, output = map(hl.Func, names)
    r, keys = hl.RDom([(0, 64)], "r"), hl.RDom([(0, k.dim(1).extent())], "keys")
    scores[n, m, h] += hl.f32(q[r, m, h]) * hl.f32(k[r, n, h])
    seen[n, m, h] = score(mask, scores[n, m, h] * 0.125, n, m)
    peak[m, h] = hl.f32(-3e38)
    peak[m, h] = hl.max(peak[m, h], seen[keys, m, h])
    weight[n, m, h] = hl.exp(seen[n, m, h] - peak[m, h])
    total[m, h] += weight[keys, m, h]
    rounded[n, m, h] = hl.cast(hl.Float(16), weight[n, m, h])
    mixed[c, m, h] += hl.f32(rounded[keys, m, h]) * hl.f32(v[c, keys, h])
    some = total[m, h] != 0
    mean = hl.select(some, mixed[c, m, h] / total[m, h], 0)
    output[c, m, h] = hl.cast(hl.Float(16), mean)
    return output


def conditions(score: Mask) -> list[Expr]:
    """What the threads of an iteration stand under that reads the mask."""
    sizes = SIZES | {"output": SIZES["Q"]}
    kernel = hb.compile(attention(score), target="sm_90a", schedule="auto", sizes=sizes)
    assert isinstance(kernel.module, Module)
    found = [x.condition for x in walk_stmt(kernel.module.body) if isinstance(x, IfThenElse)]
    return [c for c in found if "mask" in loaded(c)]


@pytest.mark.parametrize(
    ("keys", "queries", "left_out"),
    [(128, 128, True), (96, 384, True), (100, 128, False), (128, 32, False), (1, 128, False)],
)
def test_blocks_that_tiles_can_be_parts_of_are_left_out(
    keys: int, queries: int, left_out: bool
) -> None:
    def score(mask: hl.ImageParam, s: hl.Expr, n: hl.Expr, m: hl.Expr) -> hl.Expr:
        return hl.select(mask[n / keys, m / queries] != 0, s, LOW)

    assert len(conditions(score)) == left_out


def test_what_changes_something_all_the_same_is_not_left_out() -> None:
    def low(mask: hl.ImageParam, s: hl.Expr, n: hl.Expr, m: hl.Expr) -> hl.Expr:
        return hl.select(mask[n / 128, m / 128] != 0, s, hl.f32(-100))

    def either(mask: hl.ImageParam, s: hl.Expr, n: hl.Expr, m: hl.Expr) -> hl.Expr:
        return hl.select((mask[n / 128, m / 128] != 0) | (n < m), s, LOW)

    def both(mask: hl.ImageParam, s: hl.Expr, n: hl.Expr, m: hl.Expr) -> hl.Expr:
        return hl.select((mask[n / 128, m / 128] == 0) | (n < m), LOW, s)

    assert not conditions(low)
    assert not conditions(either)
    assert len(conditions(both)) == 1
