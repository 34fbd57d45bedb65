"""What threads do each on its own, whatever loops and conditions it stands in."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pytest

from selector.gpu.ir.expressions import flag, number, pointer
from selector.gpu.ir.memory import CopyAsync, StoreChunk
from selector.gpu.ir.nodes import Body, For, If, Kernel, Leave, Node, Sync, walk
from selector.gpu.simulator import moved
from selector.gpu.simulator.moved import Alone

KERNEL = Kernel("k", "", 32, 1, (), (), ())
COPY = CopyAsync(number("to"), number("from"), "past")
STORE = StoreChunk(pointer("to"), pointer("from"))


def loop(*body: Node) -> For:
    return For("rolled", "i", number(0), number(4), None, body)


def kernel(*body: Node) -> tuple[Kernel, Alone]:
    found = replace(KERNEL, body=body)
    return found, Alone(found)


@pytest.mark.parametrize(("body", "moves", "stores"), [
    ((COPY, STORE), True, False),
    ((STORE,), False, True),
    ((STORE, Sync("block")), False, False),
    ((COPY, Sync("warp")), False, False),
    ((), False, False),
])  # fmt: skip
def test_what_a_loop_is(body: Body, moves: bool, stores: bool) -> None:
    node = loop(*body)
    _, alone = kernel(node)
    assert (alone.moves_only(node), alone.stores_only(node)) == (moves, stores)


@pytest.mark.parametrize("what", ["loop", "iteration", "kernel"])
def test_who_leaves_a_loop_goes_on_behind_it(what: str) -> None:
    inner = If(flag("f"), (Leave(what),))
    node = loop(inner, STORE)
    _, alone = kernel(node)
    assert alone.stores_only(node) == (what != "kernel")
    assert not alone.stores_only(inner)


def test_each_node_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Node] = []

    def children(node: Node) -> Body:
        looked.append(node)
        return moved_children(node)

    moved_children = moved.children
    monkeypatch.setattr(moved, "children", children)
    nest = reduce(lambda node, _: loop(node), range(20), loop(COPY))
    found, alone = kernel(nest)
    assert all(alone.moves_only(node) for node in walk(found.body))
    assert len(looked) == len(tuple(walk(found.body)))
