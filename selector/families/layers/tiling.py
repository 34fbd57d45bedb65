"""The sizes of a layer, and a schedule of it as data."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

ROWS = 64  # pixels of a product by a warpgroup
DEPTH_BYTES = 32  # of channels of one vector statement, which has fewer than 65536 terms


@dataclass(frozen=True, slots=True)
class Shape:
    """``pixels`` of the outputs: their extents, innermost first, with that of the images; so many
    ``filters`` of ``channels`` times ``taps``; elements of so many ``bytes``. ``phases``: so many
    times, with taps of their own. ``steps``: from the pixel that one output reads at a tap to that
    of the next, along each dimension, 1 where there are none. ``rows``: the filters of a pixel lie
    side by side in the result, for each of which so many elements are read; 0 where they do not.
    """

    pixels: tuple[int, ...]
    filters: int
    channels: int
    taps: int
    bytes: int = 2
    phases: int = 1
    steps: tuple[int, ...] = ()
    rows: int = 0

    @property
    def depth(self) -> int:
        """Channels of one vector statement."""
        return DEPTH_BYTES // self.bytes


@dataclass(frozen=True, slots=True)
class Tiling:
    """A group of four warps has a ``box`` of 64 pixels, and a block so many ``groups`` in a row
    ``along`` one dimension, with ``n`` filters; it goes through runs of ``k`` channels of a tap, of
    which there are ``stages`` in shared memory, of elements of so many ``bytes``. ``persistent``: a
    block a multiprocessor stays, and goes on to the next tile while its results leave. ``part``:
    blocks sum so many channels each, and a second kernel adds their sums (0: all).
    """

    box: tuple[int, ...]
    groups: int
    along: int
    n: int
    k: int
    stages: int
    bytes: int = 2
    persistent: bool = False
    part: int = 0

    @property
    def depth(self) -> int:
        """Channels of one vector statement."""
        return DEPTH_BYTES // self.bytes

    @property
    def columns(self) -> int:
        """Filters of one vector statement."""
        return 16 * self.bytes

    @property
    def block(self) -> tuple[int, ...]:
        """Pixels of a block along each dimension."""
        return tuple(e * (self.groups if d == self.along else 1) for d, e in enumerate(self.box))

    @property
    def run_bytes(self) -> int:
        """What a run of channels takes of shared memory."""
        return (prod(self.block) + self.n) * self.k * self.bytes

    @property
    def threads(self) -> int:
        return 128 * (self.groups + 1)
