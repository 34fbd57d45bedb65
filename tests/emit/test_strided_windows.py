"""Windows of a convolution of stride 2 are read from strips, without bank conflicts."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from corpus import CORPUS
from corpus_conv import Plane, Row, plane_convolution, row_convolution

import halide_bridge as hb
from selector.gpu.ir.layouts import Dealt

BANK_BYTES = 128


def source(pipeline: object) -> str:
    return hb.compile(pipeline, target="sm_90a").source


def matrices(text: str) -> list[list[int]]:
    """Element offsets that the lanes of every matrix of every ldmatrix name, in a block's buffer;
    loops and warps at 0.
    """
    bases = dict(re.findall(r"const u32 (a\d+) = shared_address\(\w+ \+ \((.*)\)\);", text))
    found: list[list[int]] = []
    for count, base, shift in re.findall(r"ldmatrix([124])\((a\d+)(?: \+ (\d+))?, ", text):
        address = re.sub(r"\b(?!lane\b)[A-Za-z_]\w*", "0", bases[base]).replace("/", "//")
        for matrix in range(int(count)):
            lanes = range(8 * matrix, 8 * matrix + 8)
            starts = [eval(address, {"lane": lane}) + int(shift or 0) // 2 for lane in lanes]
            found.append(starts)
    return found


@pytest.mark.parametrize(
    "pipeline",
    [
        lambda: row_convolution(Row(stride=2, taps=24)),
        lambda: plane_convolution(Plane(stride=2, tap_rows="unrolled")),
        lambda: plane_convolution(Plane(stride=4, tap_rows="some", taps=6)),
    ],
    ids=["row", "plane", "plane of stride 4"],
)
def test_windows_meet_no_bank_twice(pipeline: object) -> None:
    assert callable(pipeline)
    text = source(pipeline())
    layout = re.search(r"strip_column<(\d+), (\d+), (\d+)>", text)
    assert layout is not None
    strips = Dealt(*(int(n) for n in layout.groups()))
    back = {strips.place(i): i for i in range(64 * strips.pitch)}
    read = matrices(text)
    assert read
    for starts in read:
        assert len({2 * s % BANK_BYTES // 16 for s in starts}) == 8
        windows = [back[s] for s in starts]
        assert {b - a for a, b in pairwise(windows)} == {strips.step * strips.per}


def test_neighbouring_windows_stay_in_rows() -> None:
    assert "strip_column" not in source(CORPUS["row_staged"].build())
    assert "strip_column" not in source(row_convolution(Row(stride=3, taps=24)))
