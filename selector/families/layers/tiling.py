"""The sizes of a layer, and a schedule of it as data."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

ROWS = 64  # pixels of a product by a warpgroup
COLUMNS = 32  # filters of one vector statement
DEPTH = 16  # channels of one vector statement
BYTES = 2  # of an element


@dataclass(frozen=True, slots=True)
class Shape:
    """``pixels`` of the outputs: their extents, innermost first, with that of the images; so many
    ``filters`` of ``channels`` times ``taps``.
    """

    pixels: tuple[int, ...]
    filters: int
    channels: int
    taps: int


@dataclass(frozen=True, slots=True)
class Tiling:
    """A group of four warps has a ``box`` of 64 pixels, and a block so many ``groups`` in a row
    ``along`` one dimension, with ``n`` filters; it goes through runs of ``k`` channels of a tap, of
    which there are ``stages`` in shared memory.
    """

    box: tuple[int, ...]
    groups: int
    along: int
    n: int
    k: int
    stages: int

    @property
    def block(self) -> tuple[int, ...]:
        """Pixels of a block along each dimension."""
        return tuple(e * (self.groups if d == self.along else 1) for d, e in enumerate(self.box))

    @property
    def run_bytes(self) -> int:
        """What a run of channels takes of shared memory."""
        return (prod(self.block) + self.n) * self.k * BYTES

    @property
    def threads(self) -> int:
        return 128 * (self.groups + 1)
