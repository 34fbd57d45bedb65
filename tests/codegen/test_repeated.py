"""What a persistent block does once: statements that every turn would do alike, and no others."""

from __future__ import annotations

import pytest

from selector.gpu.codegen.warpgroups.turn_tiles import Repeated, split_repeated, way_to
from selector.ir.affine import Affine
from selector.ir.nodes import (
    Allocate,
    Block,
    Expr,
    For,
    ForKind,
    IntImm,
    LetStmt,
    Load,
    Memory,
    Stmt,
    Store,
    Var,
)
from selector.ir.traverse import walk_stmt
from selector.ir.types import FLOAT16

EIGHT = IntImm(8)
STEP, BLOCK, SHIFT = Var("i"), Var("block"), Var("shift")


def loop(body: Stmt) -> For:
    return For("i", IntImm(0), EIGHT, ForKind.SERIAL, body)


def copy(to: str, source: str, *more: Expr) -> For:
    """``to[i] = source[i + more]``."""
    index = Affine.of(STEP)
    for e in more:
        index += Affine.of(e)
    return loop(Store(to, STEP, Load(FLOAT16, source, index.to_expr())))


RING = For("k", IntImm(0), EIGHT, ForKind.SERIAL, copy("out", "taps", Var("k")))


def kernel(*before: Stmt, after: tuple[Stmt, ...] = ()) -> Stmt:
    inner: Stmt = Block((*before, RING, *after))
    for name in ("taps", "other"):
        inner = Allocate(name, FLOAT16, (EIGHT,), Memory.GPU_SHARED, inner)
    return inner


def split(body: Stmt) -> Repeated:
    way = way_to(RING, body)
    assert way is not None
    return split_repeated(body, way, {"block"})


def once(body: Stmt) -> tuple[Stmt, ...]:
    found = split(body)
    written = {
        x.body.buffer for x in found.once if isinstance(x, For) and isinstance(x.body, Store)
    }
    assert {a.name for a in found.allocations} == written
    return found.once


def test_a_way_ends_at_loops_and_knows_what_stands_beside_it() -> None:
    first, second = copy("taps", "K"), copy("other", "K")
    way = way_to(RING, LetStmt("shift", BLOCK, kernel(first, after=(second,))))
    assert way is not None
    assert (way.before, way.after) == ((first,), (second,))
    assert [a.name for a in way.shared] == ["other", "taps"]
    assert [let.name for let in way.lets] == ["shift"]
    assert way_to(RING, loop(kernel())) is None


def test_a_copy_that_no_block_changes_is_made_once() -> None:
    weights = copy("taps", "K")
    found = split(kernel(weights))
    assert found.once == (weights,)
    assert [a.name for a in found.allocations] == ["taps"]
    assert weights not in walk_stmt(found.rest)
    assert RING in walk_stmt(found.rest)


@pytest.mark.parametrize(
    "body",
    [
        kernel(copy("taps", "K", BLOCK)),  # other weights for each block
        kernel(copy("taps", "K"), after=(copy("taps", "K2"),)),  # overwritten in every turn
        kernel(copy("taps", "K"), copy("taps", "K2")),
        kernel(copy("taps", "out")),  # what the kernel writes itself
        kernel(copy("out", "K")),  # results
        LetStmt("shift", BLOCK, kernel(copy("taps", "K", SHIFT))),
        kernel(after=(copy("other", "K"),)),  # behind the ring: its room may be needed before
    ],
)
def test_others_stay_in_the_turn(body: Stmt) -> None:
    assert not once(body)
    assert split(body).rest == body


def test_only_what_can_be_is_taken_out() -> None:
    first, second = copy("taps", "K"), copy("other", "K", BLOCK)
    assert once(kernel(first, second)) == (first,)
    assert once(kernel(second, first)) == (first,)
