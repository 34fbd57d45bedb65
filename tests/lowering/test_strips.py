"""Rows in strips: every element has one place, and windows lie side by side."""

from __future__ import annotations

import re

import pytest

from selector.lowering.strips import Strips

LAYOUTS = [(280, 2, 8), (296, 2, 8), (536, 4, 8), (528, 6, 8), (272, 2, 16), (40, 2, 8)]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_places_are_a_permutation_of_each_row(layout: tuple[int, int, int]) -> None:
    strips = Strips(*layout)
    for row in range(3):
        start = row * strips.pitch
        places = {strips.place(start + x) for x in range(strips.pitch)}
        assert places == set(range(start, start + strips.pitch))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_chunk_stays_together_and_windows_are_neighbours(layout: tuple[int, int, int]) -> None:
    strips = Strips(*layout)
    pitch, step, per = layout
    for x in range(0, pitch, per):
        assert [strips.place(x + e) - strips.place(x) for e in range(per)] == list(range(per))
        if x + step * per < pitch:
            assert strips.place(x + step * per) - strips.place(x) == per


def _column(x: int, pitch: int, step: int, per: int) -> int:
    """``strip_column`` of ``selector.gpu.cuda.preamble``, line by line."""
    chunk = x // per
    strip, longer = chunk % step, pitch // per % step
    start = strip * (pitch // per // step) + min(strip, longer)
    return (start + chunk // step) * per + x % per


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_kernel_computes_the_same_places(layout: tuple[int, int, int]) -> None:
    strips = Strips(*layout)
    for x in range(strips.pitch):
        assert _column(x, *layout) == strips.place(x)
    text = strips.index("i")
    known = re.sub(
        r"strip_column<(\d+), (\d+), (\d+)>\((.*)\)\)$", r"_column(\4, \1, \2, \3))", text
    )
    for i in range(2 * strips.pitch):
        place = eval(known.replace("/", "//"), {"_column": _column, "i": i})
        assert place == strips.place(i)
