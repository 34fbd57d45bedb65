"""Elements of tiles that are kept in registers (``register_tiles``), read one by one.

A lane has of every block of 8 x 8 the same two neighbours that it has of an accumulator.
"""

from __future__ import annotations

from dataclasses import dataclass

from selector.diagnostics import EmitError
from selector.emit.elements import COLUMN, ROW, ElementScalar
from selector.gpu.ir.expressions import half_of
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Expr, Load, Var
from selector.ir.types import FLOAT16


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
