"""Layouts as values, element by element: that they are injective, what they print, and that who
writes a memory and who reads it mean the same byte.
"""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from selector.diagnostics import InternalError
from selector.gpu.codegen.epilogues.regions import Region, RowRegisters
from selector.gpu.codegen.scalars.storage import Space, Storage
from selector.gpu.codegen.warpgroups.left_boxes import BoxStore
from selector.gpu.codegen.warpgroups.panels import Panels
from selector.gpu.cuda.expressions import spell
from selector.gpu.cuda.snippets.groups import GROUPS
from selector.gpu.cuda.snippets.stores import STORES
from selector.gpu.ir.expressions import plus, times
from selector.gpu.ir.lane_maps import ACCUMULATOR, BLOCKS, ELEMENTS, LEFT, PAIRS, RIGHT, ROWS
from selector.gpu.ir.layouts import (
    GROUP_ROWS,
    Dealt,
    core_matrices,
    in_bytes,
    is_injective,
    parse_layout,
    places,
    sizes,
    strided,
)
from selector.gpu.ir.memory import Map
from selector.intrinsics.functions import pack_vnni
from selector.intrinsics.records import INSTRUCTIONS, TensorInstruction
from selector.ir.affine import Affine
from selector.ir.nodes import IntImm, Var
from selector.ir.types import FLOAT16, FLOAT32, Type
from selector.lowering.fragments import BLOCK_BYTES, BLOCK_ROWS, expand
from selector.lowering.tiles import Access, Accumulate

pytestmark = pytest.mark.verified

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
    assert [ACCUMULATOR(*at)["register"] for at in ELEMENTS] == [0, 1, 2, 3]
    assert [LEFT(*at)["register"] for at in BLOCKS] == [0, 1, 2, 3]
    assert [ELEMENTS[e + 1] == (ELEMENTS[e][0], 1) for e in PAIRS] == [True, True]


@pytest.mark.parametrize("rows", [16, 64])
def test_a_number_of_a_row_is_with_the_lanes_that_have_the_row(rows: int) -> None:
    registers = RowRegisters("x", rows)
    for row in range(3 * rows):
        where, element = ROWS[rows](row), ACCUMULATOR(row % rows, 0)
        assert (where["lane"], where.get("warp", 0)) == (element["lane"], element["warp"])
        if row % rows < 16:  # a lane's own, of the first warp
            place = row // rows * 2 + row % rows // 8
            assert spell(registers.at(row, FLOAT32)) == f"x[{place}]"


# ------------------------------------------------------------------ memory: who writes, who reads

C = (
    "typedef unsigned u32; typedef unsigned long long u64; struct f16 { unsigned short bits; };\n"
    "#define __device__\n#define __forceinline__ inline\n"
    "#include <cstdio>\n#include <cstring>\n#include <algorithm>\nusing std::min;\n"
    'static void store2(int* p, int a, int b) { printf("%d %d %d\\n", (int)(long)p, a, b); }\n'
    # The row and the column of an element of tile j, by PTX.
    "static int at(int lane, int j, int e) {\n"
    "  return (lane / 4 + 8 * (e / 2)) * 64 + lane % 4 * 2 + e % 2 + 8 * j; }\n"
)


@cache
def numbers(snippets: tuple[str, ...], body: str) -> list[int]:
    """What device functions of the preamble print, as C++."""
    text = C + "".join(GROUPS.get(n) or STORES[n] for n in snippets) + f"int main() {{ {body} }}"
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "layout.cpp", Path(folder) / "layout"
        source.write_text(text)
        try:
            subprocess.run(["g++", "-w", "-O1", source, "-o", program], check=True)
        except FileNotFoundError:
            pytest.skip("g++ is not installed")
        return [*map(int, subprocess.run(program, capture_output=True).stdout.split())]


def printed(each: str, extents: tuple[int, ...]) -> str:
    """A loop nest over i0, i1 ... that prints an expression of them."""
    loops = "".join(f"for (int i{d} = 0; i{d} < {n}; ++i{d}) " for d, n in enumerate(extents))
    return f'{loops} printf("%d\\n", (int)({each}));'


PANELS = (
    Panels(72, 64, 128, 2), Panels(264, 256, 64, 2), Panels(24, 16, 64, 2), Panels(40, 20, 16, 2),
    Panels(24, 20, 8, 4), Panels(136, 130, 16, 1), Panels(32, 32, 64, 1), Panels(40, 40, 24, 4),
)  # fmt: skip


@pytest.mark.parametrize("p", PANELS, ids=str)
def test_threads_write_panels_where_the_layout_says(p: Panels) -> None:
    extents = (p.rows, p.columns)
    index = times(p.index(plus(times("i0", p.pitch), "i1")), p.bytes)
    found = numbers(("panel_index",), printed(spell(index), extents))
    byte = places(p.layout, *extents)["byte"]
    assert found == byte.ravel().tolist()
    assert is_injective(p.layout, *extents)
    assert sizes(p.layout, *extents)["byte"] <= p.size


@pytest.mark.parametrize("p", PANELS, ids=str)
def test_the_engine_writes_panels_where_the_layout_says(p: Panels) -> None:
    """A box of each panel, rows one after the other, swizzled by the bits of their addresses (CUDA
    Driver API, ``CU_TENSOR_MAP_SWIZZLE_128B``: address bits 4 to 6 by bits 7 to 9).
    """
    mask = {32: 1, 64: 3, 128: 7}[p.row_bytes]
    for row, column in product(range(p.rows), range(p.columns)):
        panel, inside = divmod(column, p.width)
        address = p.byte(0, panel) + row * p.row_bytes + inside * p.bytes
        assert p.layout(row, column)["byte"] == address ^ (address >> 7 & mask) << 4
        assert p.element(address) == (row, column)
        assert p.byte(row, panel) == p.byte(0, panel) + row * p.row_bytes


@pytest.mark.parametrize("p", [p for p in PANELS if p.bytes == 2], ids=str)
def test_pairs_are_read_where_the_layout_says(p: Panels) -> None:
    down = (p.rows - 1) // GROUP_ROWS * GROUP_ROWS
    extents = (GROUP_ROWS, p.columns // 2)
    count = p.size // 2
    memory = f"static unsigned short m[{count}]; for (int i = 0; i < {count}; ++i) m[i] = i; "
    pair = f"pair_in_panels<{p.rows}, {p.row_bytes}, {down}>((const unsigned char*)m, "
    each = f"{pair}(const f16*)m, i0, 2 * i1) & 65535"
    found = numbers(("pair_in_panels",), memory + printed(each, extents))
    row, column = np.indices(extents)
    assert found == (p.layout(row + down, 2 * column)["byte"] // 2).ravel().tolist()


def a_box(columns: int, t: Type) -> BoxStore:
    extents = (Var("C.extent.0"), Var("C.extent.1"))
    argument = Map("", "C", t, extents, (Var("C.stride.1"),), (columns, 16))
    return BoxStore(argument, (IntImm(0), IntImm(0)), 1, t.bytes)


BOXES = ((64, FLOAT16), (32, FLOAT16), (32, FLOAT32), (16, FLOAT32))


@pytest.mark.parametrize(("columns", "t"), BOXES, ids=str)
@pytest.mark.parametrize("run", [16, 8])
def test_rows_of_boxes_are_read_where_the_layout_says(columns: int, t: Type, run: int) -> None:
    """Without the copy engine, which reads them as it writes panels."""
    box = a_box(columns, t)
    kind, count = {2: "unsigned short", 4: "unsigned"}[t.bytes], box.bytes // t.bytes
    memory = f"static {kind} m[{count}], to[{count}]; for (int i = 0; i < {count}; ++i) m[i] = i; "
    given = f"to, (const unsigned char*)m, lane, {columns}, {run * columns}, {run}, {16 // run}"
    call = f"store_rows<{box.row_bytes}, {run}>({given}, {columns})"
    body = f"{memory} for (int lane = 0; lane < 32; ++lane) {call}; {printed('to[i0]', (count,))}"
    found = numbers(("store_rows",), body)
    byte = places(box.layout, 16, columns)["byte"]
    assert found == (byte // t.bytes).ravel().tolist()
    assert is_injective(box.layout, 16, columns)
    same = Panels(columns, columns, 16, t.bytes)  # what the engine takes them for
    assert (places(same.layout, 16, columns)["byte"] == byte).all()


@pytest.mark.parametrize("columns", [64, 32])
@pytest.mark.parametrize(
    ("stride", "first"), [(28, 0), (60, 4), (30, 0), (28, 2), (27, 0), (28, 1)]
)
def test_rows_of_boxes_end_where_the_array_does(columns: int, stride: int, first: int) -> None:
    """As many elements at once as all rows begin and end at, and none beside them."""
    box, rows = a_box(columns, FLOAT16), 13
    count, size, end = box.bytes // 2, 16 * stride + columns, min(stride, columns)
    body = (
        f"static unsigned short m[{count}]; alignas(16) static unsigned short to[{size}]; "
        f"for (int i = 0; i < {count}; ++i) m[i] = i; memset(to, 255, sizeof(to)); "
        f"for (int lane = 0; lane < 32; ++lane) store_rows<{box.row_bytes}, 16>(to + {first}, "
        f"(const unsigned char*)m, lane, {stride}, 0, {rows}, 1, {end}); "
    )
    expected = np.full(size, 65535)
    elements = (places(box.layout, 16, columns)["byte"] // 2).reshape(16, columns)
    for row in range(rows):
        at = first + row * stride
        expected[at : at + end] = elements[row, :end]
    assert numbers(("store_rows",), body + printed("to[i0]", (size,))) == expected.tolist()


DEALT = (
    Dealt(280, 2, 8), Dealt(296, 2, 8), Dealt(536, 4, 8), Dealt(528, 6, 8), Dealt(272, 2, 16),
    Dealt(40, 2, 8),
)  # fmt: skip


@pytest.mark.parametrize("dealt", DEALT, ids=str)
def test_strips_are_written_where_the_layout_says(dealt: Dealt) -> None:
    storage = Storage("p", FLOAT16, Space.SHARED, strips=dealt)
    found = numbers(("strip_column",), printed(spell(storage.place(Var("i0"))), (2 * dealt.pitch,)))
    assert found == places(dealt, 2 * dealt.pitch)["byte"].tolist()
    assert is_injective(dealt, 3 * dealt.pitch)
    assert sizes(dealt, 3 * dealt.pitch)["byte"] == 3 * dealt.pitch


@pytest.mark.parametrize("dealt", DEALT, ids=str)
def test_a_chunk_stays_together_and_windows_are_neighbours(dealt: Dealt) -> None:
    chunks = dealt.place(np.arange(dealt.pitch)).reshape(-1, dealt.per)
    assert (chunks == chunks[:, :1] + np.arange(dealt.per)).all()
    assert (chunks[dealt.step :, 0] - chunks[: -dealt.step, 0] == dealt.per).all()


def test_core_matrices_are_eight_rows_of_16_bytes() -> None:
    layout = core_matrices(128, 512)
    byte = places(layout, 24, 64)["byte"]
    for row, depth in product(range(24), range(64)):
        core = row // 8 * 512 + depth // 16 * 128
        assert byte[row, depth] == core + row % 8 * 16 + depth % 16
    assert is_injective(layout, 24, 64)
    assert not is_injective(core_matrices(16, 128), 64, 32)  # windows of a raw row overlap


@pytest.mark.parametrize("i", [i for i in INSTRUCTIONS if i.family == "amx"], ids=lambda i: i.name)
def test_tiles_of_amx_have_groups_of_depth_side_by_side(i: TensorInstruction) -> None:
    """Intel SDM, TDPBF16PS, TDPBSSD: row k / packing of B has ``packing`` bytes' worth of each
    column n, in 4 bytes.
    """
    each = i.b_type.bytes
    layout = in_bytes((i.packing, each, 64), (4,))
    packed = pack_vnni(np.arange(i.k * i.n).reshape(i.k, i.n), i.packing).reshape(-1)
    byte = places(layout, i.k, i.n)["byte"]
    assert (packed[byte // each] == np.arange(i.k * i.n).reshape(i.k, i.n)).all()
    assert sizes(layout, i.k, i.n)["byte"] <= 16 * 64
