"""The layout of wgmma's operands: where elements lie, and what a descriptor reads there.

The model of a descriptor is that of the PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory
Layout", for a swizzle of 128 bytes: 8 x 64 blocks of 16-bit elements, the address bits 4 to 6
exchanged by those 7 to 9.
"""

from __future__ import annotations

import pytest

from selector.emit.warpgroups.panels import Panels
from selector.ir.affine import Affine
from selector.ir.nodes import Var

TILE_A = Panels(pitch=72, columns=64, rows=128, bytes=2)
TILE_B = Panels(pitch=264, columns=256, rows=64, bytes=2)


def place(p: Panels, row: int, column: int) -> int:
    """Bytes from the first panel, as ``panel_index`` of the preamble computes them."""
    index = row * p.pitch + column
    row, column = index // p.pitch, index % p.pitch
    width, chunk = 128 // p.bytes, 16 // p.bytes
    inside = (column % width // chunk ^ (row & 7)) * chunk + column % chunk
    return (column // width * (p.rows * width) + row * width + inside) * p.bytes


def swizzled(address: int) -> int:
    return address ^ (address >> 7 & 7) << 4


def along(start: int, row: int, depth: int) -> int:
    """Element (row, depth) of a matrix whose depth runs along memory; rows in groups of 8, 1024
    bytes apart."""
    return swizzled(start + row // 8 * 1024 + row % 8 * 128 + depth * 2)


def across(start: int, leading: int, row: int, depth: int) -> int:
    """The same where the rows run along memory: 64 of them, then the next ``leading`` bytes on."""
    return swizzled(
        start + row // 64 * leading + depth // 8 * 1024 + depth % 8 * 128 + row % 64 * 2
    )


@pytest.mark.parametrize(("row", "depth"), [(0, 0), (64, 0), (0, 16), (64, 48), (8, 32)])
def test_a_descriptor_reads_rows_whose_depth_runs_along_memory(row: int, depth: int) -> None:
    start = TILE_A.start(Affine.of(row * 72 + depth), 16)
    assert start is not None
    assert start.constant is not None
    for m in range(min(64, 128 - row)):
        for k in range(16):
            assert along(start.constant, m, k) == place(TILE_A, row + m, depth + k)


@pytest.mark.parametrize(("column", "depth", "rows"), [(0, 0, 256), (64, 16, 192), (128, 48, 128)])
def test_a_descriptor_reads_rows_that_run_along_memory(column: int, depth: int, rows: int) -> None:
    start = TILE_B.start(Affine.of(depth * 264 + column), 64)
    assert start is not None
    assert start.constant is not None
    for n in range(rows):
        for k in range(16):
            where = across(start.constant, TILE_B.panel_bytes, n, k)
            assert where == place(TILE_B, depth + k, column + n)


def test_every_element_has_its_own_place() -> None:
    for p in (TILE_A, TILE_B, Panels(24, 20, 8, 4), Panels(136, 130, 16, 1)):
        places = {place(p, r, c) for r in range(p.rows) for c in range(p.columns)}
        assert len(places) == p.rows * p.columns
        assert max(places) < p.size


def test_a_group_chooses_its_rows() -> None:
    start = TILE_A.start(Affine.of(Var("group")) * (64 * 72) + 32, 16)
    assert start == Affine.of(Var("group")) * (64 * 128) + 64


@pytest.mark.parametrize("index", [8, 4 * 72, 72 + 16])
def test_matrices_start_at_whole_groups_of_rows_and_steps_of_depth(index: int) -> None:
    assert TILE_A.start(Affine.of(index), 16) is None
    assert TILE_A.start(Affine.of(Var("x")), 16) is None
