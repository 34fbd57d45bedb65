"""Elements of a staged matrix beside those of an accumulator, two at a time; and those of tiles
that are kept in registers (``register_tiles``), of which a lane has the same two neighbours.

A lane has neighbours of a row of an accumulator. Where these are computed on with a matrix of 16
bits in shared memory, both elements of that come as one word. In panels (``warpgroups.panels``) the
eight rows that a warp reads at once lie in different banks: the swizzle takes care of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from selector.diagnostics import EmitError
from selector.emit.elements import COLUMN, EVEN, FIRST_ROW, ROW, ElementScalar
from selector.emit.scalar import Space, Storage
from selector.gpu.ir.expressions import PAIR_IN_PANELS, behind, half_of, number, pointer
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Call, Expr, Load, Var
from selector.ir.types import FLOAT16, UINT32


@dataclass(frozen=True, slots=True)
class StagedElement:
    """A half of the word of a matrix with rows of ``pitch`` elements. ``place``: that of the word
    in the lane's first row, an element or, in panels, its row and column; those of the others lie a
    multiple of eight rows below, after which every swizzle repeats.
    """

    buffer: str
    place: tuple[Expr, ...]
    pitch: int

    def at(self, scalar: ElementScalar) -> Expr:
        storage = scalar.storages[self.buffer]
        first = tuple(scalar.filled(scalar.number(p)) for p in self.place)
        start, panels = pointer(storage.base), storage.panels
        if panels is None:
            row = number(scalar.down * self.pitch)
            word = Call(UINT32, "pair_at", (behind(start, storage.start, *first, row),))
        else:
            sizes = (number(n) for n in (panels.rows, panels.row_bytes, scalar.down))
            places = pointer("smem"), behind(start, storage.start), *first
            word = Call(UINT32, PAIR_IN_PANELS, (*sizes, *places))
        return half_of(word, scalar.across % 2)


def staged_element(load: Load, scalar: ElementScalar) -> Var | None:
    """What stands for one lane's load, whose index is one of ``ROW`` and ``COLUMN``; None where
    neighbours do not lie in one word.
    """
    storage, index = scalar.storages.get(load.buffer), to_affine(load.index)
    if storage is None or storage.space is not Space.SHARED or storage.strips is not None:
        return None
    pitch, rest = index.coefficient(ROW).constant, index.rest(COLUMN)
    words = index.coefficient(COLUMN).constant == 1 and not rest.mentions(COLUMN.name)
    words &= pitch is not None and not index.rest(ROW).mentions(ROW.name)
    if pitch is None or not words or any(c % 2 for _, c in rest):
        return None
    if scalar.region.swapped or load.type != FLOAT16 or load.predicate is not None:
        return None
    first = index.rest(ROW).rest(COLUMN) + Affine.of(FIRST_ROW) * pitch + Affine.of(EVEN)
    place = _place(first, pitch, storage)
    if place is None:
        return None
    return scalar.leaf(StagedElement(load.buffer, place, pitch), load.type)


def _place(first: Affine, pitch: int, storage: Storage) -> tuple[Expr, ...] | None:
    panels = storage.panels
    if panels is None:
        return (first.to_expr(),)
    place = panels.place(first)
    if place is None or pitch != panels.pitch:
        return None
    return tuple(p.to_expr() for p in place)


@dataclass(frozen=True, slots=True)
class KeptElement:
    """The element of a tile whose place is ``base`` and so much more a row and a column."""

    buffer: str
    base: int
    by_row: int
    by_column: int

    def at(self, scalar: ElementScalar) -> Expr:
        odd = scalar.across % 2
        origin = self.base + self.by_row * scalar.down + self.by_column * (scalar.across - odd)
        place = map(Affine.of, (origin, self.by_row, self.by_column))
        return half_of(scalar.context.registers.tiles[self.buffer].at(*place), odd)


def kept_element(load: Load, scalar: ElementScalar) -> Var:
    """What stands for one lane's load, whose index is one of ``ROW`` and ``COLUMN``."""
    index = to_affine(load.index)
    parts = index.rest(ROW).rest(COLUMN), index.coefficient(ROW), index.coefficient(COLUMN)
    plain = load.type == FLOAT16 and load.predicate is None
    match [p.constant for p in parts]:
        case int(base), int(by_row), int(by_column) if plain:
            return scalar.leaf(KeptElement(load.buffer, base, by_row, by_column), load.type)
        case _:
            raise EmitError(
                f"`{load.buffer}` is kept in registers and read in another order than it has there",
                hint=f"store `{load.buffer}` in GPUShared",
            )
