"""Four neighbours at once: what lanes exchange, and where it is worth it."""

from __future__ import annotations

import re

import numpy as np
import pytest

pytest.importorskip("halide")

from corpus_product import Product, product
from emulation import run

import halide_bridge as hb
from selector.gpu.codegen.epilogues.places import quads
from selector.gpu.codegen.epilogues.regions import Region


def stored(columns: int) -> np.ndarray:
    """What ``store4_of_two`` of the preamble leaves of a block of 16 x columns, lane by lane."""
    region = Region(0, 16, columns, False)
    block = np.arange(16 * columns).reshape(16, columns)
    out = np.full_like(block, -1)

    def held(lane: int, element: tuple[int, int, int]) -> tuple[int, int]:
        i, j, e = element
        return 16 * i + lane // 4 + 8 * (e // 2), 8 * j + 2 * (lane % 4) + e % 2

    for places in quads(region):
        mine = {lane: [block[held(lane, x)] for x in places] for lane in range(32)}
        for lane in range(32):
            (a, b), other = (mine[lane][:2], mine[lane][2:]), mine[lane ^ 1]
            odd = lane & 1
            row, column = held(lane, places[0])
            start = column + (6 if odd else 0)
            assert start % 4 == 0
            out[row, start : start + 4] = [*other[2:], *b] if odd else [*a, *other[:2]]
    return out


@pytest.mark.parametrize("columns", [16, 32, 64])
def test_every_element_is_stored_once_in_its_place(columns: int) -> None:
    np.testing.assert_array_equal(stored(columns), np.arange(16 * columns).reshape(16, columns))


@pytest.mark.parametrize(
    ("p", "used"),
    [
        (Product(), True),
        (Product(vector=(8, 16)), False),  # one tile of eight columns
        (Product(vector=(32, 8)), False),  # the tile lies transposed
    ],
)
def test_where_tiles_lie_side_by_side(p: Product, used: bool) -> None:
    source = hb.compile(product(p), target="sm_80").source
    assert ("store4_of_two(" in source.split("__global__")[1]) == used


def test_other_arrays_are_stored_as_before() -> None:
    """Under a condition of 16-byte rows; else in pairs or one by one."""
    body = hb.compile(product(Product()), target="sm_80").source.split("__global__")[1]
    quad, pair = body.index("store4_of_two("), body.index("store2(")
    assert quad < pair
    assert re.search(r"\(C_stride_1 & 3\) == 0", body)
    assert re.search(r"\(C_stride_1 & 1\) == 0", body)


@pytest.mark.parametrize("columns", [None, 64, 58, 63])
@pytest.mark.parametrize("rows", [70, 5, 64])
def test_ragged_rows_are_stored_in_pairs(rows: int, columns: int | None) -> None:
    """Where columns are whole (None: that is promised) two neighbours leave together in every row;
    where they may end between the two, each on its own condition.
    """
    c = product(Product())
    if columns is None:
        c.output_buffer().dim(0).set_bounds(0, 64)
    kernel = hb.compile(c, target="sm_80")
    body = kernel.source.split("__global__")[1]
    guarded = re.search(r"if \([^\n]*\) \{\n\s*store2\(p0", body)
    assert bool(guarded) == (columns is None)
    width = columns or 64
    generator = np.random.default_rng(rows)
    a = generator.integers(-4, 5, (rows, 64)).astype(np.float16)
    b = generator.integers(-4, 5, (64, width)).astype(np.float16)
    exact = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(run(kernel, A=a, B=b, sizes=exact.shape), exact)
