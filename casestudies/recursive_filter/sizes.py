"""Samples that are taken together, and other numbers on which algorithm and tables agree."""

from __future__ import annotations

from dataclasses import dataclass

LANES = 64  # parts of the sum over all groups before
DILATION = 8  # of the recursion after the convolution (the paper's d)
TAPS = 2 * DILATION


@dataclass(frozen=True, slots=True)
class Sizes:
    """Samples of a block, of a tile, and of a group of tiles; powers of two."""

    block: int = 32
    tile: int = 512
    group: int = 8192

    @property
    def blocks(self) -> int:
        return self.tile // self.block

    @property
    def tiles(self) -> int:
        return self.group // self.tile


BLOCKS = Sizes()
LOOKAHEAD = Sizes(64, 1024, 16384)  # tiles of 1024, as in the paper
