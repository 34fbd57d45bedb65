"""Loops run over the iterations that count: exactly those in which a mask lets anything through."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("halide")

import numpy as np

import halide_bridge as hb
from casestudies.attention.algorithm import attend
from halide_bridge.schedules import schedule_attention
from selector.families.attention import Tiling
from selector.ir.evaluator import evaluate_scalar
from selector.ir.kinds import BinaryOp, CompareOp, ForKind, ReduceOp
from selector.ir.nodes import (
    Binary,
    Broadcast,
    Compare,
    Expr,
    FloatImm,
    For,
    IntImm,
    Load,
    Ramp,
    Select,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.printer import print_expr
from selector.ir.traverse import change_expr, change_exprs, free_vars, walk_stmt
from selector.ir.types import FLOAT32, INT32
from selector.lowering.trim import trimmed
from tests.lowering.test_online import error, operands

pytestmark = pytest.mark.verified


def runs(tiles: Tiling, *, causal: bool, window: int) -> For:
    """The loop over runs of keys."""
    p = attend(64, causal=causal, run=tiles.keys, window=window)
    module = hb.lower(schedule_attention(p, tiles))
    (loop,) = [s for s in walk_stmt(module.body) if isinstance(s, For) and s.kind is ForKind.SERIAL]
    return loop


def bounds(loop: For, block: int, keys: int) -> tuple[int, int]:
    """First iteration and end of it in a block."""
    names = free_vars(loop.min) | free_vars(loop.extent)
    values = {name: block if ".block_id_" in name else keys for name in names}
    first, extent = (evaluate_scalar(e, values) for e in (loop.min, loop.extent))
    return first, first + extent


@settings(max_examples=12, deadline=None)
@given(
    units=st.integers(1, 4),
    keys=st.sampled_from((32, 64, 96)),
    length=st.integers(1, 900),
    window=st.one_of(st.just(0), st.integers(1, 500)),
    causal=st.booleans(),
)
def test_the_first_and_last_run_of_keys(
    units: int, keys: int, length: int, window: int, causal: bool
) -> None:
    window = window if causal else 0
    tiles = Tiling(units, 16, keys)
    loop = runs(tiles, causal=causal, window=window)
    m, n = np.arange(-(-length // tiles.block) * tiles.block)[:, None], np.arange(length)
    seen = (n <= m) & (n > m - (window or m.size)) if causal else np.ones((m.size, length), bool)
    for block in range(m.size // tiles.block):
        columns = np.flatnonzero(seen[block * tiles.block :][: tiles.block].any(0))
        if columns.size:
            first, end = bounds(loop, block, length)
            assert (first, end) == (columns[0] // keys, columns[-1] // keys + 1)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("window", [1, 63, 64, 65, 200])
def test_a_window_gives_what_all_keys_under_its_mask_give(window: int, persistent: bool) -> None:
    tiles = Tiling(2, 64, 64, 2, 64, groups=True)
    output = schedule_attention(attend(64, causal=True, run=tiles.keys, window=window), tiles)
    if persistent:
        hb.persistent(output)
    kernel = hb.compile(output, target="sm_90a")
    for length in (1, 129, 333):
        arrays = operands(2, length, length)
        q, k, v = (arrays[name].astype(np.float64) for name in "QKV")
        scores = q @ k.transpose(0, 2, 1) / 8
        seen = np.tri(length, dtype=bool) & ~np.tri(length, k=-window, dtype=bool)
        weights = np.where(seen, np.exp(scores - scores.max(-1, keepdims=True)), 0)
        expected = weights @ v / weights.sum(-1, keepdims=True)
        assert error(kernel.interpret(**arrays, sizes=(2, length, 64)), expected) < 5e-4


BLOCK, TURN = Var("out.s0.b.block_id_x"), Var("t")


def summed(length: Expr) -> For:
    """The sum of the first ``length`` of 64 numbers, 8 in an iteration."""
    lanes, at = 8, Binary(BinaryOp.MUL, TURN, IntImm(8))
    place = Ramp(at, IntImm(1), lanes)
    mask = Compare(CompareOp.LT, place, Broadcast(length, lanes))
    number = Load(FLOAT32.with_lanes(lanes), "I", place)
    zero = Broadcast(FloatImm(0.0, FLOAT32), lanes)
    term = VectorReduce(ReduceOp.ADD, Select(mask, number, zero), 1)
    own = Load(FLOAT32, "sum", IntImm(0))
    body = Store("sum", IntImm(0), Binary(BinaryOp.ADD, own, term))
    return For("t", IntImm(0), IntImm(8), ForKind.SERIAL, body)


def length_at(index: Expr, buffer: str = "L") -> Expr:
    return Load(INT32, buffer, index)


def test_a_loop_ends_at_the_length_that_an_array_has_for_the_block() -> None:
    loop = trimmed(summed(length_at(BLOCK)), {"sum": 0.0})
    assert print_expr(loop.extent) == "min(8, ((L[out.s0.b.block_id_x] + -1)/8) + 1)"


def test_a_loop_has_no_iteration_where_no_lane_of_the_block_counts() -> None:
    loop = summed(length_at(BLOCK))
    store = loop.body
    assert isinstance(store, Store)
    rows = Ramp(Binary(BinaryOp.MUL, BLOCK, IntImm(8)), IntImm(1), 8)
    held = Compare(CompareOp.LT, rows, Broadcast(length_at(BLOCK), 8))

    def masked(e: Expr) -> Expr | None:
        if not isinstance(e, Select):
            return None
        return Select(Binary(BinaryOp.AND, e.condition, held), e.then, e.otherwise)

    found = trimmed(replace(loop, body=change_exprs(store, masked)), {"sum": 0.0}).extent
    for length in range(70):
        known = IntImm(length)
        extent = change_expr(found, lambda e, n=known: n if isinstance(e, Load) else None)
        runs = evaluate_scalar(extent, {BLOCK.name: 2})
        assert runs == (min(8, -(-length // 8)) if length > 16 else 0)


@pytest.mark.parametrize(
    ("length", "made"),
    [
        (length_at(BLOCK), frozenset({"L"})),  # the kernel itself fills it
        (length_at(BLOCK, "sum"), frozenset[str]()),
        (length_at(TURN), frozenset[str]()),  # another one in each iteration
        (length_at(Var("row")), frozenset[str]()),
    ],
)
def test_no_loop_ends_at_what_changes_or_is_not_there_yet(
    length: Expr, made: frozenset[str]
) -> None:
    loop = summed(length)
    assert trimmed(loop, {"sum": 0.0}, made) == loop
