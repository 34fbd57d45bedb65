"""Threads that go down rows ask memory for each one turn before: in all loops of the rows, once for
each row, and not where it would take too many registers.
"""

from __future__ import annotations

from selector.ir.evaluator import evaluate_scalar
from selector.ir.kinds import ForKind
from selector.ir.lanes import lane
from selector.ir.nodes import (
    Allocate,
    Block,
    Expr,
    For,
    IntImm,
    Load,
    Ramp,
    Select,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import add, mul
from selector.ir.traverse import free_vars, walk_stmt
from selector.ir.types import BOOL, FLOAT32, UINT8, Type
from selector.lowering.rows_ahead import AHEAD, asked_ahead
from selector.lowering.structure import stored_names

OWN = frozenset({"row", "sum"})


def place(v: str, first: int, lanes: int) -> Expr:
    return Ramp(add(mul(Var(v), IntImm(256)), IntImm(first)), IntImm(1), lanes)


def loop(
    v: str, low: int, turns: int, more: tuple[Stmt, ...] = (), *, lanes: int = 6, first: int = -1,
    t: Type = FLOAT32,
) -> For:  # fmt: skip
    """Whose turns load a row of an image."""
    index = Ramp(IntImm(0), IntImm(1), lanes)
    kind = t.with_lanes(lanes)
    row = Store("row", index, Load(kind, "image", place(v, first, lanes)))
    stmts = (row, Store("sum", index, Load(kind, "row", index)), *more)
    return For(v, IntImm(low), IntImm(turns), ForKind.SERIAL, Block(stmts))


def asks(s: Stmt) -> list[Store]:
    return [x for x in walk_stmt(s) if isinstance(x, Store) and x.buffer.startswith(AHEAD)]


def rows_of(s: Store, turns: range) -> list[int]:
    """Which rows of the image are asked for in some turns."""
    assert isinstance(s.value, Load)
    (v,) = free_vars(s.value.index) or {"v"}
    first = lane(s.value.index, ((IntImm(0), s.value.type.lanes),))
    return [(evaluate_scalar(first, {v: turn}) + 1) // 256 for turn in turns]


def test_each_row_is_asked_for_once_and_before() -> None:
    parts = asked_ahead([loop("v.0", -2, 2), loop("v", 0, 8)], OWN)
    (made,) = parts
    first, before, after = asks(made)
    assert rows_of(first, range(1)) == [-2]
    assert rows_of(before, range(-2, 0)) == [-1, 0]
    assert rows_of(after, range(8)) == [1, 2, 3, 4, 5, 6, 7, 7]  # nothing below the last one


def test_what_is_read_is_what_was_asked_for() -> None:
    (made,) = asked_ahead([loop("v", 0, 8)], OWN)
    assert isinstance(made, Allocate)
    rows = [x for x in walk_stmt(made) if isinstance(x, Store) and x.buffer == "row"]
    assert [x.value.buffer for x in rows if isinstance(x.value, Load)] == [made.name]


def test_vectors_of_memory_are_vectors_of_the_array() -> None:
    """An element of it lies as far behind a multiple of 16 bytes as that of the image."""
    for t, first, over in ((FLOAT32, -1, 3), (FLOAT32, 4, 0), (UINT8, -4, 12), (UINT8, 5, 5)):
        (made,) = asked_ahead([loop("v", 0, 8, first=first, t=t)], OWN)
        assert isinstance(made, Allocate)
        assert made.extents == (IntImm(over + 6),)
        indices = {x.index for x in asks(made)}
        assert indices == {Ramp(IntImm(over), IntImm(1), 6)}


def test_what_ends_an_image_is_asked_for_as_well() -> None:
    index = Ramp(IntImm(0), IntImm(1), 4)
    inside = Var("inside", BOOL.with_lanes(4))
    t = FLOAT32.with_lanes(4)
    ended = Select(inside, Load(t, "image", place("v", 0, 4)), Load(t, "edge", index))
    s = Store("row", index, ended)
    (made,) = asked_ahead([For("v", IntImm(0), IntImm(8), ForKind.SERIAL, s)], OWN)
    assert all(isinstance(x.value, Select) for x in asks(made))
    assert len(asks(made)) == 2


def test_loops_that_load_others_begin_by_themselves() -> None:
    early = loop("v.0", -2, 2, first=7)
    found = asked_ahead([early, loop("v", 0, 8)], OWN)
    assert found[0] is early
    assert len(asks(found[1])) == 2


def test_nothing_is_asked_for_where_that_is_not_worth_it() -> None:
    few, wide = loop("v", 0, 3), loop("v", 0, 8, lanes=40)
    for x in (few, wide):
        assert asked_ahead([x], OWN) == [x]


def test_nothing_is_asked_for_that_the_loop_stores() -> None:
    back = Store("image", place("v", 0, 6), Load(FLOAT32.with_lanes(6), "sum", place("v", 0, 6)))
    stores = loop("v", 0, 8, (back,))
    assert "image" in stored_names(stores)
    assert asked_ahead([stores], OWN) == [stores]
