"""The layout of wgmma's operands: where elements lie, and what a descriptor reads there.

The model of a descriptor is that of the PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory
Layout", for swizzles of 32, 64 and 128 bytes: blocks of 8 rows of as many bytes, the address bits
from 4 on exchanged by those from 7 on. That a matrix may start inside of a block was seen on an
H200.
"""

from __future__ import annotations

import pytest

from selector.gpu.codegen.warpgroups.panels import Panels
from selector.ir.affine import Affine
from selector.ir.nodes import Var

TILE_A = Panels(pitch=72, columns=64, rows=128, bytes=2)
TILE_B = Panels(pitch=264, columns=256, rows=64, bytes=2)
NARROW = {p.row_bytes: p for p in (Panels(c + 8, c, 128, 2) for c in (16, 32, 64))}


def place(p: Panels, row: int, column: int) -> int:
    """Bytes from the first panel."""
    return p.layout(row, column)["byte"]


def swizzled(address: int, row_bytes: int) -> int:
    return address ^ (address >> 7 & row_bytes // 16 - 1) << 4


def along(p: Panels, start: int, row: int, depth: int) -> int:
    """Element (row, depth) of a matrix whose depth runs along memory; rows in groups of 8."""
    inside = row // 8 * p.byte(8, 0) + row % 8 * p.row_bytes + depth * 2
    return swizzled(start + inside, p.row_bytes)


def across(p: Panels, start: int, row: int, depth: int) -> int:
    """The same where the rows run along memory: a panel's width of them, then the next panel's."""
    panel = row // p.width * p.panel_bytes + row % p.width * 2
    return swizzled(
        start + panel + depth // 8 * p.byte(8, 0) + depth % 8 * p.row_bytes, p.row_bytes
    )


def constant(p: Panels, index: int, step: int, group: int = 8) -> int:
    start = p.start(Affine.of(index), step, group)
    assert start is not None
    assert start.constant is not None
    return start.constant


@pytest.mark.parametrize(("row", "depth"), [(0, 0), (64, 0), (0, 16), (64, 48), (8, 32)])
def test_a_descriptor_reads_rows_whose_depth_runs_along_memory(row: int, depth: int) -> None:
    start = constant(TILE_A, row * 72 + depth, 16)
    for m in range(min(64, 128 - row)):
        for k in range(16):
            assert along(TILE_A, start, m, k) == place(TILE_A, row + m, depth + k)


@pytest.mark.parametrize("row_bytes", NARROW)
@pytest.mark.parametrize("row", [0, 1, 2, 3, 5, 8, 13, 61])
def test_such_a_matrix_starts_at_any_row(row_bytes: int, row: int) -> None:
    p = NARROW[row_bytes]
    for depth in range(0, p.columns, 16):
        start = constant(p, row * p.pitch + depth, 16, 1)
        for m in range(64):
            for k in range(16):
                assert along(p, start, m, k) == place(p, row + m, depth + k)


@pytest.mark.parametrize(("column", "depth", "rows"), [(0, 0, 256), (64, 16, 192), (128, 48, 128)])
def test_a_descriptor_reads_rows_that_run_along_memory(column: int, depth: int, rows: int) -> None:
    start = constant(TILE_B, depth * 264 + column, 64)
    for n in range(rows):
        for k in range(16):
            assert across(TILE_B, start, n, k) == place(TILE_B, depth + k, column + n)


@pytest.mark.parametrize("row_bytes", NARROW)
@pytest.mark.parametrize("depth", [0, 16, 40])
def test_so_it_does_along_narrow_rows(row_bytes: int, depth: int) -> None:
    p = NARROW[row_bytes]
    start = constant(p, depth * p.pitch, p.width)
    for n in range(p.columns):
        for k in range(16):
            assert across(p, start, n, k) == place(p, depth + k, n)


@pytest.mark.parametrize(
    ("columns", "bytes_", "row_bytes", "panels"),
    [
        (8, 2, 32, 1),
        (16, 2, 32, 1),
        (20, 2, 64, 1),
        (48, 2, 128, 1),
        (96, 2, 128, 2),
        (32, 1, 32, 1),
    ],
)
def test_narrow_matrices_have_narrow_rows(
    columns: int, bytes_: int, row_bytes: int, panels: int
) -> None:
    p = Panels(columns, columns, 8, bytes_)
    assert (p.row_bytes, p.count) == (row_bytes, panels)


def test_every_element_has_its_own_place() -> None:
    more = (Panels(24, 20, 8, 4), Panels(136, 130, 16, 1), *NARROW.values())
    for p in (TILE_A, TILE_B, *more):
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
    assert TILE_A.start(Affine.of(Var("x")), 16, 1) is None
