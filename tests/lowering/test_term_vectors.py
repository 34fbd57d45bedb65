"""Sums of a thread take what lies side by side along their terms a vector at a time."""

from __future__ import annotations

from typing import Any

import pytest

from selector.ir.nodes import For, ForKind, IntImm, Stmt
from selector.ir.parser import parse_module
from selector.ir.printer import print_stmt
from selector.lowering.term_vectors import by_vectors, in_vectors

ROWS = 8


def loop(
    terms: int = 16, pitch: int = 16, at: str = "k", own: str = "", rows: int = ROWS, each: int = 1
) -> tuple[For, Stmt]:
    """Sums of four columns, ``each`` for one of the rows; the loop, and what is made of it."""
    sums = "\n".join(
        f"  s[ramp({4 * i}, 1, 4)] = s[ramp({own or 4 * i}, 1, 4)]"
        f" + b[ramp(k*64, 1, 4)]*x4(a[{at} + {i // each * pitch}])"
        for i in range(rows * each)
    )
    text = f"""module t
input a: float32 [(0, 512, 1)]
input b: float32 [(0, 4096, 1)]
output s: float32 [(0, 128, 1)]
body {{
 for (k, 0, {terms}) {{
{sums}
 }}
}}
"""
    found = parse_module(text, "t.vir").body
    assert isinstance(found, For)
    whole = For(found.name, found.min, found.extent, ForKind.UNROLLED, found.body)
    return whole, by_vectors(whole, terms)


def test_each_row_takes_four_terms_at_a_time() -> None:
    _, found = loop()
    assert isinstance(found, For)
    assert found.extent == IntImm(4)
    assert in_vectors(found)
    text = print_stmt(found)
    assert text.count("k_term, 0, 4") == ROWS
    assert text.index("s[ramp(0, 1, 4)]") < text.index("s[ramp(4, 1, 4)]")


def test_sums_of_a_row_take_its_vector_together() -> None:
    _, found = loop(each=2)
    assert print_stmt(found).count("k_term, 0, 4") == ROWS


@pytest.mark.parametrize(
    "changed",
    [
        {"terms": 6},  # no whole vectors
        {"pitch": 18},  # which begin at no multiples
        {"at": "k*2"},  # no neighbours
        {"own": "0"},  # another one's sum
        {"rows": 4},  # few enough for registers
    ],
)
def test_others_stay_as_they_are(changed: dict[str, Any]) -> None:
    given, found = loop(**changed)
    assert found is given
