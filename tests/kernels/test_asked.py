"""What the simulator leaves out of a kernel's control: what nobody sees outside of it."""

from __future__ import annotations

from selector.gpu.ir.expressions import less, number, plus
from selector.gpu.ir.nodes import Assign, Body, For, If, Leave, Let, Node, State, Sync
from selector.gpu.simulator.asked import asked_only

LEAVES, ENDS = (If(less("i", 2), (Leave(what),)) for what in ("loop", "kernel"))


def loop(*body: Node) -> Node:
    return For("plain", "i", number(0), number(4), None, body)


def left(*body: Node) -> Body:
    return asked_only(body)


def test_loops_in_which_nothing_is_left() -> None:
    assert left(loop(LEAVES)) == ()
    assert left(loop(Let("int", ("x",), (plus("i", 1),)), loop(LEAVES), LEAVES)) == ()


def test_what_ends_more_than_the_loop_stays() -> None:
    assert left(loop(ENDS)) == (loop(ENDS),)
    assert left(loop(LEAVES, Sync("block"))) == (loop(LEAVES, Sync("block")),)


def test_what_is_asked_for_stays() -> None:
    count = State("int", ("x",), (number(0),)), loop(Assign("x", plus("x", "i")), LEAVES)
    asked = If(less("x", 5), (Sync("block"),))
    assert left(*count, asked) == (*count, asked)
    other = State("int", ("y",), (number(0),)), loop(Assign("z", number("i")), LEAVES)
    assert left(*count, *other, asked) == (*count, other[1], asked)
