"""Iteration spaces against enumeration: independence, merged digits, digits of vectors."""

from __future__ import annotations

import itertools
from math import prod

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from selector.gpu.codegen.threads.nests import (
    Digit,
    Nest,
    as_nest,
    independent,
    merge_digits,
    vector_digits,
)
from selector.ir.affine import Affine, to_affine
from selector.ir.interpreter import evaluate_expr, evaluate_scalar
from selector.ir.lanes import lane
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    BufferParam,
    Dim,
    Expr,
    IntImm,
    Load,
    Ramp,
    Role,
    Stmt,
    Store,
    Var,
)
from selector.ir.parser import parse_module
from selector.ir.types import FLOAT32

VARIABLES = (Var("$v0"), Var("$i0"), Var("$i1"))


def affine(factors: tuple[int, ...], constant: int) -> Expr:
    total = Affine.of(constant)
    for factor, variable in zip(factors, VARIABLES, strict=True):
        total = total + Affine.of(variable) * factor
    return total.to_expr()


def nest(extents: tuple[int, ...], store: Expr, load: Expr, buffer: str = "in") -> Nest:
    digits = tuple(Digit(v, IntImm(n)) for v, n in zip(VARIABLES, extents, strict=True))
    return Nest(digits, Store("out", store, Load(FLOAT32, buffer, load)), None)


def points(n: Nest) -> list[dict[str, int]]:
    names = [d.var.name for d in n.digits]
    counts = [range(d.count or 0) for d in n.digits]
    return [dict(zip(names, p, strict=True)) for p in itertools.product(*counts)]


def touched(n: Nest) -> list[tuple[int, int]]:
    """(element stored, element loaded) of every iteration."""
    assert isinstance(n.store.value, Load)
    indices = n.store.index, n.store.value.index
    return [tuple(evaluate_scalar(e, p) for e in indices) for p in points(n)]  # type: ignore[misc]


small = st.tuples(*[st.integers(1, 4)] * 3)
factors = st.tuples(*[st.integers(-12, 12)] * 3)


@given(small, factors, factors, st.integers(-3, 3), st.booleans())
def test_independent_nests_may_run_in_any_order(
    extents: tuple[int, ...], to: tuple[int, ...], source: tuple[int, ...], shift: int, own: bool
) -> None:
    n = nest(extents, affine(to, 0), affine(source, shift), "out" if own else "in")
    if not independent(n, None):
        return
    pairs = touched(n)
    stored = [s for s, _ in pairs]
    assert len(set(stored)) == len(stored)
    if own:
        others = set(stored)
        assert all(loaded == s or loaded not in others for s, loaded in pairs)


@given(st.permutations([0, 1, 2]), small)
def test_counting_in_a_mixed_radix_is_independent(
    order: list[int], extents: tuple[int, ...]
) -> None:
    """Whatever the order of its digits, a dense numbering is recognized."""
    to, step = [0, 0, 0], 1
    for position in order:
        to[position], step = step, step * extents[position]
    assert independent(nest(extents, affine(tuple(to), 5), affine((0, 0, 0), 0)), None)


def test_elements_stored_twice_are_not_independent() -> None:
    assert not independent(nest((4, 4, 1), affine((1, 1, 0), 0), affine((0, 0, 0), 0)), None)
    assert not independent(nest((4, 4, 1), affine((1, 0, 0), 0), affine((0, 0, 0), 0)), None)
    assert not independent(nest((4, 4, 1), affine((1, 3, 0), 0), affine((0, 0, 0), 0)), None)


def test_rows_of_a_parameter_are_apart() -> None:
    """With strides that are not constants, coordinates decide."""
    stride = Var("out.stride.1")
    dims = (
        Dim(IntImm(0), Var("out.extent.0"), IntImm(1)),
        Dim(IntImm(0), Var("out.extent.1"), stride),
    )
    param = BufferParam("out", FLOAT32, dims, Role.OUTPUT)
    index = (Affine.of(Var("$v0")) + Affine.of(Var("$i0")) * stride).to_expr()
    n = nest((4, 4, 1), index, affine((0, 0, 0), 0))
    assert independent(n, param)
    assert not independent(n, None)


def test_conditions_that_read_what_is_stored_are_not_independent() -> None:
    """A neighbour that decides whether an element is written orders the iterations."""
    text = "for (i, 0, 8) {\n if (a[i + 1] < 3) {\n a[i] = 7\n }\n}"
    n = as_nest(_stmt(text))
    assert n is not None
    assert not independent(n, None)


def _stmt(text: str) -> Stmt:
    head = "module t\noutput a: int32 [(0, a.extent.0, 1)]\n"
    return parse_module(f"{head}body {{\n{text}\n}}\n", "t.vir").body


@given(small, st.integers(1, 3), st.integers(-3, 3))
def test_merged_digits_visit_the_same_pairs(extents: tuple[int, ...], step: int, turn: int) -> None:
    """Two inner digits that count on become one; what is stored from where stays the same."""
    e0, e1, _ = extents
    store = affine((1, e0, e0 * e1), 0)
    load = affine((step, step * e0, turn), 2)
    before = nest(extents, store, load)
    value = before.store.value
    assert isinstance(value, Load)
    after = merge_digits(before, [to_affine(before.store.index), to_affine(value.index)])
    assert sorted(touched(after)) == sorted(touched(before))
    if e0 > 1 and e1 > 1:
        assert len(after.digits) < len(before.digits)


@given(small, factors, factors)
def test_merging_never_changes_a_nest(
    extents: tuple[int, ...], to: tuple[int, ...], source: tuple[int, ...]
) -> None:
    before = nest(extents, affine(to, 0), affine(source, 0))
    value = before.store.value
    assert isinstance(value, Load)
    after = merge_digits(before, [to_affine(before.store.index), to_affine(value.index)])
    assert sorted(touched(after)) == sorted(touched(before))


@pytest.mark.parametrize("op", [BinaryOp.MAX, BinaryOp.MIN])
def test_what_is_clamped_counts_to_its_own_end(op: BinaryOp) -> None:
    """Rows that are one row of an image: places within a row are not places in all of them."""
    v, row = VARIABLES[0], VARIABLES[1]
    held = Binary(op, v, IntImm(2))
    before = nest((4, 3, 1), (Affine.of(row) * 4 + v).to_expr(), held)
    after = merge_digits(before, [to_affine(before.store.index), to_affine(held)])
    assert sorted(touched(after)) == sorted(touched(before))


def ramp(base: Expr, step: int, count: int) -> Expr:
    lanes = base.type.lanes
    stride: Expr = IntImm(step) if lanes == 1 else Broadcast(IntImm(step), lanes)
    return Ramp(base, stride, count)


@st.composite
def indices(draw: st.DrawFn, lanes: int) -> Expr:
    """A nest of ramps and broadcasts with that many lanes."""
    value: Expr = Binary(BinaryOp.ADD, Var("b"), IntImm(draw(st.integers(0, 9))))
    while value.type.lanes < lanes:
        rest = lanes // value.type.lanes
        count = draw(st.sampled_from([n for n in range(2, rest + 1) if rest % n == 0]))
        wide = draw(st.booleans())
        value = ramp(value, draw(st.integers(-5, 5)), count) if wide else Broadcast(value, count)
    return value


@given(st.data(), st.sampled_from([4, 12, 24, 60]))
def test_vector_digits_make_every_index_affine(data: st.DataObject, lanes: int) -> None:
    exprs = [data.draw(indices(lanes)) for _ in range(2)]
    extents = vector_digits(lanes, *exprs)
    assert prod(extents) == lanes
    assume(len(extents) > 1)
    marks = tuple((Var(f"d{i}"), n) for i, n in enumerate(extents))
    for e in exprs:
        scalar = to_affine(lane(e, marks))
        assert all(scalar.coefficient(v).constant is not None for v, _ in marks)
        wanted = evaluate_expr(e, {"b": 3}).reshape(-1)
        for number in range(lanes):
            env, rest = {"b": 3}, number
            for v, n in marks:
                env[v.name], rest = rest % n, rest // n
            assert evaluate_scalar(scalar.to_expr(), env) == wanted[number]


def test_cuts_that_cross_count_as_one_loop() -> None:
    assert vector_digits(
        12, ramp(ramp(Var("b"), 1, 4), 9, 3), ramp(ramp(Var("b"), 1, 3), 9, 4)
    ) == (12,)


def test_statements_that_are_no_nests() -> None:
    assert as_nest(_stmt("a[0] = 1\na[1] = 2")) is None
    assert as_nest(_stmt("for (i, 0, 4) {\n for (j, 0, i) {\n a[i + j] = 1\n }\n}")) is None
