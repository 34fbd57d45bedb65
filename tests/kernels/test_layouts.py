"""Layouts as values, element by element: that they are injective, what they print, and that who
writes a memory and who reads it mean the same byte.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from selector.diagnostics import InternalError
from selector.emit.context import Region, RowRegisters
from selector.gpu.ir.lane_maps import ACCUMULATOR, BLOCKS, ELEMENTS, LEFT, PAIRS, RIGHT, ROWS
from selector.gpu.ir.layouts import is_injective, parse_layout, places, sizes, strided
from selector.intrinsics.records import INSTRUCTIONS, TensorInstruction
from selector.ir.affine import Affine
from selector.lowering.fragments import BLOCK_BYTES, BLOCK_ROWS, expand
from selector.lowering.tiles import Access, Accumulate

TEXTS = (
    "strided(16384, 128, 2)",
    "strided(digits(8, 4 * lane, 2, 2 * register, warp), digits(2, register, 4, lane))",
    "strided(digits(64, 2, 8192), digits(8, lane + 16))",
    "swizzle(128) . strided(128, digits(64, 2, 8192))",
    "dealt(280, 2, 8) . strided(280, 1)",
)


@pytest.mark.parametrize("text", TEXTS)
def test_layouts_are_what_they_print(text: str) -> None:
    layout = parse_layout(text)
    assert str(layout) == text
    again = parse_layout(str(layout))
    assert again == layout
    assert hash(again) == hash(layout)
    assert len({parse_layout(t) for t in TEXTS}) == len(TEXTS)


def test_a_text_that_is_no_layout_is_refused() -> None:
    with pytest.raises(InternalError, match=r"`rows\(3\)` is no layout"):
        parse_layout("rows(3)")


def test_digits_add_up_by_coordinate() -> None:
    layout = strided("digits(8, 4 * lane, 2 * register), 100 * lane + 7")
    assert layout(19, 2) == {"lane": 12 + 200, "register": 4, "byte": 14}


def test_places_that_meet_are_found() -> None:
    assert is_injective(strided("8, 2"), 16, 4)
    assert not is_injective(strided("8, 2"), 16, 5)  # rows that overlap: for reading only
    assert sizes(strided("digits(4, 2, 100), 8"), 6, 3) == {"byte": 100 + 2 + 16 + 1}


def test_an_inverse_leads_back() -> None:
    back = ACCUMULATOR.inverse(row=64, column=24)
    there = places(ACCUMULATOR, 64, 24)
    found = back(there["lane"], there["register"], there["warp"])
    assert (found["row"] == np.arange(64)[:, None]).all()
    assert (found["column"] == np.arange(24)).all()


# ------------------------------------------------------------------ lane maps, against PTX


WIDTHS = sorted({i.n for i in INSTRUCTIONS if i.family == "wgmma" and i.n >= 8})


def ptx_accumulator(lane: int, register: int) -> tuple[int, int]:
    """PTX ISA, "Matrix Fragments for mma.m16n8k16": row and column of c0 ... c3."""
    row = lane >> 2 if register < 2 else (lane >> 2) + 8
    return row, (lane % 4) * 2 + (register & 1)


def ptx_left(lane: int, number: int, count: int) -> tuple[int, int]:
    """Row and column of a0 ..., of ``count`` elements in 4 bytes (m16n8k16; m16n8k32 of bytes)."""
    register, inside = divmod(number, count)
    row = lane >> 2 if register in (0, 2) else (lane >> 2) + 8
    return row, (lane % 4) * count + inside + (4 * count if register >= 2 else 0)


def ptx_right(lane: int, number: int, count: int) -> tuple[int, int]:
    """Row (of the depth) and column of b0 ..."""
    register, inside = divmod(number, count)
    return (lane % 4) * count + inside + (4 * count if register else 0), lane >> 2


def ptx_group(thread: int, number: int) -> tuple[int, int]:
    """PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16": row and column of d0 ..."""
    row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (number // 2 % 2)
    return row, 8 * (number // 4) + 2 * (thread % 4) + number % 2


def by_warp() -> list[TensorInstruction]:
    """Those that are issued as m16n8 pieces."""
    return [i for i in INSTRUCTIONS if i.family in ("mma", "wmma")]


@pytest.mark.parametrize("lane", range(32))
def test_accumulators_of_warps_lie_as_ptx_says(lane: int) -> None:
    for register in range(4):
        row, column = ptx_accumulator(lane, register)
        assert ACCUMULATOR(row, column) == {"lane": lane, "register": register, "warp": 0}


@pytest.mark.parametrize("n", WIDTHS)
def test_accumulators_of_groups_lie_as_ptx_says(n: int) -> None:
    assert is_injective(ACCUMULATOR, 64, n)
    assert sizes(ACCUMULATOR, 64, n) == {"lane": 32, "register": n // 2, "warp": 4}
    for thread, number in product(range(128), range(n // 2)):
        where = {"warp": thread // 32, "lane": thread % 32, "register": number}
        assert ACCUMULATOR(*ptx_group(thread, number)) == where


@pytest.mark.parametrize("instruction", by_warp(), ids=lambda i: i.name)
def test_operands_of_a_record_lie_as_ptx_says(instruction: TensorInstruction) -> None:
    each = instruction.a_type.bytes
    count = 4 // each
    for lane, number in product(range(32), range(4 * count)):
        row, depth = ptx_left(lane, number, count)
        assert LEFT(row, depth * each) == {
            "lane": lane, "register": number // count, "warp": 0, "byte": number % count * each,
        }  # fmt: skip
    for lane, number in product(range(32), range(2 * count)):
        depth, column = ptx_right(lane, number, count)
        assert RIGHT(column, depth * each) == {
            "lane": lane, "register": number // count, "byte": number % count * each,
        }  # fmt: skip
    assert is_injective(LEFT, 16, 32)
    assert is_injective(RIGHT, 8, 32)


@pytest.mark.parametrize("instruction", by_warp(), ids=lambda i: i.name)
def test_an_instruction_gets_its_blocks_in_the_order_of_registers(
    instruction: TensorInstruction,
) -> None:
    m, n, k = instruction.m, instruction.n, 2 * instruction.k
    one = Affine.of(1)
    a = Access("a", instruction.a_type, m, k, Affine.of(0), Affine.of(k), one, None)
    b = Access("b", instruction.b_type, n, k, Affine.of(0), Affine.of(k), one, None)
    for op in expand([Accumulate("c", Affine.of(0), m, n, k, instruction, a, b)]):
        for blocks, layout in ((op.a, LEFT), (op.b, RIGHT)):
            first = blocks[0]
            down = [BLOCK_ROWS * (x.row - first.row) for x in blocks]
            deep = [BLOCK_BYTES * (x.depth - first.depth) for x in blocks]
            found = [layout(*at)["register"] for at in zip(down, deep, strict=True)]
            assert found == list(range(len(blocks)))


def test_a_rounded_accumulator_is_an_operand() -> None:
    """Pairs of an accumulator, rounded to 16 bits, are the words of a left operand."""
    for row, column in product(range(64), range(16)):
        held, wanted = ACCUMULATOR(row, column), LEFT(row, 2 * column)
        assert (held["lane"], held["warp"]) == (wanted["lane"], wanted["warp"])
        assert held["register"] // 2 == wanted["register"]
        assert held["register"] % 2 * 2 == wanted["byte"]


@pytest.mark.parametrize("rows", [16, 64])
def test_elements_of_blocks_are_those_of_the_lane_map(rows: int) -> None:
    """What read-outs add to ``g`` and ``2 * q`` leads to the element that the lane has."""
    region = Region(0, 2 * rows, 24, False, rows)
    for i, j, e in product(range(2), range(3), range(len(ELEMENTS))):
        down, across = region.offsets((i, j, e))
        for warp, lane in product(range(rows // 16), range(32)):
            row, column = 16 * warp + lane // 4 + down - rows * i, 2 * (lane % 4) + across
            where = {"warp": warp, "lane": lane, "register": 4 * j + e}
            assert ACCUMULATOR(row, column) == where
    assert [ELEMENTS[e + 1] == (ELEMENTS[e][0], 1) for e in PAIRS] == [True, True]
    assert BLOCKS == ((0, 0), (8, 0), (0, 16), (8, 16))


@pytest.mark.parametrize("rows", [16, 64])
def test_a_number_of_a_row_is_with_the_lanes_that_have_the_row(rows: int) -> None:
    registers = RowRegisters("x", rows)
    for row in range(3 * rows):
        where, element = ROWS[rows](row), ACCUMULATOR(row % rows, 0)
        assert (where["lane"], where.get("warp", 0)) == (element["lane"], element["warp"])
        if row % rows < 16:  # a lane's own, of the first warp
            assert registers.at(row) == f"x[{row // rows * 2 + row % rows // 8}]"
