"""Simplifier, polynomials and lanes keep the value of what they rewrite."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_strategies import Maker

from selector.diagnostics import EmitError, InternalError
from selector.ir import arithmetic
from selector.ir.affine import Affine, carries, carry, join_dims, split_by_strides, to_affine
from selector.ir.interpreter import evaluate_expr, evaluate_scalar
from selector.ir.lanes import lane
from selector.ir.nodes import Binary, BinaryOp, Broadcast, Dim, Expr, IntImm, Ramp, Select, Var
from selector.ir.parser import parse_expr
from selector.ir.printer import print_expr
from selector.ir.simplify import simplify
from selector.ir.traverse import substitute
from selector.ir.types import FLOAT32, INT8, INT32

pytestmark = pytest.mark.verified

VARIABLES = ("x", "y", "s", "t")
ENV = {"x": 5, "y": -3, "s": 7, "t": 0}


class Indices(Maker):
    """Integer index arithmetic over a few variables."""

    def leaf(self, t):
        if t.lanes > 1:
            return Broadcast(self.leaf(t.element), t.lanes)
        return (
            Var(self.pick(VARIABLES))
            if self.draw(st.booleans())
            else IntImm(self.pick(range(-4, 9)))
        )

    def index(self, lanes: int, d: int) -> Expr:
        if d == 0:
            return self.leaf(INT32.with_lanes(lanes))
        kind = self.pick(
            ("leaf", "binary", "binary", "select") + ("ramp", "broadcast") * (lanes > 1)
        )
        n = self.pick(n for n in range(1, lanes + 1) if lanes % n == 0)
        match kind:
            case "leaf":
                return self.leaf(INT32.with_lanes(lanes))
            case "binary":
                op = self.pick(op for op in BinaryOp if op not in (BinaryOp.AND, BinaryOp.OR))
                return Binary(op, self.index(lanes, d - 1), self.index(lanes, d - 1))
            case "select":
                a, b = self.index(lanes, d - 1), self.index(lanes, d - 1)
                return Select(parse_expr("x < y + 9"), a, b)
            case "ramp":
                a, b = self.index(lanes // n, d - 1), self.index(lanes // n, d - 1)
                return Ramp(a, b, n)
            case _:
                return Broadcast(self.index(lanes // n, d - 1), n)


@st.composite
def indices(draw, lanes: int = 1) -> Expr:
    return Indices(draw).index(lanes, 4)


def wide(e: Expr) -> int:
    return int(evaluate_expr(e, ENV)[0])


@settings(deadline=None, max_examples=300)
@given(indices())
def test_scalar_rewrites_keep_the_value(e: Expr) -> None:
    value = evaluate_scalar(e, ENV)
    assert evaluate_scalar(simplify(e), ENV) == value
    assert evaluate_scalar(to_affine(e).to_expr(), ENV) == value
    if abs(value) < 1 << 20:
        assert wide(e) == value or _overflows(e)


def _overflows(e: Expr) -> bool:
    from selector.ir.traverse import walk_expr

    return any(abs(evaluate_scalar(x, ENV)) >= 1 << 31 for x in walk_expr(e) if not x.type.is_bool)


@settings(deadline=None, max_examples=200)
@given(indices())
def test_polynomials_are_canonical(e: Expr) -> None:
    a = to_affine(e)
    assert a - a == Affine()
    assert a + a == a * 2
    assert (a * 3).divided_by(3) == a
    assert to_affine(Binary(BinaryOp.ADD, e, IntImm(1))) == a + 1


@settings(deadline=None, max_examples=200)
@given(st.sampled_from((2, 4, 6, 8, 12)).flatmap(indices), st.data())
def test_lane_is_the_lane(e: Expr, data: st.DataObject) -> None:
    lanes = e.type.lanes
    low = data.draw(st.sampled_from([n for n in range(1, lanes + 1) if lanes % n == 0]))
    values = evaluate_expr(e, ENV)
    scalar = lane(e, ((Var("d0"), low), (Var("d1"), lanes // low)))
    simple = simplify(e)
    assert np.array_equal(evaluate_expr(simple, ENV), values)
    for i in range(lanes):
        env = {**ENV, "d0": i % low, "d1": i // low}
        assert int(evaluate_expr(scalar, env)[0]) == values[i]


def test_aligned_lanes_need_no_division() -> None:
    e = parse_expr("ramp(ramp(b, 1, 64), x64(s), 256) + x16384(c)")
    k, m = Var("k"), Var("m")
    assert print_expr(lane(e, ((k, 64), (m, 256)))) == "((b + k) + (m*s)) + c"
    halves = lane(e, ((k, 16), (Var("j"), 4), (m, 256)))
    assert print_expr(halves) == "((b + ((j*16) + k)) + (m*s)) + c"
    assert (
        print_expr(lane(e, ((k, 128), (m, 128)))) == "((b + (k % 64)) + (((m*2) + (k/64))*s)) + c"
    )
    assert print_expr(lane(e, ((IntImm(3), 64), (IntImm(5), 256)))) == "((b + 3) + (s*5)) + c"


def test_lanes_of_loads_and_calls() -> None:
    types = {"A": FLOAT32}
    e = parse_expr("(float32x4)sqrt_f32(A[ramp(b, 2, 4)])*x4(2.0f)", types)
    assert print_expr(lane(e, ((Var("i"), 4),))) == "(float32)sqrt_f32(A[b + (i*2)])*2.000000f"
    with pytest.raises(EmitError, match="no form as plain code"):
        lane(parse_expr("(float32x2)vector_reduce_add(A[ramp(0, 1, 4)])", types), ((Var("i"), 2),))
    with pytest.raises(InternalError, match="lanes asked of"):
        lane(e, ((Var("i"), 3),))


DIMS = (
    Dim(IntImm(0), Var("I.extent.0"), IntImm(1)),
    Dim(IntImm(0), Var("I.extent.1"), Var("I.stride.1")),
    Dim(IntImm(0), Var("I.extent.2"), Var("I.stride.2")),
)


@pytest.mark.parametrize(
    ("index", "coordinates"),
    [
        ("x", ("x", "0", "0")),
        ("(y + 1)*I.stride.1 + (x - 3)", ("x + -3", "y + 1", "0")),
        (
            "((z*2)*I.stride.2 + min(y, 4)*I.stride.1) + (x + 8*q)",
            ("(q*8) + x", "min(y, 4)", "z*2"),
        ),
        ("(I.stride.1*y + x)*2", ("x*2", "y*2", "0")),
        ("I.stride.1*I.stride.2", None),
        ("(I.stride.1*y)/2", None),
    ],
)
def test_split_by_strides(index: str, coordinates: tuple[str, ...] | None) -> None:
    split = split_by_strides(parse_expr(index), DIMS)
    assert (None if split is None else tuple(print_expr(c) for c in split)) == coordinates


def test_split_by_constant_strides() -> None:
    dims = tuple(Dim(IntImm(0), IntImm(n), IntImm(s)) for n, s in ((32, 1), (8, 40), (2, 320)))
    split = split_by_strides(parse_expr("z*320 + (y + 1)*40 + x + 3"), dims)
    assert split is not None
    assert [print_expr(c) for c in split] == ["x + 3", "y + 1", "z"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(8*a + b)/8", "(b/8) + a"),
        ("(8*a + b) % 8", "b % 8"),
        ("(8*a + 3)/8", "a"),
        ("min(a + 1, a + 4)", "a + 1"),
        ("(a + b)*(a - b)", "(a*a) - (b*b)"),
        ("7/0", "0"),
        ("a - (b + a)", "b*-1"),
    ],
)
def test_polynomial_forms(text: str, expected: str) -> None:
    assert to_affine(parse_expr(text)) == to_affine(parse_expr(expected))
    assert print_expr(to_affine(parse_expr(text)).to_expr()) in (expected, "a + (b/8)")


def test_coefficients() -> None:
    a = to_affine(parse_expr("3*x*y + 2*x + y - 5"))
    assert a.coefficient(Var("x")) == to_affine(parse_expr("3*y + 2"))
    assert a.rest(Var("x")) == to_affine(parse_expr("y - 5"))
    assert a.offset == -5
    assert a.constant is None
    assert (a - a + 4).constant == 4
    assert a.mentions("y")
    assert not a.mentions("z")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("((x + 3) + 4)*1 + 0", "x + 7"),
        ("x - x", "0"),
        ("(x*4)*2/8", "x"),
        ("(x*8)/4 + (x*8) % 4", "x*2"),
        ("min(3, 4) + max(x, x)", "x + 3"),
        ("(let t = 4 in x + t)", "x + 4"),
        ("select(1 < 2, x, y)", "x"),
        ("ramp(x + 0, 1, 1)", "x"),
        ("x4(0) + ramp(x, 1, 4)", "ramp(x, 1, 4)"),
        ("(x < y) && true || false", "x < y"),
        ("!(1 == 2)", "(uint1)1"),
        ("(let t = y in (let y = 2 in (t + y)*x))", "(let t = y in (t + 2)*x)"),
        ("a*0.0f", "a*0.000000f"),
    ],
)
def test_simplify(text: str, expected: str) -> None:
    assert print_expr(simplify(parse_expr(text, {"a": FLOAT32}))) in (expected, "(y + 2)*x")


@pytest.mark.parametrize(
    ("dims", "joined"),
    [
        ([(4, 1), ("W", 4), ("H", "S")], [("W*4", 1), ("H", "S")]),
        ([(4, 1), (5, 4), (6, 20)], [("120", 1)]),
        ([(4, 1), ("W", 8)], [("4", 1), ("W", 8)]),
        ([("W", 1), ("H", "S")], [("W", 1), ("H", "S")]),
        ([(3, 2), ("W", 6)], [("W*3", 2)]),
        ([(4, 1)], [("4", 1)]),
    ],
)
def test_dimensions_that_run_into_each_other_are_joined(
    dims: list[tuple[object, object]], joined: list[tuple[str, object]]
) -> None:
    def expr(value: object) -> Expr:
        return IntImm(value) if isinstance(value, int) else Var(str(value))

    found = join_dims(tuple(Dim(IntImm(0), expr(e), expr(s)) for e, s in dims))
    shown = [(print_expr(d.extent), d.stride) for d in found]
    assert shown == [(e, expr(s)) for e, s in joined]


def test_a_ramp_over_rows_of_constant_stride_is_carried() -> None:
    """Rows of ``W`` elements lie 64 apart, planes anywhere: an index may run over rows."""
    sizes = (("W", 1), ("H", 64), ("D", "S"))
    dims = tuple(
        Dim(IntImm(0), Var(e), IntImm(s) if isinstance(s, int) else Var(s)) for e, s in sizes
    )
    assert carries(dims) == ((0, 1, 64),)
    found = split_by_strides(parse_expr("z*S + y*64 + x + 130"), dims)
    assert found is not None
    carried = carry(found, dims)
    for x in range(-70, 200, 7):
        values = {"x": IntImm(x), "y": IntImm(3), "z": IntImm(5)}
        column, row, plane = (to_affine(substitute(c, values)).constant for c in carried)
        assert column is not None
        assert 0 <= column < 64
        assert row is not None
        assert 64 * row + column == 3 * 64 + x + 130
        assert plane == 5


def test_of_equal_strides_the_last_carries() -> None:
    """``(s, r, 1, c)``: there is one element along the third dimension."""
    dims = tuple(Dim(IntImm(0), Var(f"E{k}"), IntImm(s)) for k, s in enumerate((1, 3, 9, 9)))
    assert carries(dims) == ((0, 1, 3), (1, 3, 3))
    found = split_by_strides(parse_expr("c*9 + x"), dims)
    assert found is not None
    for x in range(30):
        values = {"x": IntImm(x), "c": IntImm(2)}
        carried = [to_affine(substitute(e, values)).constant for e in carry(found, dims)]
        assert carried == [x % 3, x // 3 % 3, 0, 2 + x // 9]


@pytest.mark.parametrize("strides", [(1, "S"), (1, 64, 100), ("S", 64), (1,)])
def test_nothing_is_carried_between_other_strides(strides: tuple[int | str, ...]) -> None:
    dims = tuple(
        Dim(IntImm(0), Var(f"E{k}"), IntImm(s) if isinstance(s, int) else Var(s))
        for k, s in enumerate(strides)
    )
    assert all((inner, outer) == (0, 1) for inner, outer, _ in carries(dims))
    assert len(carries(dims)) == (strides == (1, 64, 100))


def test_quotients_and_remainders_of_all_bytes() -> None:
    """Near the least value too, from which a remainder cannot be taken."""
    a, b = (x.ravel() for x in np.meshgrid(*[np.arange(-128, 128)] * 2))
    remainders = np.where(b == 0, 0, np.mod(a, np.maximum(abs(b), 1)))
    quotients = np.where(b == 0, 0, (a - remainders) // np.where(b == 0, 1, b))
    for op, expected in ((BinaryOp.DIV, quotients), (BinaryOp.MOD, remainders)):
        found = arithmetic.binary(op, a.astype(np.int8), b.astype(np.int8), INT8)
        assert found.dtype == np.int8
        np.testing.assert_array_equal(found, expected.astype(np.int8))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(z % 2)/2", "0"),
        ("(z % 2) % 4", "z % 2"),
        ("min(((z % 4)/4) + q*3, q*3)", "q*3"),
        ("(z % 4)/2", "(z % 4)/2"),
    ],
)
def test_what_remains_has_no_quotient(text: str, expected: str) -> None:
    assert print_expr(to_affine(parse_expr(text)).to_expr()) == expected
