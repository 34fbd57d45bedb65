"""Size classes: which sizes of a call share a program.

A schedule depends on some extents of inputs and outputs, each rounded to a power of two. Calls
whose extents round to the same have the same program. It is made for the sizes that were first in
its class: tiles for a power of two beside layers' 7, 14, 28 and 56 are 30 % off, and rows of 196
elements do not begin where rows of 256 do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from selector.dataclass import dataclass

EXACT, ROW = 64, 8  # extents below are what they are; elements of 2 bytes in 16
Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]


def rounded(extent: int) -> int:
    """The power of two that is nearest by ratio, at least 1."""
    if extent < 2:
        return 1
    low = 1 << (extent.bit_length() - 1)
    return low if extent * extent < 2 * low * low else 2 * low


def typical(extent: int) -> int:
    """What a schedule is made for where other extents follow, at least 1: small ones as they are,
    others to three significant bits, so that there are few such, with the last three of their own,
    by which rows begin where the copy engine takes them or not.
    """
    if extent < EXACT:
        return max(1, extent)
    step = 1 << (extent.bit_length() - 3)
    return (extent + step // 2) // step * step + extent % ROW


@dataclass(frozen=True, slots=True)
class SizeClass:
    """The sizes of calls that share a program.

    ``shapes``: inputs and outputs by name, in NumPy's order; an extent is the power of two that
    those of the class round to, or None where the schedule does not depend on it.
    """

    shapes: tuple[tuple[str, tuple[int | None, ...]], ...]

    def holds(self, shapes: Shapes) -> bool:
        """Whether a call with arrays of these shapes is of this class; not where one is unknown
        that matters.
        """
        known = all(name in shapes for name, _ in self.shapes)
        return known and all(rounded(n) == wanted for wanted, n in self._pairs(shapes))

    def away(self, shapes: Shapes) -> float:
        """How far the sizes of a call are from this class: the sum of the logarithms of ratios."""
        return sum(abs(math.log2(max(n, 1) / wanted)) for wanted, n in self._pairs(shapes))

    def _pairs(self, shapes: Shapes) -> list[tuple[int, int]]:
        return [
            (wanted, n)
            for name, own in self.shapes
            for wanted, n in zip(own, shapes[name], strict=True)
            if wanted is not None
        ]

    def __str__(self) -> str:
        return ", ".join(
            f"{name}: {' x '.join('any' if n is None else str(n) for n in own)}"
            for name, own in self.shapes
        )
