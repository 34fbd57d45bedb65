"""Loops that hand rows on are several: no turn asks what it has to do, and none brings a row that
is gone before anybody reads it.
"""

from __future__ import annotations

import pytest

from selector.ir.kinds import CompareOp, ForKind, Memory
from selector.ir.lanes import no_index_of
from selector.ir.nodes import (
    Allocate,
    Block,
    Broadcast,
    Cast,
    Compare,
    Expr,
    For,
    IfThenElse,
    IntImm,
    Load,
    Ramp,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import add, div, mod, mul
from selector.ir.traverse import walk_stmt
from selector.ir.types import FLOAT32, Kind, Type
from selector.lowering.rows_ahead import AHEAD
from selector.lowering.sliding import begun_apart, is_short_text, slides
from selector.lowering.structure import stored_names

LANES = 4
V = Var("v")
T = FLOAT32.with_lanes(LANES)


def row(n: int) -> Expr:
    return Ramp(IntImm(n * LANES), IntImm(1), LANES)


def load(buffer: str, n: int) -> Expr:
    return Load(T, buffer, row(n))


def moved(buffer: str, rows: int, newest: Expr) -> tuple[Stmt, ...]:
    moves = (Store(buffer, row(n), load(buffer, n + 1)) for n in range(rows - 1))
    return (*moves, Store(buffer, row(rows - 1), newest))


def place(v: Expr) -> Expr:
    return Ramp(mul(v, IntImm(64)), IntImm(1), LANES)


def asked(start: int, *stmts: Stmt) -> Stmt:
    return IfThenElse(Compare(CompareOp.LE, IntImm(start), V), Block(stmts))


def chain(reads: int) -> Stmt:
    """Five rows of ``a``, of which the last ``reads`` are read, and three of ``b``."""
    of_a = load("a", 5 - reads)
    for n in range(6 - reads, 5):
        of_a = add(of_a, load("a", n))
    results = Store("out", place(V), add(load("b", 0), load("b", 2)))
    body = Block(
        (
            *moved("a", 5, Load(T, "image", place(V))),
            asked(-2, *moved("b", 3, of_a), asked(0, results)),
        )
    )
    loop = For("v", IntImm(-6), IntImm(22), ForKind.SERIAL, body)
    return Allocate(
        "a", T.element, (IntImm(20),), Memory.REGISTER,
        Allocate("b", T.element, (IntImm(12),), Memory.REGISTER, loop),
    )  # fmt: skip


def parts(s: Stmt) -> list[tuple[int, int, frozenset[str]]]:
    """From which turn to which, and what is stored."""
    found = list[tuple[int, int, frozenset[str]]]()
    for loop in walk_stmt(s):
        match loop:
            case For(_, IntImm(value=low), IntImm(value=extent)):
                stored = {x for x in stored_names(loop) if not x.startswith(AHEAD)}
                found.append((low, low + extent, stored))
            case _:
                pass
    return found


@pytest.mark.parametrize(("reads", "first"), [(1, -2), (2, -3), (3, -4), (5, -6)])
def test_turns_begin_with_the_first_row_that_is_read(reads: int, first: int) -> None:
    found = parts(begun_apart(chain(reads)))
    ahead = [(first, -2, {"a"})] if first < -2 else []
    assert found == [*ahead, (-2, 0, {"a", "b"}), (0, 16, {"a", "b", "out"})]


def test_no_condition_is_left() -> None:
    assert not any(isinstance(s, IfThenElse) for s in walk_stmt(begun_apart(chain(3))))


def test_what_reads_a_row_before_it_is_moved_keeps_its_turns() -> None:
    """The row it reads is of the turn before."""
    a = moved("a", 3, Load(T, "image", place(V)))
    early = asked(0, Store("out", place(V), load("a", 2)))
    loop = For("v", IntImm(-6), IntImm(22), ForKind.SERIAL, Block((early, *a)))
    s = Allocate("a", T.element, (IntImm(12),), Memory.REGISTER, loop)
    assert parts(begun_apart(s)) == [(-6, 0, {"a"}), (0, 16, {"a", "out"})]


def test_what_is_carried_in_another_way_keeps_its_turns() -> None:
    """A sum of all turns, and a place that another turn has stored to."""
    a = moved("a", 3, Load(T, "image", place(V)))
    summed = Store("b", row(0), add(load("b", 0), load("a", 2)))
    ring = Store("b", Ramp(mul(mod(V, IntImm(2)), IntImm(LANES)), IntImm(1), LANES), load("a", 2))
    half = Store("b", row(0), load("a", 2))
    out = asked(0, Store("out", place(V), add(load("b", 0), load("b", 1))))
    for stores in (summed, ring, half):
        loop = For("v", IntImm(-6), IntImm(22), ForKind.SERIAL, Block((*a, stores, out)))
        s = Allocate("b", T.element, (IntImm(8),), Memory.REGISTER, loop)
        s = Allocate("a", T.element, (IntImm(12),), Memory.REGISTER, s)
        assert parts(begun_apart(s)) == [(-6, 0, {"a", "b"}), (0, 16, {"a", "b", "out"})]


def test_truths_are_moved_as_others_are() -> None:
    bits = Type(Kind.UINT, 8).with_lanes(LANES)
    one = Type(Kind.UINT, 1).with_lanes(LANES)
    moves = (
        Store("a", row(n), Cast(bits, Cast(one, Load(bits, "a", row(n + 1))))) for n in range(3)
    )
    newest = Store("a", row(3), Load(bits, "image", place(V)))
    results = asked(0, Store("out", place(V), Load(bits, "a", row(1))))
    loop = For("v", IntImm(-6), IntImm(22), ForKind.SERIAL, Block((*moves, newest, results)))
    s = Allocate("a", bits.element, (IntImm(16),), Memory.REGISTER, loop)
    assert parts(begun_apart(s)) == [(-2, 0, {"a"}), (0, 16, {"a", "out"})]


def test_other_loops_stay() -> None:
    still = For("v", IntImm(-2), IntImm(8), ForKind.SERIAL, asked(0, Store("out", place(V), ONE)))
    assert not slides(still)
    assert begun_apart(still) is still
    body = Block(moved("a", 3, Load(T, "image", place(V))))
    unknown = For("v", IntImm(-2), Var("n"), ForKind.SERIAL, body)
    assert slides(unknown)
    assert begun_apart(unknown) == unknown


ONE = Broadcast(Load(FLOAT32, "image", IntImm(0)), LANES)


def test_divisions_make_a_text_long() -> None:
    def loop(index: Expr) -> For:
        body = Block(moved("a", 3, Broadcast(Load(FLOAT32, "image", index), LANES)))
        return For("v", IntImm(0), IntImm(8), ForKind.SERIAL, body)

    assert is_short_text(loop(div(V, IntImm(4))))
    assert not is_short_text(loop(mod(V, Var("n"))))


@pytest.mark.parametrize(
    ("a", "b", "apart"),
    [(row(0), row(1), True), (row(1), row(0), True), (row(0), row(0), False),
     (row(0), Ramp(IntImm(2), IntImm(1), LANES), False),
     (Ramp(IntImm(0), IntImm(2), LANES), Ramp(IntImm(1), IntImm(2), LANES), True),
     (Ramp(IntImm(0), IntImm(2), LANES), Ramp(IntImm(2), IntImm(2), LANES), False),
     (row(0), Ramp(Var("n"), IntImm(1), LANES), False)],
)  # fmt: skip
def test_vectors_of_other_elements(a: Expr, b: Expr, apart: bool) -> None:
    assert no_index_of(a, b) is apart
