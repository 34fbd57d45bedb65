"""Boxes of results on their way to global memory through shared memory."""

from __future__ import annotations

from selector.dataclass import dataclass
from selector.gpu.ir.layouts import Composed, Swizzle, in_bytes
from selector.gpu.ir.memory import BOX_ROWS, Map
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Expr


@dataclass(frozen=True, slots=True)
class BoxStore:
    """Where a region's boxes go: tensor map, the first coordinates, and the dimension that its rows
    are numbered by: ``run`` of them, where there is one ``above`` that counts the runs.
    """

    map: Map
    first: tuple[Expr, ...]
    along: int
    element_bytes: int
    above: int | None = None
    run: int = 0

    @property
    def row_bytes(self) -> int:
        return self.map.box[0] * self.element_bytes

    @property
    def layout(self) -> Composed:
        """Of an element (row, column): its byte."""
        return Composed(Swizzle(self.row_bytes), in_bytes((self.row_bytes,), (self.element_bytes,)))

    @property
    def bytes(self) -> int:
        return BOX_ROWS * self.row_bytes


@dataclass(frozen=True, slots=True)
class LeftBox:
    """A box whose rows are still to be stored: the offset of the first warp's in shared memory, the
    bytes from one warp's to the next one's, and which row of the group's tile is its first.
    """

    box: BoxStore
    offset: int
    pitch: int
    row: int

    def coordinates(self) -> tuple[Affine, ...]:
        """Of its first element, but for what the warp adds."""
        at = [to_affine(e) for e in self.box.first]
        at[self.box.along] += self.row
        return tuple(at)
