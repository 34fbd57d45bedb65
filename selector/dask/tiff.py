"""Images as tiled TIFF, written while the next rows are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from selector.dask.files import needed
from selector.diagnostics import ArgumentError

TILE = 512  # pixels of a tile's side
COLOURS = (3, 4)


def write_tiff(
    path: Path,
    rows: Callable[[int, int], np.ndarray],
    shape: Sequence[int],
    dtype: np.dtype[Any],
    chunks: Sequence[int],
) -> None:
    """A BigTIFF of ``shape`` (height, width) or (height, width, 3 or 4), from ``rows``: those of
    the image from a first to before a last one. As many are asked for at once as ``chunks`` have.
    """
    coloured = len(shape) == 3 and shape[2] in COLOURS
    if len(shape) != 2 and not coloured:
        raise ArgumentError(
            f"an array of shape {tuple(shape)} is no image of a TIFF",
            why="that has two axes, or three and the last is 3 or 4 long",
            hint="write .zarr or .npy",
        )
    tile = (TILE, TILE, *shape[2:])
    band = -(-max(chunks[0], 1) // TILE) * TILE
    needed("tifffile").imwrite(
        path,
        _tiles(rows, shape, band, tile),
        shape=tuple(shape),
        dtype=dtype,
        tile=(TILE, TILE),
        bigtiff=True,
        photometric="rgb" if coloured else "minisblack",
        planarconfig="contig" if coloured else None,
    )


def _tiles(
    rows: Callable[[int, int], np.ndarray],
    shape: Sequence[int],
    band: int,
    tile: tuple[int, ...],
) -> Iterator[np.ndarray]:
    """Tiles in order. The next band is computed while the tiles of one are written."""
    starts = range(0, shape[0], band)
    with ThreadPoolExecutor(1) as ahead:
        coming = [ahead.submit(rows, 0, min(band, shape[0]))]
        for start in starts:
            values = coming.pop().result()
            following = start + band
            if following < shape[0]:
                coming.append(ahead.submit(rows, following, min(following + band, shape[0])))
            for y in range(0, len(values), TILE):
                for x in range(0, shape[1], TILE):
                    part = values[y : y + TILE, x : x + TILE]
                    room = [(0, t - n) for t, n in zip(tile, part.shape, strict=True)]
                    yield np.pad(part, room)
