"""Where the elements of accumulators and of what is kept by rows lie in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from selector.dataclass import dataclass
from selector.gpu.codegen.products.register_tiles import RegisterTiles
from selector.gpu.ir.expressions import element, packed, pointer
from selector.gpu.ir.lane_maps import ELEMENTS, ROWS
from selector.gpu.ir.products import SetTile
from selector.ir.nodes import Expr, Var
from selector.ir.types import Type

LANE_ROW = Var("$g")  # g, lane / 4: the row of a fragment that a lane holds
LANE_PAIR = Var("$q")  # q, lane % 4: the pair of columns
LANE_NAMES = frozenset({"$m", "$n", LANE_ROW.name, LANE_PAIR.name})  # differ between elements

Element = tuple[int, int, int]  # tile row, tile column, register of the tile


@dataclass(frozen=True, slots=True)
class Region:
    """A block of m x n accumulator elements at ``offset``, cut into tiles of ``rows`` x 8: 16 rows
    are of one warp, 64 of the four warps of a group, 16 each. A block of fewer columns is one part
    of a tile, which it shares with those beside it.

    ``swapped``: tiles hold the transposed block. ``tall``: every two of a warp are 32 rows in turn.
    ``place``: the number of its first tile, if tiles do not lie as the elements do.
    """

    offset: int
    m: int
    n: int
    swapped: bool
    rows: int = 16
    tall: bool = False
    place: int | None = None

    @property
    def first(self) -> int:
        """Number of its first fragment; a fragment holds ``rows`` * 8 elements."""
        return self.offset // (self.rows * 8) if self.place is None else self.place

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles along (rows, columns) of the stored, possibly transposed block."""
        rows, columns = (self.n, self.m) if self.swapped else (self.m, self.n)
        return (rows // self.rows, max(1, columns // 8))

    @property
    def parts(self) -> int:
        """Blocks that share a tile."""
        return max(1, 8 // self.n) if not self.swapped else 1

    @property
    def part(self) -> int:
        """Which one of a tile's this is."""
        return self.offset // (self.rows * self.n) % self.parts

    def piece(self, i: int, j: int = 0) -> int:
        """Number of its fragment (i, j), or part of one, among those of its size."""
        return self.fragment(i, j) * self.parts + self.part

    def fragment(self, i: int, j: int) -> int:
        return self.first + i * self.tiles[1] + j

    def row(self, i: int) -> int:
        """From a lane's first row to that of its tile number ``i`` of a column."""
        return i // 2 * 128 + i % 2 * 16 if self.tall else self.rows * i

    def offsets(self, element: Element) -> tuple[int, int]:
        """Rows and columns of the tiles from a lane's first element to this one."""
        i, j, e = element
        row, column = ELEMENTS[e]
        return self.row(i) + row, 8 * j + column


@dataclass(frozen=True, slots=True)
class Accumulator:
    """Registers of one tensor allocation, as one warp holds them."""

    register: str
    fragments: int
    regions: dict[int, Region]
    half: bool
    integer: bool = False

    def fragment_at(self, offset: int, size: int) -> int:
        """The number of the fragment, of ``size`` elements, that has the one at an offset."""
        for r in self.regions.values():
            if 0 <= offset - r.offset < r.m * r.n:
                return r.first + (offset - r.offset) // size
        return offset // size

    @property
    def shared(self) -> tuple[int, ...]:
        """Fragments some lanes of which no block has: the columns of a part that is not there."""
        missing: dict[int, set[int]] = {}
        for r in self.regions.values():
            for i in range(r.tiles[0]):
                missing.setdefault(r.fragment(i, 0), set(range(r.parts))).discard(r.part)
        return tuple(sorted(f for f, parts in missing.items() if parts))

    def filled(self, piece: int, values: Sequence[Expr]) -> SetTile:
        """A lane's four elements of a fragment are set."""
        if self.half:
            values = packed(*values[:2]), packed(*values[2:])
        return SetTile(self.register, piece, tuple(values))


@dataclass(frozen=True, slots=True)
class RowRegisters:
    """The array of registers of an allocation that is kept by rows (``row_registers``); ``rows``:
    16 of a warp, or 64 of a group.
    """

    name: str
    rows: int

    def at(self, row: int, t: Type) -> Expr:
        """The register of row ``row + g``, where ``row`` begins a half of a tile; what is there is
        of a type.
        """
        return element(t, pointer(self.name), ROWS[self.rows](row)["register"])


@dataclass(frozen=True, slots=True)
class Registers:
    """What a kernel keeps in registers, by allocation: ``accumulators``, blocks of operands
    (``tiles``), rows. ``thread_vars``: the extents of the loops that choose a warp.
    """

    accumulators: dict[str, Accumulator] = field(default_factory=dict[str, Accumulator])
    tiles: dict[str, RegisterTiles] = field(default_factory=dict[str, RegisterTiles])
    rows: dict[str, RowRegisters] = field(default_factory=dict[str, RowRegisters])
    thread_vars: dict[str, int] = field(default_factory=dict[str, int])
