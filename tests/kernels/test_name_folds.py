"""A coordinate that mirrors or comes around is found out once, before the loop that does not change
it; what nobody has twice, a constant divides or an assignment changes stays as it is.
"""

from __future__ import annotations

import pytest

from selector.gpu.ir.expressions import element, moved, number, plus, pointer, times
from selector.gpu.ir.memory import LoadVector, Store
from selector.gpu.ir.nodes import Assign, Body, For, If, Kernel, Let, Node
from selector.gpu.passes.name_folds import name_folds
from selector.ir.nodes import Call, Compare, CompareOp, Expr, IntImm, Select, Var
from selector.ir.types import FLOAT32, INT32

X, Y, WIDTH = (Var(n, INT32) for n in ("x", "y", "width"))
EDGE = Compare(CompareOp.LT, X, WIDTH)


def fold(at: Expr, by: Expr = WIDTH) -> Expr:
    return Call(INT32, "floor_mod", (at, times(by, 2) if by is WIDTH else by))


def mirrored(at: Expr, by: Expr = WIDTH) -> Expr:
    """What Halide says of an element beyond an edge."""
    there = fold(at, by)
    return Select(Compare(CompareOp.LT, there, by), there, plus(times(by, 2), there))


def stored(at: Expr, to: Expr = X) -> Node:
    out = element(FLOAT32, pointer("out"), to)
    return Store(out, element(FLOAT32, pointer("image"), at))


def loop(*body: Node, over: Var = X) -> For:
    return For("unrolled", over.name, number(0), number(4), None, body)


def after(*body: Node) -> Body:
    kernel = Kernel("k", 32, 1, (), (), body)
    changed = name_folds(kernel)
    assert (changed is kernel) == (changed.body == body)
    return changed.body


def near(at: Expr, name: str) -> Let:
    return Let("int", (name,), (Call(INT32, "floor_mod_near", fold(at).args),))  # type: ignore[attr-defined]


def test_each_turn_finds_it_out_once() -> None:
    (found,) = after(loop(stored(mirrored(X))))
    assert isinstance(found, For)
    let, store = found.body
    assert let == near(X, "folded0")
    assert isinstance(store, Store)
    value = Var("folded0", INT32)
    below = Compare(CompareOp.LT, value, WIDTH)
    assert store == stored(Select(below, value, plus(times(WIDTH, 2), value)))


def test_what_a_loop_does_not_change_is_found_out_before_it() -> None:
    both = plus(mirrored(X), mirrored(Y))
    row, found = after(loop(stored(both)))
    assert row == near(Y, "folded1")
    assert isinstance(found, For)
    assert found.body[0] == near(X, "folded0")


def test_siblings_share_a_name() -> None:
    row = mirrored(Y)
    load = LoadVector(pointer("run"), number(0), element(FLOAT32, pointer("image"), row), 16)
    let, first, second = after(load, stored(row))
    assert let == near(Y, "folded0")
    assert isinstance(first, LoadVector)
    assert isinstance(second, Store)
    assert after(stored(row)) == (stored(row),)  # a thread's only one is on its condition


def test_arms_of_a_branch_keep_their_own() -> None:
    (found,) = after(loop(If(EDGE, (stored(mirrored(Y)),), (stored(Y),))))
    assert isinstance(found, For)
    (branch,) = found.body
    assert isinstance(branch, If)
    assert branch.then[0] == near(Y, "folded0")
    assert branch.otherwise == (stored(Y),)


@pytest.mark.parametrize(
    "body",
    [
        (loop(stored(fold(X))),),
        (loop(stored(mirrored(X, IntImm(7)))),),
        (loop(Assign("x", plus(X, 1)), stored(mirrored(X)), over=Y),),
        (loop(For("rolled", "x", None, number(4), None, (stored(mirrored(X)),)), over=Y),),
        (loop(stored(moved(X, 1))),),
    ],
    ids=[
        "once",
        "a constant",
        "a variable that changes",
        "one that a loop goes on with",
        "nothing that comes around",
    ],
)
def test_others_stay(body: Body) -> None:
    assert after(*body) == body


def test_a_name_that_there_is_stays_what_it_is() -> None:
    (found,) = after(loop(stored(mirrored(X), Var("folded0", INT32))))
    assert isinstance(found, For)
    assert found.body[0] == near(X, "folded1")
