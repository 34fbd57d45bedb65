"""Elements of tiles that are kept in registers (``register_tiles``), read one by one.

A lane has of every block of 8 x 8 the same two neighbours that it has of an accumulator.
"""

from __future__ import annotations

import re

from selector.diagnostics import EmitError
from selector.emit.context import Element, KernelContext, Region
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Load, Var
from selector.ir.types import FLOAT16

_MARK = re.compile(r"@tile:([^@:]+):(-?\d+):(-?\d+):(-?\d+)@")


def mark_tile(load: Load, context: KernelContext) -> Var:
    """A mark for one lane's load, whose index is one of row ``$m`` and column ``$n``."""
    index, m, n = to_affine(load.index), Var("$m"), Var("$n")
    parts = (index.rest(m).rest(n), index.coefficient(m), index.coefficient(n))
    numbers = [p.constant for p in parts]
    if None in numbers or load.type != FLOAT16 or load.predicate is not None:
        raise EmitError(
            f"`{load.buffer}` is kept in registers and read in another order than it has there",
            hint=f"store `{load.buffer}` in GPUShared",
        )
    text = ":".join(str(x) for x in numbers)
    return Var(context.names.verbatim(f"@tile:{load.buffer}:{text}@"), load.type)


def fill_tiles(text: str, region: Region, element: Element, context: KernelContext) -> str:
    """The text with halves of registers in place of marks, for one element of a block."""
    down, across = region.offsets(element)
    odd = across % 2

    def half(match: re.Match[str]) -> str:
        base, by_m, by_n = (int(match[k]) for k in (2, 3, 4))
        origin = base + by_m * down + by_n * (across - odd)
        tiles = context.register_tiles[match[1]]
        register = tiles.at(Affine.of(origin), Affine.of(by_m), Affine.of(by_n))
        return f"half_of({register}, {odd})"

    return _MARK.sub(half, text)
