"""Scheduled fragments compute the product: a simulation of fetches and instructions in NumPy.

Memory holds small integers, so sums are exact. A fetch takes the elements that the operand's
definition gives a block; an instruction multiplies what is held under its blocks' keys. Blocks that
are wrongly held to be equal, or fetched too late, give other numbers.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.intrinsics import find
from selector.ir.affine import Affine
from selector.ir.interpreter import evaluate_scalar
from selector.ir.nodes import Compare, CompareOp, Expr, IntImm, Var
from selector.ir.types import FLOAT16, INT8
from selector.lowering.fragments import (
    BLOCK_ROWS,
    Block,
    Event,
    Fetch,
    MatrixOp,
    depth_blocks,
    expand,
    is_swapped,
    schedule,
)
from selector.lowering.tiles import DEPTH, ROW, Access, Accumulate, Banded, Operand

SIZE = 4096
BASE = Var("base")
ENVIRONMENT = {"base": 64}
INSTRUCTIONS = {
    FLOAT16: find("wmma.mma.m16n16k16.f16.f32"),
    INT8: find("mma.m16n8k32.s8.s32"),
}

Matrix = np.ndarray[tuple[int, int], np.dtype[np.int64]]
Memory = dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]]


def value_at(index: Affine) -> int:
    return evaluate_scalar(index.to_expr(), ENVIRONMENT)


def holds(predicate: Expr | None, row: int, depth: int) -> bool:
    if predicate is None:
        return True
    return bool(evaluate_scalar(predicate, {**ENVIRONMENT, ROW.name: row, DEPTH.name: depth}))


def elements(o: Operand, rows: range, deep: range, memory: Memory) -> Matrix:
    """Elements of an operand by its definition; past its depth, what an instruction may meet."""
    row, depth = np.array(rows)[:, None], np.array(deep)[None, :]
    if isinstance(o, Banded):
        tap, rest = np.divmod(depth - o.stride * row, o.dilation)
        inside = (rest == 0) & (tap >= 0) & (tap < o.taps)
        index = value_at(o.base) + value_at(o.tap_stride) * np.where(inside, tap, 0)
    else:
        inside = (depth < o.depth) | np.full(row.shape, o.meets_band)
        if o.predicate is not None:
            inside &= np.array([[holds(o.predicate, r, d) for d in deep] for r in rows])
        index = value_at(o.base) + value_at(o.row_stride) * row + value_at(o.depth_stride) * depth
    return np.where(inside, memory[o.buffer][np.where(inside, index, 0)], 0)


def whole(o: Operand, memory: Memory) -> Matrix:
    """The operand as a matrix (rows, depth)."""
    return elements(o, range(o.rows), range(o.depth), memory)


def contents(block: Block, memory: Memory) -> Matrix:
    rows = range(BLOCK_ROWS * block.row, BLOCK_ROWS * (block.row + 1))
    deep = range(block.per * block.depth, block.per * (block.depth + 1))
    return elements(block.operand, rows, deep, memory)


def simulate(statements: list[Accumulate], events: list[Event], memory: Memory) -> dict:
    """Accumulators by (name, offset) after the events."""
    registers: dict[int, Matrix] = {}
    results = {
        (s.accumulator, value_at(s.offset)): np.zeros((s.m, s.n), np.int64) for s in statements
    }
    for event in events:
        match event:
            case Fetch(blocks):
                for block in blocks:
                    registers[block.key] = contents(block, memory)
            case MatrixOp(number, (i, j), a, b):
                s = statements[number]
                whole_tile = results[s.accumulator, value_at(s.offset)]
                tile = whole_tile.T if is_swapped(s) else whole_tile
                for depth, right in enumerate(b):
                    left = np.vstack([registers[x.key] for x in a[2 * depth : 2 * depth + 2]])
                    tile[16 * i : 16 * i + 16, 8 * j : 8 * j + 8] += left @ registers[right.key].T
    return results


def expected(statements: list[Accumulate], memory: Memory) -> dict:
    results: dict = {}
    for s in statements:
        product = whole(s.a, memory) @ whole(s.b, memory).T
        key = (s.accumulator, value_at(s.offset))
        results[key] = results.get(key, 0) + product
    return results


def longest_hold(events: list[Event]) -> int:
    """Most blocks that wait, after some instruction, for a later one."""
    uses: dict[int, list[int]] = {}
    spans: list[tuple[int, int]] = []
    for time in range(len(events) - 1, -1, -1):
        event = events[time]
        if isinstance(event, MatrixOp):
            for block in (*event.a, *event.b):
                uses.setdefault(block.key, []).append(time)
        else:
            spans += [(time, max(uses.pop(b.key))) for b in event.blocks if b.key in uses]
    ops = [t for t, e in enumerate(events) if isinstance(e, MatrixOp)]
    return max((sum(start < t < end for start, end in spans) for t in ops), default=0)


def check(statements: list[Accumulate], together: int = 4, registers: int = 64) -> list[Event]:
    memory = {
        name: np.random.default_rng(number).integers(-9, 10, SIZE)
        for number, name in enumerate("ABIK")
    }
    events = schedule(expand(statements), together, registers)
    found, wanted = simulate(statements, events, memory), expected(statements, memory)
    for key, matrix in wanted.items():
        np.testing.assert_array_equal(found[key], matrix)
    assert longest_hold(events) <= registers
    check_fetches(events, together)
    return events


def check_fetches(events: list[Event], together: int) -> None:
    for event in events:
        if not isinstance(event, Fetch):
            continue
        first = event.blocks[0]
        assert len(event.blocks) in (1, 2, 4)
        if isinstance(first.operand, Banded):
            assert len(event.blocks) == 1
            continue
        assert len(event.blocks) <= together
        offsets = [value_at(b.origin) - value_at(first.origin) for b in event.blocks]
        assert {b.family for b in event.blocks} == {first.family}
        assert len({b.ragged and not b.operand.meets_band for b in event.blocks}) == 1
        # Lane l names row l % 8 of matrix l / 8: two bits of l give two independent offsets.
        by_lane = [
            sum(o for bit, o in enumerate(offsets[1:3]) if n >> bit & 1)
            for n in range(len(offsets))
        ]
        assert offsets == by_lane


def access(
    buffer: str,
    rows: int,
    depth: int,
    strides: tuple[int, int],
    base: int = 0,
    *,
    kind=FLOAT16,
    predicate: Expr | None = None,
    meets_band: bool = False,
) -> Access:
    return Access(
        buffer,
        kind,
        rows,
        depth,
        Affine.of(BASE) + base,
        Affine.of(strides[0]),
        Affine.of(strides[1]),
        predicate,
        meets_band,
    )


def convolution(
    m: int,
    taps: int,
    stride: int = 1,
    dilation: int = 1,
    base: int = 0,
    *,
    kind=FLOAT16,
    n: int = 8,
    offset: int = 0,
    tap_base: int = 0,
) -> Accumulate:
    """Rows of A are windows ``n * stride`` apart; B is the band of the taps."""
    depth = dilation * (taps - 1) + stride * (n - 1) + 1
    a = access("I", m, depth, (n * stride, 1), base, kind=kind, meets_band=True)
    first, one, zero = Affine.of(tap_base), Affine.of(1), Affine.of(0)
    b = Banded("K", kind, n, depth, stride, dilation, 1, taps, first, one, zero, None)
    return Accumulate("acc", Affine.of(offset), m, n, depth, INSTRUCTIONS[kind], a, b)


def product(m: int, n: int, k: int, *, kind=FLOAT16, base: int = 0, offset: int = 0) -> Accumulate:
    a = access("A", m, k, (k + 3, 1), base, kind=kind)
    b = access("B", n, k, (1, n + 5), base, kind=kind)
    return Accumulate("acc", Affine.of(offset), m, n, k, INSTRUCTIONS[kind], a, b)


@pytest.mark.parametrize("taps", [1, 2, 8, 9, 16, 17, 25, 33, 64])
def test_convolution(taps: int) -> None:
    check([convolution(32, taps)])


def test_overlapping_windows_are_fetched_once() -> None:
    """Windows 8 apart of 16-bit elements: each block of A is the next row's first."""
    statement = convolution(32, 121)
    events = check([statement])
    fetched = [
        b for e in events if isinstance(e, Fetch) for b in e.blocks if b.operand is statement.a
    ]
    assert len({b.key for b in fetched}) == len(fetched)
    rows, deep = 32 // BLOCK_ROWS, depth_blocks(statement.a)
    assert len(fetched) < rows * deep


def test_two_half_depths_become_one_instruction() -> None:
    """Depth 8 is half an instruction; two rows of taps into one accumulator make a whole one."""
    rows = [convolution(16, 1, base=0), convolution(16, 1, base=200, tap_base=7)]
    assert [len(op.b) for op in expand(rows)] == [2]
    check(rows)


def test_three_half_depths_leave_a_short_instruction() -> None:
    rows = [convolution(16, 1, base=200 * i, tap_base=i) for i in range(3)]
    assert sorted(len(op.b) for op in expand(rows)) == [1, 2]
    check(rows)


def test_halves_of_different_accumulators_are_not_joined() -> None:
    rows = [convolution(16, 1), convolution(16, 1, base=200, offset=128)]
    assert [len(op.b) for op in expand(rows)] == [1, 1]
    check(rows)


@pytest.mark.parametrize(("m", "n"), [(8, 32), (8, 16), (24, 16)])
def test_short_rows_are_taken_transposed(m: int, n: int) -> None:
    statement = product(m, n, 40)
    assert is_swapped(statement)
    check([statement])


def test_predicates_of_one_operand_keep_blocks_apart() -> None:
    """Two statements that read one place under different conditions have different blocks."""
    low = Compare(CompareOp.LT, ROW, IntImm(5))
    high = Compare(CompareOp.LT, DEPTH, IntImm(9))
    statements = []
    for number, predicate in enumerate((low, high)):
        a = access("A", 16, 16, (16, 1), predicate=predicate)
        b = access("B", 8, 16, (1, 8))
        statements.append(
            Accumulate("acc", Affine.of(128 * number), 16, 8, 16, INSTRUCTIONS[FLOAT16], a, b)
        )
    check(statements)


def test_what_stops_at_its_depth_is_fetched_apart() -> None:
    """The last 8 elements of a masked operand's depth of 27 are not all there: what fetches the
    others in whole steps would read past its end."""
    predicate = Compare(CompareOp.LT, DEPTH, IntImm(20))
    a = access("A", 16, 27, (1, 24), predicate=predicate)
    b = access("B", 16, 27, (1, 24))
    check([Accumulate("acc", Affine.of(0), 16, 16, 27, INSTRUCTIONS[FLOAT16], a, b)])


def test_few_registers_mean_fetching_again() -> None:
    statements = [product(64, 64, 32)]
    enough = check(statements, registers=64)
    few = check(statements, registers=12)
    assert sum(isinstance(e, Fetch) for e in few) > sum(isinstance(e, Fetch) for e in enough)


@st.composite
def runs(draw: st.DrawFn) -> list[Accumulate]:
    """One to three statements that a kernel might hold side by side."""
    kind = draw(st.sampled_from([FLOAT16, INT8]))
    count = draw(st.integers(1, 3))
    numbers = [draw(st.integers(0, 120)) for _ in range(count)]
    same = draw(st.booleans())
    if draw(st.booleans()):
        m, n = draw(st.sampled_from([(16, 8), (32, 8), (16, 16), (8, 16), (8, 32)]))
        k = draw(st.integers(1, 50))
        return [
            product(m, n, k, kind=kind, base=b, offset=0 if same else i * m * n)
            for i, b in enumerate(numbers)
        ]
    m, n = draw(st.sampled_from([(16, 8), (32, 8), (8, 16), (16, 16)]))
    taps, stride = draw(st.integers(1, 30)), draw(st.integers(1, 3))
    dilation = draw(st.integers(1, 3))
    step = draw(st.sampled_from([8, 128, 37]))
    return [
        convolution(
            m,
            taps,
            stride,
            dilation,
            step * i,
            kind=kind,
            n=n,
            offset=0 if same else i * m * n,
            tap_base=b,
        )
        for i, b in enumerate(numbers)
    ]


@settings(max_examples=300)
@given(runs(), st.sampled_from([1, 2, 4]), st.integers(6, 40))
def test_random_runs(statements: list[Accumulate], together: int, registers: int) -> None:
    check(statements, together, registers)
