"""Clamps that the bounds of loops make idle."""

from __future__ import annotations

import pytest

from halide_bridge.clamps import BoundedClamps
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Expr,
    For,
    ForKind,
    IntImm,
    LetStmt,
    Load,
    Ramp,
    Stmt,
    Store,
    Var,
)
from selector.ir.parser import parse_expr
from selector.ir.printer import print_expr
from selector.ir.traverse import walk_stmt
from selector.ir.types import FLOAT16

X = Var("x")
ROW = Ramp(X, IntImm(1), 8)


def held(index: Expr, low: int = 0) -> Expr:
    return Binary(BinaryOp.MAX, index, Broadcast(IntImm(low), index.type.lanes))


def copied(index: Expr) -> Store:
    return Store("B", Ramp(IntImm(0), IntImm(1), 8), Load(FLOAT16.with_lanes(8), "A", index))


def loop(body: Stmt, first: str = "0") -> For:
    return For("x", parse_expr(first), Var("n"), ForKind.SERIAL, body)


def index_of(s: Stmt) -> str:
    (store,) = (x for x in walk_stmt(BoundedClamps().stmt(s)) if isinstance(x, Store))
    assert isinstance(store.value, Load)
    return print_expr(store.value.index)


@pytest.mark.parametrize(
    ("first", "low", "idle"), [("0", 0, True), ("2", 2, True), ("-1", 0, False), ("m", 0, False)]
)
def test_a_clamp_to_where_a_loop_begins_is_idle(first: str, low: int, idle: bool) -> None:
    assert (index_of(loop(copied(held(ROW, low)), first)) == "ramp(x, 1, 8)") is idle


def test_a_clamp_to_where_a_loop_ends_is_idle() -> None:
    last = Binary(BinaryOp.SUB, Binary(BinaryOp.ADD, Var("n"), IntImm(7)), IntImm(1))
    index = Binary(BinaryOp.MIN, ROW, Broadcast(last, 8))
    assert index_of(loop(copied(index))) == "ramp(x, 1, 8)"
    less = Binary(BinaryOp.MIN, ROW, Broadcast(Binary(BinaryOp.SUB, last, IntImm(1)), 8))
    assert "min(" in index_of(loop(copied(less)))


def test_a_let_is_as_large_as_its_value() -> None:
    again = LetStmt("x", parse_expr("y*4 + z % 4"), copied(held(ROW)))
    outer = For("y", IntImm(0), Var("n"), ForKind.SERIAL, again)
    assert index_of(outer) == "ramp(x, 1, 8)"
    assert "max(" in index_of(again)


def test_a_loop_of_the_same_name_has_bounds_of_its_own() -> None:
    assert "max(" in index_of(loop(loop(copied(held(ROW)), "m")))
    y = Broadcast(Var("y"), 8)
    again = LetStmt("y", X, loop(copied(held(y, 50)), "100"))
    assert "max(" in index_of(loop(again))


def test_what_is_left_is_one_index() -> None:
    rows = Ramp(Broadcast(IntImm(0), 4), Broadcast(Var("s"), 4), 2)
    index = Binary(BinaryOp.ADD, held(Broadcast(Ramp(X, IntImm(1), 4), 2)), rows)
    assert index_of(loop(copied(index))) == "ramp(ramp(x, 1, 4), x4(s), 2)"
