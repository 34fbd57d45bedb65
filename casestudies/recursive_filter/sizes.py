"""Samples that stock Halide's version takes together, and where its tables begin; powers of two."""

from __future__ import annotations

BLOCK, TILE, GROUP = 32, 512, 8192  # samples: each is a whole number of the one before
BLOCKS, TILES = TILE // BLOCK, GROUP // TILE  # of a tile, of a group
LANES = 64  # parts of the sum over all groups before
EXTENTS = {"S": 12, "M": 4 * TILES, "G": 4 * LANES, "E": 2 * BLOCK, "end": 0}


def place(table: str) -> int:
    """Where a table begins among the numbers: transitions over a block, a tile and ``LANES`` groups
    (``S``), over 0, 1, ... tiles (``M``) and groups (``G``), four numbers each; what the two
    numbers of a state contribute to the outputs that follow (``E``).
    """
    names = list(EXTENTS)
    return sum(EXTENTS[name] for name in names[: names.index(table)])
