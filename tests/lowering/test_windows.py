"""Windows of a band that start at multiples of 16 bytes: the same product as before."""

from __future__ import annotations

import numpy as np
import pytest

from selector.intrinsics import records
from selector.ir.affine import Affine
from selector.ir.nodes import Compare, CompareOp, IntImm, Var
from selector.ir.types import FLOAT16, INT8, Type
from selector.lowering.tiles import DEPTH, Access, Accumulate, Banded, align_windows

ROWS, TAPS, STRIDE = 16, 9, 2
Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]


def statement(
    offset: int,
    row_stride: int = 16,
    symbolic: int = 64,
    kind: Type = FLOAT16,
    name: str = "mma.m16n8k16.f16.f32",
    more: int = 0,
) -> Accumulate:
    """Windows of a staged row that start ``offset`` elements behind its start; ``more``: depth
    beyond what the band needs.
    """
    instruction = records.find(name)
    assert instruction is not None
    depth = TAPS + 7 * STRIDE + more
    base = Affine.of(Var("row")) * symbolic + offset
    one, window = Affine.of(1), Affine.of(row_stride)
    a = Access("staged", kind, ROWS, depth, base, window, one, None, True)
    taps = Affine.of(0)
    b = Banded("K", kind, 8, depth, STRIDE, 1, 1, TAPS, taps, one, taps, None)
    return Accumulate("acc", taps, ROWS, 8, depth, instruction, a, b)


def product(s: Accumulate, memory: Matrix, taps: Matrix) -> Matrix:
    """What the operands say, element by element; ``row`` is 1."""
    assert isinstance(s.a, Access)
    assert isinstance(s.b, Banded)
    start = s.a.base.offset + sum(c for m, c in s.a.base if m)
    row_step, step = s.a.row_stride.constant, s.a.depth_stride.constant
    assert row_step is not None
    assert step is not None
    windows = np.array(
        [[memory[start + row_step * r + step * d] for d in range(s.a.depth)] for r in range(s.m)]
    )
    band = np.zeros((s.b.depth, s.b.rows))
    for d in range(s.b.depth):
        for n in range(s.b.rows):
            tap = d - s.b.lead - s.b.stride * n
            band[d, n] = taps[tap] if 0 <= tap < s.b.taps else 0
    return windows @ band


@pytest.mark.parametrize("offset", [0, 1, 5, 7, 8, 19])
def test_the_product_stays(offset: int) -> None:
    rng = np.random.default_rng(offset)
    memory, taps = rng.standard_normal(600), rng.standard_normal(TAPS)
    before = statement(offset)
    after = align_windows(before)
    assert isinstance(after.a, Access)
    assert after.a.base.offset % 8 == 0
    assert after.k == after.a.depth == before.k + offset % 8
    np.testing.assert_allclose(product(after, memory, taps), product(before, memory, taps))


def test_windows_that_differ_stay_where_they_are() -> None:
    for s in (statement(3, row_stride=4), statement(3, symbolic=12)):
        assert align_windows(s) is s


def test_a_masked_window_stays_where_it_is() -> None:
    s = statement(3)
    assert isinstance(s.a, Access)
    masked = Access(
        s.a.buffer, FLOAT16, ROWS, s.k, s.a.base, s.a.row_stride, s.a.depth_stride,
        Compare(CompareOp.LT, DEPTH, IntImm(4)), True,
    )  # fmt: skip
    other = Accumulate(s.accumulator, s.offset, s.m, s.n, s.k, s.instruction, masked, s.b)
    assert align_windows(other) is other


def of_bytes(offset: int, row_stride: int = 8, more: int = 0) -> Accumulate:
    return statement(offset, row_stride, 64, INT8, "mma.m16n8k32.s8.s32", more)


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 4, 42])
def test_bytes_start_at_whole_words(offset: int) -> None:
    """Their windows lie 8 bytes apart: registers of four are words then."""
    rng = np.random.default_rng(offset)
    memory, taps = rng.integers(0, 9, 600).astype(float), rng.integers(0, 9, TAPS).astype(float)
    before = of_bytes(offset)
    after = align_windows(before)
    assert isinstance(after.a, Access)
    assert after.a.base.offset % 4 == 0
    assert after.k == before.k + offset % 4
    np.testing.assert_array_equal(product(after, memory, taps), product(before, memory, taps))


def test_bytes_that_would_take_another_instruction_stay_where_they_are() -> None:
    whole = of_bytes(2, more=32 - (TAPS + 7 * STRIDE))
    assert align_windows(whole) is whole
    assert align_windows(of_bytes(2, row_stride=6)).k == of_bytes(2).k
