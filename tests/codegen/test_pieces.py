"""Small parts of the emitter: names, writer, instruction forms, places in the band tables."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.gpu.codegen.instructions import accumulators, warp_record
from selector.gpu.codegen.products.banded import Table, _window
from selector.gpu.codegen.scalars.names import Names
from selector.gpu.cuda.expressions import spell
from selector.gpu.cuda.instructions import form
from selector.gpu.cuda.preamble import SNIPPET_NAMES, preamble
from selector.gpu.cuda.printer import print_body
from selector.gpu.ir.products import InRegisters, Mma
from selector.intrinsics import INSTRUCTIONS, find
from selector.intrinsics.records import TensorInstruction
from selector.ir.affine import Affine
from selector.ir.types import FLOAT16, FLOAT32, INT8, INT32, Type
from selector.lowering.fragments import depth_blocks
from selector.lowering.tiles import Banded

IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


@given(st.lists(st.text("ab.$_ 0é-", max_size=6), max_size=20))
def test_names_are_identifiers_and_unique(wishes: list[str]) -> None:
    names = Names()
    distinct = list(dict.fromkeys(wishes))
    spelled = [names.get(w) for w in distinct]
    assert all(IDENTIFIER.fullmatch(s) for s in spelled)
    assert len(set(spelled)) == len(spelled)
    assert [names.get(w) for w in distinct] == spelled


@pytest.mark.parametrize(
    "name",
    [
        *("int", "smem", "lane", "i", "x", "r0", "a12", "to_f32", "to_bf16", "sqrtf", "min", "u32"),
        *(
            "f16",
            "ldmatrix4",
            "threadIdx",
            "item",
            "to",
            "from",
            "slot",
            "p0",
            "c1",
            "row0",
            "tap3",
        ),
        *("float4", "uint2"),
    ],
)
def test_names_that_emitted_code_uses_itself_are_taken(name: str) -> None:
    assert Names().get(name) != name


def test_an_ordinary_name_stays() -> None:
    names = Names()
    assert names.get("out.s0.x.xo") == "out_s0_x_xo"
    assert names.fresh("out.s0.x.xo") == "out_s0_x_xo_2"


def test_names_do_not_depend_on_earlier_kernels() -> None:
    one, two = Names(), Names()
    two.get("other")
    assert one.get("a.b") == two.get("a.b")


def wrapper(instruction: TensorInstruction, blocks: int) -> tuple[str, str]:
    nothing = InRegisters(())
    return form(Mma("add", warp_record(instruction, blocks), "c", 0, nothing, nothing))


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda i: i.name)
@pytest.mark.parametrize("blocks", [1, 2])
def test_every_record_has_both_forms(instruction, blocks: int) -> None:
    name, source = wrapper(instruction, blocks)
    k = 16 * blocks // instruction.a_type.bytes
    assert f"m16n8k{k}" in name
    assert "mma.sync.aligned.m16n8k" in source
    assert source.count('"r"(a') == 2 * blocks
    assert source.count('"r"(b') == blocks
    assert source.count('"+') == (2 if instruction.c_type == FLOAT16 else 4)


def test_forms_of_one_shape_have_one_name() -> None:
    a, b = find("wmma.mma.m16n16k16.f16.f32"), find("mma.m16n8k16.f16.f32")
    assert a is not None
    assert b is not None
    assert wrapper(a, 2) == wrapper(b, 2)
    assert wrapper(a, 2)[0] != wrapper(a, 1)[0]


def test_accumulators_are_declared_by_type() -> None:
    for t, text in (
        (FLOAT32, "float acc[3][4];"),
        (INT32, "int acc[3][4];"),
        (FLOAT16, "u32 acc[3][2];"),
    ):
        assert print_body((accumulators(t, "acc", 3),)) == f"{text}\n"


@given(
    st.sampled_from([FLOAT16, INT8]),
    st.sampled_from([8, 16, 24]),
    st.integers(1, 4),
    st.sampled_from([1, 2, 3, 4]),
    st.integers(1, 3),
    st.integers(1, 40),
    st.integers(0, 7),
)
def test_windows_of_padded_taps_are_the_band(
    kind: Type, rows: int, stride: int, phases: int, dilation: int, taps: int, lead: int
) -> None:
    """Element (row, t) of a band, read as a lane reads it, against its definition."""
    zero, one = Affine.of(0), Affine.of(1)
    reach = stride * ((rows - 1) // phases) + dilation * (taps - 1) + 1 + lead
    o = Banded("K", kind, rows, reach, stride, dilation, phases, taps, zero, one, zero, None, lead)
    table = Table.of("band", o, ())
    count = 4 // kind.bytes
    words = table.words * [[None] * count]
    for phase in range(phases):
        for copy in range(table.copies):
            for word in range(table.length):
                first = (word - table.front) * count - copy * table.step
                row = (phase * table.copies + copy) * table.pitch
                words[row + word] = [_tap(o, first + i, phase) for i in range(count)]
    for row in range(rows):
        window = spell(_window(table, row // 8)).replace("/", "//")
        for block in range(depth_blocks(o)):
            for q in range(4):
                found = words[eval(window, {"lane": row % 8 * 4 + q}) + 4 * block]
                depth = 16 // kind.bytes * block + q * count
                first = depth - lead - stride * (row // phases)
                assert found == [_tap(o, first + i, row % phases) for i in range(count)]


def _tap(o: Banded, at: int, phase: int) -> tuple[int, int] | None:
    """(tap, phase) at a distance from the first, in elements of depth; None for a zero."""
    if at % o.dilation or not 0 <= at // o.dilation < o.taps:
        return None
    return at // o.dilation, phase


def test_a_source_holds_only_the_snippets_it_calls() -> None:
    text = preamble("x = to_f32(y);", {})
    assert "to_f32" in text
    assert not any(re.search(rf"\b{n}\b", text) for n in SNIPPET_NAMES - {"to_f32"})
    assert preamble("f(1)", {"f": "void f(int);\n", "h": "void h();\n"}).endswith("void f(int);\n")


@pytest.mark.parametrize(("stride", "phases"), [(1, 1), (2, 1), (4, 1), (1, 2), (1, 4), (3, 1)])
@pytest.mark.parametrize("taps", [8, 13, 256])
def test_a_warp_reads_a_band_without_bank_conflicts(stride: int, phases: int, taps: int) -> None:
    zero, one = Affine.of(0), Affine.of(1)
    reach = stride * (7 // phases) + taps
    o = Banded("K", FLOAT16, 8, reach, stride, 1, phases, taps, zero, one, zero, None)
    window = spell(_window(Table.of("band", o, ()), 0), {}).replace("/", "//")
    words = {eval(window, {"lane": lane}) for lane in range(32)}
    assert len({word % 32 for word in words}) == len(words)
