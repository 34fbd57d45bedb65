"""Tiled TIFFs whose pixels are written in any order, by any process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from selector.dask.files import needed
from selector.dataclass import dataclass
from selector.diagnostics import ArgumentError

TILE = 512  # pixels of a tile's side
COLOURS = (3, 4)


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of a file, which lie one behind the other from ``begin`` on, as an image that takes
    blocks.
    """

    path: str
    begin: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __setitem__(self, where: Any, values: np.ndarray) -> None:
        rows, columns = where[:2]
        down, across = (-(-n // TILE) for n in self.shape[:2])
        tiles = np.memmap(
            self.path, self.dtype, "r+", self.begin, (down, across, TILE, TILE, *self.shape[2:])
        )
        for y, above, in_tile in _parts(rows, self.shape[0]):
            for x, left, beside in _parts(columns, self.shape[1]):
                tiles[y, x, in_tile, beside] = values[above, left]
        tiles.flush()


def _parts(taken: slice, extent: int) -> Iterator[tuple[int, slice, slice]]:
    """Of pixels along an axis: each tile, which of them lie in it, and where there."""
    begin, end, _ = taken.indices(extent)
    for tile in range(begin // TILE, -(-end // TILE)):
        first, behind = max(begin, tile * TILE), min(end, (tile + 1) * TILE)
        yield (
            tile,
            slice(first - begin, behind - begin),
            slice(first - tile * TILE, behind - tile * TILE),
        )


def new_tiff(path: Path, shape: Sequence[int], dtype: np.dtype[Any]) -> Tiles:
    """An empty BigTIFF of ``shape`` (height, width) or (height, width, 3 or 4)."""
    tifffile = needed("tifffile")
    coloured = len(shape) == 3 and shape[2] in COLOURS
    if len(shape) != 2 and not coloured:
        raise ArgumentError(
            f"an array of shape {tuple(shape)} is no image of a TIFF",
            why="that has two axes, or three and the last is 3 or 4 long",
            hint="write .zarr or .npy",
        )
    tifffile.imwrite(
        path,
        None,
        shape=tuple(shape),
        dtype=dtype,
        tile=(TILE, TILE),
        bigtiff=True,
        photometric="rgb" if coloured else "minisblack",
        planarconfig="contig" if coloured else None,
    )
    with tifffile.TiffFile(path) as made:
        begin = made.pages[0].dataoffsets[0]
    return Tiles(str(path), int(begin), tuple(shape), dtype)
