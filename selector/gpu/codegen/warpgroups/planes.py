"""Copies of every s-th element of a dimension: its elements dealt out into planes.

The copy engine takes an array for any dimensions with any strides. One whose rows are every s-th
pixel has pixels s times as far apart, and as many of them as there are behind the first; where that
is not pixel 0, a dimension of its own, of the pixels between, says which. So a map of each plane
ends where the array does, whatever the remainder of its width: nothing behind a row is read for
another, and nothing is asked for twice. Rows stay whole and swizzled; as planes are alike, the last
ones have a column or so that no window reaches.

Which of the pixels between begins may not be known, or be another in each turn of a loop, or a map
may have no dimensions left to say it: then boxes of the whole array skip elements (the driver's
element strides).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from selector.dataclass import dataclass
from selector.gpu.codegen.copies.recognise import Copy
from selector.gpu.ir.memory import MOST_APART, MOST_DIMENSIONS, Map
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Binary, BinaryOp, Expr, IntImm
from selector.targets import LARGEST_BOX

MOST_PLANES = 8  # each has a map, 128 bytes of the 4096 that a kernel's arguments may have


@dataclass(frozen=True, slots=True)
class Walk:
    """What a digit of the number of a copy's rows does: it walks along a dimension of the source,
    every so many elements, and ``step`` rows of the copy at a time.
    """

    name: str
    dimension: int
    every: int
    count: int
    step: int


@dataclass(frozen=True, slots=True)
class Walks:
    """The digits that number the rows of a box, innermost first, and those that deal them out:
    others walk along the same dimension in larger steps.
    """

    rows: tuple[Walk, ...]
    planes: tuple[Walk, ...]


def walks_of(copy: Copy, at: list[Affine], pitch: int) -> Walks | None:
    """What the digits do; None if they do not number the rows, ``pitch`` elements apart, as boxes
    do.
    """
    found: list[Walk] = []
    expected = Affine.of(copy.x.var)
    widest: dict[int, int] = {}
    for digit in (d for d in copy.rows if d.count != 1):
        moving = [d for d, c in enumerate(at) if c.mentions(digit.var.name)]
        step = copy.index.coefficient(digit.var).constant
        every = at[moving[0]].coefficient(digit.var).constant if len(moving) == 1 else None
        if digit.count is None or step is None or step % pitch or not every or every < 1:
            return None
        if moving[0] == 0:
            return None
        found.append(Walk(digit.var.name, moving[0], every, digit.count, step // pitch))
        widest[moving[0]] = max(every, widest.get(moving[0], 0))
        expected += Affine.of(digit.var) * step
    rows = sorted((w for w in found if w.every == widest[w.dimension]), key=lambda w: w.step)
    planes = tuple(w for w in found if w.every < widest[w.dimension])
    if not rows or copy.index != expected or len(rows) != len(widest):
        return None
    if prod(w.count for w in planes) > MOST_PLANES:
        return None
    count = 1
    for walk in rows:
        if walk.step != count:
            return None
        count *= walk.count
    return Walks(tuple(rows), planes)


def dealt(whole: Map, at: list[Affine], rows: list[Walk]) -> tuple[Map, tuple[Expr, ...]] | None:
    """The map of the elements that rows walk over from ``at`` on, and their first coordinates in
    it; None where these lie too far apart.
    """
    extents, strides, at = [*whole.extents], [*whole.strides], [*at]
    between: list[tuple[int, Expr]] = []
    steps = [1] * len(at)
    for d, every in ((w.dimension, w.every) for w in rows if w.every > 1):
        skipped = at[d].offset % every
        first = (at[d] - skipped).divided_by(every)
        if first is None or (skipped and len(at) + len(between) == MOST_DIMENSIONS):
            if every > MOST_APART or whole.box[d] * every > LARGEST_BOX:
                return None
            steps[d] = every
            continue
        if skipped:
            between.append((skipped, strides[d - 1]))
        at[d] = first
        room = to_affine(extents[d]) + (every - 1 - skipped)
        extents[d] = Binary(BinaryOp.DIV, room.to_expr(), IntImm(every))
        strides[d - 1] = (to_affine(strides[d - 1]) * every).to_expr()
    taken = replace(
        whole,
        extents=(*extents, *(IntImm(skipped + 1) for skipped, _ in between)),
        strides=(*strides, *(stride for _, stride in between)),
        box=(*whole.box, *(1 for _ in between)),
        steps=(*steps, *(1 for _ in between)) if max(steps) > 1 else (),
    )
    return taken, (*(c.to_expr() for c in at), *(IntImm(skipped) for skipped, _ in between))
