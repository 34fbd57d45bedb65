"""The normal form of vectors: same lanes as before, and the shape that is promised."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halide_bridge.names import Names, plain
from halide_bridge.normalise import negate, normal_expr, normalise
from halide_bridge.ramps import canonical_index
from selector.ir.interpreter import evaluate_expr
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Cast,
    Compare,
    CompareOp,
    Expr,
    FloatImm,
    IntImm,
    LetStmt,
    Load,
    Not,
    Ramp,
    ReduceOp,
    Select,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.printer import print_expr, print_stmt
from selector.ir.types import BOOL, FLOAT16, FLOAT32, INT32

X = Var("x")
COUNTS = (1, 2, 3, 4, 6)


def lanes(e: Expr) -> list[int]:
    return [int(v) for v in np.ravel(evaluate_expr(e, {"x": 7, "s": 5}, {}))]


@st.composite
def vectors(draw: st.DrawFn, count: int = 24, depth: int = 3) -> Expr:
    """An index expression of ``count`` lanes, as vectorization makes them."""
    if count == 1:
        return draw(st.sampled_from([X, Var("s"), IntImm(3), IntImm(0)]))
    kinds = ["ramp", "broadcast", "add", "sub", "mul"] if depth else ["ramp", "broadcast"]
    kind = draw(st.sampled_from(kinds))
    if kind in ("ramp", "broadcast"):
        outer = draw(st.sampled_from([n for n in COUNTS if n > 1 and count % n == 0] or [count]))
        inner = draw(vectors(count=count // outer, depth=max(depth - 1, 0)))
        if kind == "broadcast":
            return Broadcast(inner, outer)
        stride = draw(st.sampled_from([IntImm(1), IntImm(4), Var("s")]))
        return Ramp(inner, widened(stride, count // outer), outer)
    a = draw(vectors(count=count, depth=depth - 1))
    if kind == "mul":
        return Binary(BinaryOp.MUL, a, widened(draw(st.sampled_from([X, IntImm(2)])), count))
    b = draw(vectors(count=count, depth=depth - 1))
    return Binary(BinaryOp.ADD if kind == "add" else BinaryOp.SUB, a, b)


def widened(e: Expr, count: int) -> Expr:
    return e if count == 1 else Broadcast(e, count)


@given(vectors())
def test_a_canonical_index_has_the_same_lanes(e: Expr) -> None:
    assert lanes(canonical_index(e)) == lanes(e)


@given(vectors())
def test_canonical_is_a_fixed_point(e: Expr) -> None:
    once = canonical_index(e)
    assert canonical_index(once) == once


def test_a_sum_over_three_loops_becomes_one_ramp_per_loop() -> None:
    rows = Ramp(widened(X, 512), widened(Var("s"), 512), 64)
    columns = Broadcast(Ramp(IntImm(4), IntImm(1), 16), 2048)
    index = canonical_index(Binary(BinaryOp.ADD, rows, columns))
    assert print_expr(index) == "ramp(x32(ramp(x + 4, 1, 16)), x512(s), 64)"


def test_dense_levels_are_joined() -> None:
    index = Ramp(Ramp(X, IntImm(1), 16), Broadcast(IntImm(16), 16), 4)
    assert print_expr(canonical_index(index)) == "ramp(x, 1, 64)"


def test_levels_that_do_not_fit_together_stay() -> None:
    a = Ramp(Ramp(X, IntImm(1), 2), Broadcast(IntImm(9), 2), 3)
    b = Ramp(Ramp(X, IntImm(1), 3), Broadcast(IntImm(9), 3), 2)
    index = Binary(BinaryOp.ADD, a, b)
    assert canonical_index(index) == index


def load(index: Expr, mask: Expr | None = None) -> Load:
    return Load(FLOAT16.with_lanes(index.type.lanes), "A", index, mask)


ZERO = FloatImm(0.0, FLOAT16)
MASK = Compare(CompareOp.LT, Ramp(X, IntImm(1), 8), Broadcast(Var("n"), 8))


def test_a_select_of_a_load_or_zero_is_a_masked_load() -> None:
    ramp = Ramp(IntImm(0), IntImm(1), 8)
    e = normal_expr(Select(MASK, load(ramp), Broadcast(ZERO, 8)))
    assert e == load(ramp, MASK)


def test_a_select_of_zero_or_a_load_has_the_opposite_mask() -> None:
    e = normal_expr(Select(Compare(CompareOp.LT, Var("n"), X), ZERO, load(X)))
    assert print_expr(e) == "A[x if x <= n]"


def clamped(index: Expr, extent: Expr) -> Expr:
    """``max(min(index, extent - 1), 0)``."""
    lanes = index.type.lanes
    last, zero = (Broadcast(e, lanes) for e in (Binary(BinaryOp.SUB, extent, IntImm(1)), IntImm(0)))
    return Binary(BinaryOp.MAX, Binary(BinaryOp.MIN, index, last), zero)


def outside(index: Expr, extent: Expr) -> Expr:
    lanes = index.type.lanes
    below = Compare(CompareOp.LT, index, Broadcast(IntImm(0), lanes))
    above = Compare(CompareOp.LE, Broadcast(extent, lanes), index)
    return Binary(BinaryOp.OR, above, below)


def test_clamps_go_where_the_mask_makes_them_idle() -> None:
    ramp, n = Ramp(X, IntImm(1), 8), Var("n")
    e = normal_expr(Select(outside(ramp, n), Broadcast(ZERO, 8), load(clamped(ramp, n))))
    assert isinstance(e, Load)
    assert e.index == ramp


def test_a_mask_has_a_condition_for_each_coordinate() -> None:
    """Halide compares the less of two where an image is as high as it is wide."""
    ramp, column = Ramp(X, IntImm(1), 8), Broadcast(Var("y"), 8)
    less, zero = Binary(BinaryOp.MIN, ramp, column), Broadcast(IntImm(0), 8)
    held = Binary(BinaryOp.MAX, ramp, zero)
    e = normal_expr(Select(Compare(CompareOp.LE, zero, less), load(held), Broadcast(ZERO, 8)))
    each = (Compare(CompareOp.LE, zero, side) for side in (ramp, column))
    assert e == load(ramp, Binary(BinaryOp.AND, *each))


@pytest.mark.parametrize("extent", [Var("m"), Binary(BinaryOp.SUB, Var("n"), IntImm(1))])
def test_clamps_to_less_than_the_mask_stay(extent: Expr) -> None:
    ramp = Ramp(X, IntImm(1), 8)
    inside = load(clamped(ramp, extent))
    e = normal_expr(Select(outside(ramp, Var("n")), Broadcast(ZERO, 8), inside))
    assert isinstance(e, Load)
    assert e.index == inside.index


def test_a_clamp_of_each_lane_needs_a_mask_of_each_lane() -> None:
    ramp, n = Ramp(X, IntImm(1), 8), Var("n")
    first = Broadcast(Compare(CompareOp.LT, X, n), 8)
    e = normal_expr(Select(first, load(clamped(ramp, n)), Broadcast(ZERO, 8)))
    assert "min(" in print_expr(e)


def test_a_select_of_something_else_stays() -> None:
    e = Select(Compare(CompareOp.LT, Var("n"), X), FloatImm(1.0, FLOAT16), load(X))
    assert normal_expr(e) == e


def test_the_terms_of_a_sum_end_in_zero() -> None:
    ramp = Ramp(IntImm(0), IntImm(1), 8)
    square = Binary(BinaryOp.MUL, load(ramp), load(ramp))
    kept = Select(MASK, square, Broadcast(ZERO, 8))
    turned = Select(negate(MASK), Broadcast(ZERO, 8), square)
    assert normal_expr(VectorReduce(ReduceOp.ADD, turned, 1)).value == kept  # type: ignore[union-attr]
    assert normal_expr(VectorReduce(ReduceOp.ADD, kept, 1)).value == kept  # type: ignore[union-attr]
    assert normal_expr(turned) == turned


@pytest.mark.parametrize("op", list(CompareOp))
@pytest.mark.parametrize("x", [0.0, 1.0, np.nan])
def test_the_complement_of_a_comparison_holds_for_nan(op: CompareOp, x: float) -> None:
    e = Compare(op, Var("f", FLOAT32), FloatImm(0.5, FLOAT32))
    assert bool(evaluate_expr(negate(e), {"f": x}, {})) != bool(evaluate_expr(e, {"f": x}, {}))


def test_a_broadcast_stands_outside_the_load_and_its_cast() -> None:
    index = Broadcast(Ramp(X, IntImm(1), 8), 4)
    mask = Compare(CompareOp.LT, Broadcast(Ramp(X, IntImm(1), 8), 4), Broadcast(Var("n"), 32))
    e = normal_expr(Cast(FLOAT32.with_lanes(32), normal_expr(load(index, mask))))
    assert print_expr(e) == "x4(float32x8(A[ramp(x, 1, 8) if ramp(x, 1, 8) < x8(n)]))"


def test_a_mask_that_differs_between_copies_keeps_them() -> None:
    index = Broadcast(Ramp(X, IntImm(1), 8), 4)
    mask = Compare(CompareOp.LT, Ramp(X, IntImm(1), 32), Broadcast(Var("n"), 32))
    assert normal_expr(load(index, mask)) == load(index, mask)


def test_vector_lets_are_inlined_into_masks() -> None:
    wide = Broadcast(Var("m", BOOL.with_lanes(8)), 4)
    masked = Load(FLOAT16.with_lanes(32), "A", Broadcast(Ramp(X, IntImm(1), 8), 4), wide)
    store = Store("B", Ramp(IntImm(0), IntImm(1), 32), masked)
    text = print_stmt(normalise(LetStmt("m", MASK, store)))
    assert text == "B[ramp(0, 1, 32)] = x4(A[ramp(x, 1, 8) if ramp(x, 1, 8) < x8(n)])"


def test_lets_of_loads_stay_where_they_are() -> None:
    value = load(Ramp(X, IntImm(1), 8))
    store = Store("A", Ramp(X, IntImm(1), 8), Var("t", FLOAT16.with_lanes(8)))
    let = LetStmt("t", value, store)
    assert normalise(let) == let


@pytest.mark.parametrize("op", list(CompareOp))
@pytest.mark.parametrize("x", [4, 5, 6])
def test_negate_is_the_complement(op: CompareOp, x: int) -> None:
    e = Compare(op, X, IntImm(5))
    assert bool(evaluate_expr(negate(e), {"x": x}, {})) != bool(evaluate_expr(e, {"x": x}, {}))


def test_negate_twice() -> None:
    flag = Var("flag", BOOL)
    assert negate(flag) == Not(flag)
    assert negate(Not(flag)) == flag
    assert negate(Broadcast(flag, 4)) == Broadcast(Not(flag), 4)


def test_names_lose_their_counters() -> None:
    names = Names()
    assert names("conv$3.s1.r$x.ro") == "conv.s1.r$x.ro"
    assert names("I_im$2_in_conv$3$0.s0._1") == "I_im_in_conv.s0._1"
    assert [names("f12"), names("f12.s0.v7"), names("f9"), names("f12.s0.v3")] == [
        "f0",
        "f0.s0.v0",
        "f1",
        "f0.s0.v1",
    ]
    assert names("r4$x") != names("r9$x")
    assert plain("conv$3") == "conv"


@pytest.mark.parametrize("name", ["conv_intm", "conv$11_intm", "conv_11_intm$1", "conv_intm$2"])
def test_names_of_intermediates_lose_counters_that_halide_wrote_otherwise(name: str) -> None:
    assert Names()(f"{name}.s1.ko") == "conv_intm.s1.ko"


def test_names_that_would_clash_stay_apart() -> None:
    names = Names()
    assert [names("conv$1"), names("conv$2"), names("conv$1")] == ["conv", "conv$1", "conv"]
    assert names("conv$2.s0.x") == "conv$1.s0.x"


def test_types_of_index_are_int32() -> None:
    floats = Broadcast(FloatImm(1.0, FLOAT32), 8)
    assert canonical_index(Binary(BinaryOp.ADD, floats, floats)).type == FLOAT32.with_lanes(8)
    assert INT32.with_lanes(8) == canonical_index(Broadcast(X, 8)).type


def test_what_a_user_has_called_with_a_number_keeps_it() -> None:
    names = Names(("w2", "w1", "p7"))
    asked = ("w2", "w1_im", "p7", "f3$0", "f3", "w9")
    assert [names(n) for n in asked] == ["w2", "w1_im", "p0", "f3", "f0", "w0"]
