"""Small parts of the emitter: names, writer, instruction forms, places in the band tables."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.emit.banded import _place
from selector.emit.instructions import accumulator_declaration, matrix_form
from selector.emit.preamble import SNIPPET_NAMES, preamble
from selector.emit.writer import Names, Writer
from selector.intrinsics import INSTRUCTIONS, find
from selector.ir.affine import Affine
from selector.ir.types import FLOAT16, FLOAT32, INT32
from selector.lowering.fragments import Blocks, chunk_of
from selector.lowering.tiles import Banded

IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


def test_blocks_indent() -> None:
    w = Writer()
    with w.block("if (a)"):
        w.line("b;")
        with w.block(""):
            w.lines("c;\nd;")
    assert w.text() == "if (a) {\n  b;\n  {\n    c;\n    d;\n  }\n}\n"


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


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda i: i.name)
@pytest.mark.parametrize("blocks", [1, 2])
def test_every_record_has_both_forms(instruction, blocks: int) -> None:
    form = matrix_form(instruction, blocks)
    k = 16 * blocks // instruction.a_type.bytes
    assert f"m16n8k{k}" in form.name
    assert "mma.sync.aligned.m16n8k" in form.source
    assert form.source.count('"r"(a') == 2 * blocks
    assert form.source.count('"r"(b') == blocks
    assert form.source.count('"+') == (2 if instruction.c_type == FLOAT16 else 4)


def test_forms_of_one_shape_have_one_name() -> None:
    a, b = find("wmma.mma.m16n16k16.f16.f32"), find("mma.m16n8k16.f16.f32")
    assert a is not None
    assert b is not None
    assert matrix_form(a, 2) == matrix_form(b, 2)
    assert matrix_form(a, 2).name != matrix_form(a, 1).name


def test_accumulators_are_declared_by_type() -> None:
    assert accumulator_declaration(FLOAT32, "acc", 3) == "float acc[3][4];"
    assert accumulator_declaration(INT32, "acc", 3) == "int acc[3][4];"
    assert accumulator_declaration(FLOAT16, "acc", 3) == "u32 acc[3][2];"


@pytest.mark.parametrize("blocks", range(1, 20))
def test_places_in_a_band_are_a_bijection_that_keeps_chunks_together(blocks: int) -> None:
    """Lane l of a chunk of n blocks reads n words from ``32 * start + l * n`` on."""
    place = _c_to_python(_place(blocks))
    words = {
        (block, lane): eval(place, {"block": block, "lane": lane})
        for block in range(blocks)
        for lane in range(32)
    }
    assert sorted(words.values()) == list(range(32 * blocks))
    zero, one = Affine.of(0), Affine.of(1)
    o = Banded("K", FLOAT16, 8, 8 * blocks, 1, 1, 1, 8 * blocks - 7, zero, one, zero, None)
    maker = Blocks()
    for (block, lane), word in words.items():
        chunk = chunk_of(maker.make(o, 0, block))
        assert word == 32 * chunk.start + lane * len(chunk) + block - chunk.start


def _c_to_python(text: str) -> str:
    """C's conditional expressions, fully parenthesized, as Python's."""
    match = re.fullmatch(r"\((block [<=]+ \d+) \? (.*)\)", text)
    if match is None:
        return text
    test, rest = match.groups()
    depth = 0
    for at, letter in enumerate(rest):
        depth += (letter == "(") - (letter == ")")
        if letter == ":" and depth == 0:
            then, otherwise = rest[:at].strip(), rest[at + 1 :].strip()
            return f"(({_c_to_python(then)}) if {test} else ({_c_to_python(otherwise)}))"
    raise AssertionError(text)


def test_a_source_holds_only_the_snippets_it_calls() -> None:
    text = preamble("x = to_f32(y);", {})
    assert "to_f32" in text
    assert not any(re.search(rf"\b{n}\b", text) for n in SNIPPET_NAMES - {"to_f32"})
    assert preamble("f(1)", {"f": "void f(int);\n", "h": "void h();\n"}).endswith("void f(int);\n")
