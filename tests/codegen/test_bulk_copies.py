"""Rows of pipelined copies by the copy engine: where they may be, and what a row at the edge is."""

from __future__ import annotations

import re

import pytest
from corpus import CORPUS

import halide_bridge as hb


def source(name: str, target: str) -> str:
    return hb.compile(CORPUS[name].build(), target=target).source


@pytest.mark.parametrize("name", ["loop_2_4", "loop_3_4"])
def test_long_rows_are_taken_by_the_engine(name: str) -> None:
    text = source(name, "sm_90a")
    assert "bulk_copy(" in text
    assert "barriers_made();" in text
    assert "bulk_copy(" not in source(name, "sm_80")


def test_short_rows_and_copies_without_a_ring_are_not() -> None:
    for name in ("product_stages_3_75", "row_staged", "plane_some"):
        assert "bulk_copy(" not in source(name, "sm_90a")


def cut(c0: int, extent: int, length: int, per: int = 8) -> tuple[range, list[int]]:
    """The emitted lines of a row in Python: elements that the engine copies, and those that the
    thread writes.
    """
    first = min(max(0 - c0, 0), length)
    last = max(min(extent - c0, length), first)
    whole = first + (last - first) // per * per
    written: list[int] = []
    x = 0
    while x < length:
        if x == first:
            x = whole
        if x >= length:
            break
        written += range(x, x + per)
        x += per
    return range(first, whole), written


@pytest.mark.parametrize("extent", [1, 7, 8, 40, 41, 63, 64, 200])
@pytest.mark.parametrize("c0", [-72, -64, -8, 0, 8, 32, 48, 208])
def test_every_element_of_a_row_is_written_once(c0: int, extent: int) -> None:
    engine, written = cut(c0, extent, 64)
    assert sorted([*engine, *written]) == list(range(64))
    assert all(0 <= c0 + x < extent for x in engine)
    assert len(engine) % 8 == 0


def test_the_lines_are_those() -> None:
    text = source("loop_3_4", "sm_90a")
    found = re.search(r"const int first = .*?\n(.*\n){9}", text)
    assert found is not None
    for line in (
        "const int first = min(max(0 - c0, 0), ",
        ", first);",
        "const int whole = first + (last - first) / 8 * 8;",
        "if (whole > first) bulk_copy(",
        "if (x == first) x = whole;",
    ):
        assert line in found.group(), found.group()
