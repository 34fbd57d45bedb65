"""Functions of a tile that several statements compute: once in the tile, or where they are."""

from __future__ import annotations

from functools import partial

import pytest

from selector.ir import parser
from selector.ir.nodes import Allocate, Block, IntImm, Memory, Stmt
from selector.ir.printer import print_stmt
from selector.ir.types import FLOAT16, FLOAT32
from selector.lowering.tile_functions import tile_functions

TYPES = {**dict.fromkeys("smtb", FLOAT32), "h": FLOAT16, "w": FLOAT16}
parse = partial(parser.parse_stmt, types=TYPES)
FIRST, NEXT, BETWEEN = (f"s[ramp({base}, 1, 4)]" for base in (0, 4, 2))
CAPPED = "(float32x4)tanh_f32(x4(0.500000f)*{})"


def changed(*texts: str, memory: Memory = Memory.WGMMA_ACCUMULATOR) -> list[str] | None:
    """What becomes of statements; None if nothing does."""
    tile = Allocate("s", FLOAT32, (IntImm(8),), memory, Block(()))
    body: list[Stmt] = [parse(text) for text in texts]
    found = tile_functions([tile], body)
    assert (found == body) == (len(found) == len(body))
    return None if found == body else [print_stmt(s).strip() for s in found]


def readers(value: str, other: str = "") -> list[str]:
    """A maximum, and a sum of powers that go down from it."""
    power = f"(float32x4)exp_f32({other or value} - x4(m[0]))"
    return [
        f"m[0] = max((float32)vector_reduce_max({value}), m[0])",
        f"t[0] = t[0] + (float32)vector_reduce_add({power})",
    ]


@pytest.mark.parametrize(
    "function",
    [
        CAPPED,
        "{} + float32x4(h[ramp(0, 1, 4)])",
        "{} + b[ramp(0, 1, 4)]",
        "{} + float32x4(ramp(k, 1, 4))",
    ],
)
def test_it_is_computed_in_the_tile(function: str) -> None:
    value = function.format(FIRST)
    assert changed(*readers(f"({value})")) == [
        print_stmt(parse(f"{FIRST} = {value}")).strip(),
        *(print_stmt(parse(text)).strip() for text in readers(FIRST)),
    ]


def test_all_vectors_are_ahead_of_all_readers() -> None:
    texts = [text for x in (FIRST, NEXT) for text in readers(CAPPED.format(x))]
    found = changed(*texts)
    assert found is not None
    stored = [text.split(" = ")[0] for text in found]
    assert stored == [FIRST, NEXT, "m[0]", "t[0]", "m[0]", "t[0]"]


@pytest.mark.parametrize(
    "texts",
    [
        readers(f"(x4(0.500000f)*{FIRST})"),  # nothing beside the powers
        readers(CAPPED.format(FIRST))[:1],  # nobody else
        readers(CAPPED.format(FIRST), FIRST),  # another function
        [*readers(CAPPED.format(FIRST)), f"w[ramp(0, 1, 4)] = float16x4({FIRST})"],
        [*readers(CAPPED.format(FIRST)), *readers(CAPPED.format(BETWEEN))],  # they overlap
        [*readers(CAPPED.format(FIRST)), *readers(NEXT)],  # not all of the tile
        readers(f"({FIRST} + (float32x4)tanh_f32(x4(m[0])))"),  # of what is written meanwhile
        [*readers(CAPPED.format(FIRST)), f"{FIRST} = x4(0.000000f)"],  # filled anew
    ],
)
def test_it_stays_where_it_is(texts: list[str]) -> None:
    assert changed(*texts) is None


def test_other_memory_stays_as_it_is() -> None:
    assert changed(*readers(CAPPED.format(FIRST)), memory=Memory.REGISTER) is None
