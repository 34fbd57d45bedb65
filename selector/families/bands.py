"""Sums over taps that begin where data say, on tensor units: groups of results begin together, and
their weights are a band.

    f[x, o] += pixels[x, k] * band[k, o]    for the runs of k in which a group has taps

``down``: along a dimension that is not innermost in memory; ``across``: along rows. A group is more
of a band for more results, of which more is 0; a run fewer turns, of which more is not needed.
"""

from __future__ import annotations

from math import prod

from selector.dataclass import dataclass
from selector.machine import Machine

WORTH = 1 << 22
"""Elements of a source from which on blocks have enough to do; with fewer, threads that load for
themselves are done before the first block's copies are there (H100, measured)."""
FEW, FURTHER = 2, 2
"""Taps of a result that threads add up as soon as groups have theirs, and more of them for each
pixel that the next result is further: groups go through those between their results as well. (Area
filters of 2 to 16 taps take threads 0.5 to 0.85 of the time, bicubic ones of 5 to 58 take them 1 to
1.4 times as long, on an H200.)
"""
BUSY = 4  # blocks of a multiprocessor that hide each other's copies


@dataclass(frozen=True, slots=True)
class Tiling:
    """Results that begin together and pixels of a run; neighbours of a ``warp`` along the dimension
    that is not resampled, ``warps`` of a block, runs that are under way.
    """

    group: int
    run: int
    warp: int
    warps: int
    stages: int

    @property
    def block(self) -> int:
        return self.warp * self.warps

    def blocks(self, neighbours: int, results: int, others: int) -> int:
        """Of so many neighbours and results, so many times."""
        return -(-neighbours // self.block) * -(-results // self.group) * others


def worth(source: tuple[int, ...]) -> bool:
    """Whether a source of these extents is large enough."""
    return prod(source) >= WORTH


def has_few(taps: int | None, pixels: int, results: int) -> bool:
    """Whether results of a row of pixels have so few taps that threads add these up sooner."""
    return taps is not None and taps <= FEW + FURTHER * pixels / max(1, results)


def tiling_of(
    extents: tuple[int, ...], along: int, beside: int, channels: int, machine: Machine
) -> Tiling:
    """For results of these extents, resampled ``along`` one dimension, ``beside`` which blocks go
    along another one; so many ``channels`` of a pixel go with it down the image.
    """
    others = prod(e for d, e in enumerate(extents) if d not in (along, beside)) // channels
    down = beside < along
    pixels = 16 if channels > 1 else 64
    large = Tiling(16, 16, pixels, 4, 3) if down else Tiling(32, 16, 16, 4, 3)
    if large.blocks(extents[beside], extents[along], others) >= BUSY * machine.multiprocessors:
        return large
    return Tiling(16, 64, pixels // 2, 4, 2) if down else Tiling(16, 64, 16, 2, 2)
