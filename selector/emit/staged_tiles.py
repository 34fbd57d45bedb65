"""Elements of a staged matrix beside those of an accumulator, two at a time.

A lane has neighbours of a row of an accumulator. Where these are computed on with a matrix of 16
bits in shared memory, both elements of that come as one word. In panels (``warpgroups.panels``) the
eight rows that a warp reads at once lie in different banks: the swizzle takes care of it.
"""

from __future__ import annotations

from selector.emit.context import KernelContext, Region
from selector.emit.scalar import Space, Storage
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Load, Var
from selector.ir.types import FLOAT16

EVEN, ODD, DOWN = "@even@", "@odd@", "@down@"
"""Marks for the column of the left neighbour, which of the two an element is, and how many rows
below the lane's first one it lies: a multiple of eight, after which every swizzle repeats.
"""


def mark_staged(load: Load, region: Region, context: KernelContext) -> Var | None:
    """A mark for one lane's load, whose index is one of row ``$m`` and column ``$n``; None where
    neighbours do not lie in one word.
    """
    storage, index = context.storages.get(load.buffer), to_affine(load.index)
    if storage is None or storage.space is not Space.SHARED or storage.strips is not None:
        return None
    m, n = Var("$m"), Var("$n")
    pitch, rest = index.coefficient(m).constant, index.rest(n)
    words = index.coefficient(n).constant == 1 and not rest.mentions("$n")
    words &= pitch is not None and not index.rest(m).mentions("$m")
    if pitch is None or not words or any(c % 2 for _, c in rest):
        return None
    if region.swapped or load.type != FLOAT16 or load.predicate is not None:
        return None
    context.names.bind("$row", "g")
    context.names.bind("$even", EVEN)
    first = index.rest(m).rest(n) + Affine.of(Var("$row")) * pitch + Affine.of(Var("$even"))
    place = _place(first, pitch, storage, context)
    if place is None:
        return None
    return Var(context.names.verbatim(f"half_of({place}, {ODD})"), load.type)


def _place(first: Affine, pitch: int, storage: Storage, context: KernelContext) -> str | None:
    """The word of a row that is ``DOWN`` rows below that of ``first``, as text."""
    panels, scalar = storage.panels, context.scalar
    if panels is None:
        return f"pair_at({storage.pointer} + {scalar.index(first.to_expr())} + {DOWN} * {pitch})"
    place = panels.place(first)
    if place is None or pitch != panels.pitch:
        return None
    row, column = (scalar.index(p.to_expr()) for p in place)
    sizes = f"{panels.rows}, {panels.row_bytes}, {DOWN}"
    return f"pair_in_panels<{sizes}>(smem, {storage.pointer}, {row}, {column})"
