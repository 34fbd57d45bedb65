"""``decode(encode(e)) == e``, through the engine, for random expressions."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.eqsat.abstract import abstract
from selector.eqsat.decode import Decoder
from selector.eqsat.encode import encode, encode_store
from selector.eqsat.extract import read_graph
from selector.eqsat.saturate import Engine
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Call,
    Cast,
    Compare,
    CompareOp,
    Expr,
    ExprVar,
    FloatImm,
    IntImm,
    Load,
    Location,
    LocToLoc,
    Not,
    Ramp,
    ReduceOp,
    Select,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.traverse import walk_expr
from selector.ir.types import BFLOAT16, BOOL, FLOAT16, FLOAT32, INT8, INT32, UINT8, Type

pytestmark = pytest.mark.verified

NAMES = st.sampled_from(["x", "A.stride.1", "mm.s1.r$x", 'odd "name" \\'])


def integers(lanes: int, depth: int) -> st.SearchStrategy[Expr]:
    """int32 expressions of a number of lanes."""
    if depth == 0 or lanes == 1:
        scalar: st.SearchStrategy[Expr] = st.one_of(
            st.integers(-(2**31), 2**31 - 1).map(IntImm), NAMES.map(Var)
        )
        if lanes == 1:
            return scalar
        return scalar.map(lambda e: Broadcast(e, lanes))
    inner = integers(lanes, depth - 1)
    half = integers(lanes // 2, depth - 1)
    uniform = st.one_of(
        integers(1, 0).map(lambda e: e if lanes == 2 else Broadcast(e, lanes // 2)), half
    )
    return st.one_of(
        st.builds(Binary, st.sampled_from(list(BinaryOp)[:7]), inner, inner),
        st.builds(lambda b, s: Ramp(b, s, 2), half, uniform),
        half.map(lambda e: Broadcast(e, 2)),
        st.builds(lambda i: Load(INT32.with_lanes(lanes), "index", i), inner),
    )


def booleans(lanes: int, depth: int) -> st.SearchStrategy[Expr]:
    compare = st.builds(
        Compare, st.sampled_from(list(CompareOp)), integers(lanes, depth), integers(lanes, depth)
    )
    if depth == 0:
        return compare
    inner = booleans(lanes, depth - 1)
    both = st.sampled_from([BinaryOp.AND, BinaryOp.OR])
    return st.one_of(compare, inner.map(Not), st.builds(Binary, both, inner, inner))


@st.composite
def values(draw: st.DrawFn, lanes: int, depth: int, element: Type | None = None) -> Expr:
    """Expressions of any element type."""
    t = element or draw(st.sampled_from([FLOAT16, BFLOAT16, FLOAT32, INT8, UINT8]))
    wide = t.with_lanes(lanes)
    choice = draw(st.integers(0, 9 if depth else 2))
    sub = lambda: draw(values(lanes, depth - 1, t))  # noqa: E731
    match choice:
        case 0:
            finite = st.floats(allow_nan=False, allow_infinity=False)
            scalar = (
                FloatImm(draw(finite), t) if t.is_float else IntImm(draw(st.integers(0, 99)), t)
            )
            return scalar if lanes == 1 else Broadcast(scalar, lanes)
        case 1:
            return Var(draw(NAMES), wide)
        case 2:
            mask = draw(st.one_of(st.none(), booleans(lanes, 1)))
            return Load(wide, draw(NAMES), draw(integers(lanes, 1)), mask)
        case 3:
            return Cast(wide, draw(values(lanes, depth - 1)))
        case 4:
            return Binary(draw(st.sampled_from(list(BinaryOp)[:7])), sub(), sub())
        case 5:
            return Select(draw(booleans(lanes, 1)), sub(), sub())
        case 6:
            return VectorReduce(
                draw(st.sampled_from(list(ReduceOp))), draw(values(2 * lanes, depth - 1, t)), lanes
            )
        case 7:
            return Call(wide, "f", tuple(sub() for _ in range(draw(st.integers(0, 2)))))
        case 8:
            return ExprVar(sub())
        case _:
            return LocToLoc(Location.WMMA, Location.MEM, sub())


@cache
def engine() -> Engine:
    return Engine("")


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([1, 2, 4, 8]).flatmap(lambda n: values(n, 2)))
def test_expressions_come_back(e: Expr):
    e_index = Broadcast(IntImm(0), e.type.lanes)
    store = Store("out", e_index, e)
    machine = engine()
    machine.run("(push)")
    try:
        machine.run(f"(set (statement 0) {encode_store(store)})")
        graph = read_graph(machine.graph, 1)
    finally:
        machine.run("(pop)")
    (node,) = graph.classes[graph.statements[0]]
    found = graph.term(node)
    assert found is not None
    assert Decoder().store(found[2]) == store


def test_the_text_of_a_term():
    e = Binary(BinaryOp.ADD, Ramp(Var("x"), IntImm(1), 4), Broadcast(IntImm(2), 4))
    assert encode(e) == '(Bop "+" (Ramp (Sym "x") (Int 1) 4) (Broadcast (Int 2) 4))'
    assert encode(Broadcast(IntImm(1, BOOL), 2)) == '(Broadcast (Lit "uint1" 1) 2)'


def test_a_ramp_of_floats_is_kept_whole():
    """Laws of ramps regroup sums, which rounds another way: 2.8000002 for 2.8 in lane 2 of these
    two."""
    ramps = [
        Ramp(FloatImm(b, FLOAT32), FloatImm(s, FLOAT32), 4) for b, s in ((0.0, 0.1), (1.0, 0.3))
    ]
    total = Binary(BinaryOp.ADD, ramps[0], ramps[1])
    index = Ramp(Var("x"), IntImm(1), 4)
    chosen = Select(
        Compare(CompareOp.LT, total, Broadcast(Var("limit", FLOAT32), 4)),
        Load(FLOAT32.with_lanes(4), "A", index),
        Broadcast(FloatImm(0.0, FLOAT32), 4),
    )
    skeleton = abstract(Store("out", index, chosen), {})
    assert skeleton.term.count("(Ramp ") == 2  # the index of the load and that of the store
    engine = Engine("")
    with engine.saturated([f"(set (statement 0) {skeleton.term})"]):
        best = read_graph(engine.graph, 0)
        terms = [best.term(n) for n in best.nodes if n.name == "Store"]
    (found,) = [t for t in terms if t is not None]
    store = Decoder(skeleton.symbols, skeleton.buffers).store(found[2])
    assert [e for e in walk_expr(store.value) if isinstance(e, Ramp) and e in ramps] == ramps
