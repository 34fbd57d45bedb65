"""The schedules of a product of matrices on a CPU's tile registers (AMX),
``C[m, n] = sum_k A[m, k] * B[k, n]``, and what each costs.

A core takes one block of C after the other. It goes down the rows of a block with a few columns of
B, which it has put in the order of the registers (VNNI) for as long; the sums of one step down stay
in registers over the whole of k, and the rows of A stay in the second-level cache while the next
columns pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from selector.dataclass import dataclass
from selector.families import MOST_LANES
from selector.machine import Host

SIDE = 16  # rows of a tile register, and columns of 32-bit sums
ROW_BYTES = 64  # of a tile register
REGISTERS = 8
SUMS = ((2, 2), (1, 4), (4, 1), (1, 2), (2, 1), (1, 1))
"""Tile registers of sums along m and n that leave room for operands."""
BLOCKS = (1, 2, 4, 8, 16)
"""Steps down, and along, a block of C."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Extents of a product; ``bytes`` of an operand's element; ``batch`` of such products."""

    m: int
    n: int
    k: int
    bytes: int = 2
    batch: int = 1


@dataclass(frozen=True, slots=True)
class Tiling:
    """``m`` rows and ``n`` columns of C in registers, ``k`` elements of the sum in a step, of one
    instruction; a block has ``rows`` and ``columns``. ``stages``: 2 has operands of the next step
    loaded among the products of this one.
    """

    m: int
    n: int
    k: int
    rows: int
    columns: int
    stages: int = 2

    @property
    def vector_n(self) -> int:
        """Columns of one statement, whose lanes Halide counts in 16 bits."""
        return next(n for n in (self.n, self.n // 2, SIDE) if n * self.m * self.k <= MOST_LANES)

    @property
    def label(self) -> str:
        ahead = ", loaded ahead" if self.stages > 1 else ""
        return f"{self.m} x {self.n} x {self.k} in blocks of {self.rows} x {self.columns}{ahead}"


def ranked(shape: Shape, host: Host) -> list[tuple[float, Tiling]]:
    """Schedules with the cycles that each takes, the best first."""
    found = ((cycles(shape, t, host), t) for t in space(shape))
    return sorted(found, key=lambda each: each[0])


def space(shape: Shape) -> Iterator[Tiling]:
    """All schedules with blocks that are not larger than C, but for what rounds it up."""
    k = ROW_BYTES // shape.bytes
    for (mt, nt), down, along in product(SUMS, BLOCKS, BLOCKS):
        m, n = mt * SIDE, nt * SIDE
        more = (down > 1 and m * down >= 2 * shape.m) or (along > 1 and n * along >= 2 * shape.n)
        if m * k * SIDE <= MOST_LANES and not more:
            yield Tiling(m, n, k, m * down, n * along)


def cycles(shape: Shape, tiling: Tiling, host: Host) -> float:
    """Of all cores, each with its share of the blocks."""
    blocks = _times(shape.m, tiling.rows) * _times(shape.n, tiling.columns) * shape.batch
    rows, columns = min(shape.m, tiling.rows), min(shape.n, tiling.columns)
    down, along = _times(rows, tiling.m), _times(columns, tiling.n)
    mt, nt = tiling.m // SIDE, tiling.n // SIDE
    step = max(mt * nt * host.product, (mt + nt) * host.load)
    depth = shape.k * shape.bytes
    panel, read = along * tiling.n * depth, rows * depth
    kept = read + tiling.n * depth <= host.l2_bytes
    moved = read * (1 if kept else along) + panel
    work = down * along * _times(shape.k, tiling.k) * step + panel / (shape.bytes * host.swizzled)
    stored = rows * columns * 4 / host.fill
    return _times(blocks, host.cores) * (work + moved / host.fill + stored)


def _times(extent: int, of: int) -> int:
    return -(-extent // of)
