"""The schedules of a layer by warps, for GPUs without warpgroups.

A warp has rows of 16 pixels, and a block stages what all taps of a run of channels read. Where the
weights of all channels fit beside that, they stay, and the block goes down the image.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from selector.families import MOST_LANES
from selector.families.layers.tiling import WARP_PIXELS, Shape, Tiling

SUMS = 64  # filters of all vectors of a warp side by side: 64 registers of sums a lane
FILTERS = (8, 16, 24, 32, 48, 64)  # of a block, where channels come in runs
RUNS = 32, 16  # channels
STRIPS = 8
STATEMENTS = 160  # of one tile, at most: more take too long to compile
LEAST_SHARE = 0.25  # of products that are asked for


def warp_tilings(shape: Shape, room: int) -> Iterator[Tiling]:
    """Those worth trying where a block has so many bytes of shared memory, best first: the ones
    that read least. None for taps that share no pixels, where each is a product as fast.
    """
    if not any(shape.reach) or shape.phases > 1 or shape.bytes != 2 or len(shape.pixels) < 2:
        return
    if any(step > reach + 1 for step, reach in zip(shape.steps, shape.reach, strict=False)):
        return
    if _share(shape) < LEAST_SHARE:
        return
    if shape.fixed:
        yield from (t for t in _resident(shape) if t.shared_bytes <= room)
    for t in _runs(shape):
        if t.shared_bytes <= room:
            yield t
            return


def _share(shape: Shape) -> float:
    """Of the pixels, filters and channels of tiles those that there are."""
    share = 1.0
    for extent, least in ((shape.pixels[0], WARP_PIXELS), (shape.filters, 8), (shape.channels, 8)):
        share *= extent / _whole(extent, least)
    return share


def _resident(shape: Shape) -> Iterator[Tiling]:
    """With the weights of all channels, and the next strip on its way or not."""
    n, k = _whole(shape.filters, 8), _whole(shape.channels, 8)
    sides = max(1, min(4, SUMS // n))
    t = replace(
        _tiling(shape), n=n, k=k, sides=sides, warps=4 // sides, groups=4 if sides > 1 else 2,
        strips=1, stages=1,
    )  # fmt: skip
    short = max(WARP_PIXELS * t.depth, k) * n <= MOST_LANES
    if short and t.sides * t.boxes * shape.taps * (k // t.depth) <= STATEMENTS:
        yield replace(t, strips=STRIPS, stages=2)
        yield t


def _runs(shape: Shape) -> Iterator[Tiling]:
    """With runs of channels, of a block's filters, all blocks having as many."""
    blocks = -(-shape.filters // FILTERS[-1])
    n = next(n for n in FILTERS if n * blocks >= shape.filters)
    t = replace(_tiling(shape), n=n, warps=2, groups=2, stages=2, apart=True)
    tried = [replace(t, boxes=rows, k=k) for rows in (2, 1) for k in RUNS]
    yield from tried
    yield replace(tried[-1], stages=1)


def _tiling(shape: Shape) -> Tiling:
    """Of two rows of a warp, for all taps."""
    box = (WARP_PIXELS, *(1 for _ in shape.pixels[1:]))
    steps = shape.steps if max(shape.steps, default=1) > 1 else ()
    return Tiling(
        box, 1, 1, FILTERS[0], RUNS[-1], 1, shape.bytes, boxes=2, taps=shape.taps,
        reach=shape.reach, steps=steps, unit="warp",
    )  # fmt: skip


def _whole(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple
