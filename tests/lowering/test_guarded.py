"""Loops begin and end where a condition says which iterations count."""

from __future__ import annotations

from selector.ir.kinds import CompareOp, ForKind
from selector.ir.nodes import (
    Allocate,
    Block,
    Compare,
    Expr,
    For,
    IfThenElse,
    IntImm,
    LetStmt,
    Load,
    Memory,
    Stmt,
    Store,
    Var,
)
from selector.ir.printer import print_expr
from selector.ir.types import INT32
from selector.lowering.guarded import guarded

V, ROW = Var("v"), Load(INT32, "first", Var("g"))


def loop(body: Stmt) -> For:
    return For("v", IntImm(0), Var("n"), ForKind.SERIAL, body)


def when(op: CompareOp, a: Expr, b: Expr, then: Stmt) -> Stmt:
    return IfThenElse(Compare(op, a, b), then)


def staged(then: Stmt) -> Stmt:
    """A copy in every iteration, and what is done with it."""
    copy = Store("copy", IntImm(0), Load(INT32, "image", V))
    return Allocate("copy", INT32, (IntImm(1),), Memory.GPU_SHARED, Block((copy, then)))


SUM = Store("sum", IntImm(0), Load(INT32, "copy", IntImm(0)))


def test_both_ends() -> None:
    body = when(CompareOp.LE, ROW, V, when(CompareOp.LT, V, Var("last"), SUM))
    found = guarded(loop(staged(body)))
    assert isinstance(found, LetStmt)
    inner = found.body
    assert isinstance(inner, LetStmt)
    assert isinstance(inner.body, For)
    assert inner.body.body == staged(SUM)
    ends = print_expr(found.value), print_expr(inner.value)
    assert ends == ("max(0, first[g])", "min(n, last)")
    assert inner.body.min == Var(found.name)


def test_other_stores_are_done_in_every_iteration() -> None:
    """Of memory that stays, without the condition."""
    other = Store("count", IntImm(0), V)
    s = loop(Block((other, when(CompareOp.LE, ROW, V, SUM))))
    assert guarded(s) == s


def test_bounds_that_change_are_none() -> None:
    inside = Load(INT32, "copy", IntImm(0))
    own = Load(INT32, "sum", IntImm(0))
    for bound in (inside, own, Load(INT32, "first", V)):
        s = loop(staged(when(CompareOp.LE, bound, V, SUM)))
        assert guarded(s) == s


def test_what_else_is_asked_stays() -> None:
    more = when(CompareOp.LT, Var("a"), Var("b"), SUM)
    found = guarded(loop(staged(when(CompareOp.LE, ROW, V, more))))
    assert isinstance(found, LetStmt)
    assert isinstance(found.body, LetStmt)
    assert isinstance(found.body.body, For)
    assert found.body.body.body == staged(more)
