"""Samples that are taken together, and other numbers on which algorithm and tables agree."""

from __future__ import annotations

from dataclasses import dataclass

LANES = 64  # parts of the sum over all groups before
DILATION = 8  # of the recursion after the convolution (the paper's d)
TAPS = 2 * DILATION


@dataclass(frozen=True, slots=True)
class Sizes:
    """Samples of a block, of a tile, and of a group of tiles; powers of two."""

    block: int
    tile: int
    group: int

    @property
    def blocks(self) -> int:
        return self.tile // self.block

    @property
    def tiles(self) -> int:
        return self.group // self.tile

    def place(self, table: str) -> int:
        """Where a table begins in the array ``F``: transitions over a block, a tile and ``LANES``
        groups (``S``), over 0, 1, ... tiles (``M``) and groups (``G``), four numbers each; what
        the two numbers of a state contribute to the outputs that follow (``E``).
        """
        extents = {"S": 12, "M": 4 * self.tiles, "G": 4 * LANES, "E": 2 * self.block, "end": 0}
        names = list(extents)
        return sum(extents[name] for name in names[: names.index(table)])


def sizes_for(block: int) -> Sizes:
    """Tiles of 16 blocks, groups of 16 tiles."""
    return Sizes(block, 16 * block, 256 * block)


BLOCKS = sizes_for(32)
LOOKAHEAD = sizes_for(64)  # tiles of 1024, as in the paper
