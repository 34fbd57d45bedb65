"""What blocks get of their operands through the L2 cache, and when.

The L2 cache puts together what neighbouring multiprocessors ask for at the same time (of 512 x 2560
x 10240 an H100's counters show 297 MB of the 587 that arrive), so that blocks which all run at once
share operands without a cluster, the better the squarer the part of C is that neighbours have. What
a cluster brings its blocks is not put together: it helps where blocks stay, and are at different
tiles after a while.
"""

from __future__ import annotations

from selector.families.contraction.fitted import Fitted
from selector.families.contraction.tiling import LINE, NEIGHBOURS, Shape, Tiling, neighbours
from selector.machine.record import Machine

SECTOR = 32  # bytes
BOX = 64  # rows that the copy engine brings at once


def from_cache(
    t: Tiling,
    shape: Shape,
    machine: Machine,
    fitted: Fitted,
    tiles: int,
    blocks: int,
    together: int,
) -> tuple[float, float]:
    """What all multiprocessors get from the L2 cache, and the busiest one alone."""
    rows_a, rows_b = operand_bytes(t, shape)
    at_once = not t.persistent and blocks == together
    cache = tiles * _through(t, shape, fitted, at_once=at_once) / 1e6 / machine.l2
    twice = blocks * asked_twice(t, t.copied, t.k, t.cluster, shape, fitted) * t.own(shape.k) / 1e3
    own = blocks * (rows_a + rows_b) * t.own(shape.k) / 1e3
    full = machine.kilobytes(machine.fill)
    filling = (own + twice) / full
    ahead = blocks / together if t.persistent else 1  # tiles of a block's ring
    if ahead * max(t.own(shape.k), t.k) > t.stages * t.k:  # else all is on its way at once
        held = fitted.held + fitted.held_beside * (t.persistent > 1)
        slots = max(t.stages - held, 0.5)
        ring = together * slots * t.k * (rows_a + rows_b) / 1e3
        filling = max(filling, own * fitted.arrival / ring)
    if any_left(shape.odd, t.copied):
        filling = max(filling, own / (together * feeding(t, fitted)))
    tiles_m, tiles_n = tiles_of(t, shape)
    beyond = tiles_m * t.m - shape.m, tiles_n * t.n - shape.n
    return cache, filling + beyond_operands(t, t.copied, shape, blocks, beyond, fitted) / full


def _through(t: Tiling, shape: Shape, fitted: Fitted, *, at_once: bool) -> float:
    """Bytes that the L2 cache is asked for a block's sake. Of blocks that all run at once, those
    that are neighbours on the GPU ask for the same rows at the same time, which are read once; not
    so where blocks are at different tiles after a while, nor what a cluster brings each other.
    """
    rows = [
        size * _in_cache(t, shape, name)
        for name, size in zip("AB", operand_bytes(t, shape), strict=True)
    ]
    own = sum(rows)
    if t.cluster > 1:
        shared = rows["AB".index(t.shared)]
        own = fitted.shared_twice * (own - shared * (1 - 1 / t.cluster))
    elif at_once:
        down, across = neighbours(t, NEIGHBOURS, -(-shape.m // t.m), -(-shape.n // t.n))
        once = (down * rows[0] + across * rows[1]) / NEIGHBOURS
        own -= fitted.merged * max(own - once, 0.0)
    return own * t.own(shape.k)


def _in_cache(t: Tiling, shape: Shape, name: str) -> float:
    """Times as long a row of an operand takes the L2 cache, which gives two sectors of a line at a
    time, where rows begin within a line.
    """
    pitch = shape.row_bytes(name)
    if name in t.copied or pitch % LINE == 0:
        return 1.0
    return 1.5 if pitch % SECTOR else 1.33


def asked_twice(
    t: Tiling, copied: str, run: int, cluster: int, shape: Shape, fitted: Fitted
) -> float:
    """Bytes for an element of the sum that as many requests for whole lines take as a block has
    more of them: for shorter rows, and where rows begin within a sector or a line.
    """
    found = 0.0
    for name, rows in zip("AB", operand_bytes(t, shape), strict=True):
        pitch, along = shape.row_bytes(name), shape.along(name)
        along = along or (name in copied and name in shape.across)
        more = 0.0
        row = run * shape.bytes if along else rows
        if row < LINE:
            more = fitted.short_rows * (LINE / row - 1)
        if pitch % LINE and name not in copied:
            within = fitted.sectors_along if along else fitted.sectors
            more += within if pitch % SECTOR else fitted.lines
        if not along:
            tile, extent = (t.m, shape.m) if name == "A" else (t.n, shape.n)
            if extent > tile and tile * shape.bytes % LINE:
                more += fitted.parts_of_lines
        if more:
            found += more * rows / (cluster if name == t.shared else 1)
    return found


def operand_bytes(t: Tiling, shape: Shape) -> tuple[int, int]:
    return (
        _loaded(t.m, shape.m, shape.along_a, shape.bytes),
        _loaded(t.n, shape.n, shape.along_b, shape.bytes),
    )


def beyond_operands(
    t: Tiling, copied: str, shape: Shape, blocks: int, beyond: tuple[int, int], fitted: Fitted
) -> float:
    """What time the bytes beyond the operands take, which the copy engine makes zero for a
    multiprocessor's blocks, in that of as many 10^3 bytes: of ``beyond`` rows of both operands, as
    for all blocks in the mean, and more of whole boxes, for the block that has most.
    """
    found = 0.0
    sizes = ("A", t.m, shape.m, beyond[0]), ("B", t.n, shape.n, beyond[1])
    for name, tile, extent, rows in sizes:
        if shape.along(name) or (name in copied and name in shape.across):
            found += fitted.void * blocks * rows * tile / (extent + rows)
            found += fitted.void_boxes * (rows % tile // BOX * BOX)
    return found * shape.bytes * t.own(shape.k) / 1e3


def tiles_of(t: Tiling, shape: Shape) -> tuple[int, int]:
    """Rows and columns of tiles, with those beyond C."""
    tiles_m, tiles_n = -(-shape.m // t.m), -(-shape.n // t.n)
    if t.wide:
        return tiles_m, -(-tiles_n // t.band) * t.band
    if t.band:  # all bands are as high: blocks beyond C multiply for nothing
        return -(-tiles_m // t.band) * t.band, tiles_n
    return tiles_m, -(-tiles_n // t.cluster) * t.cluster


def feeding(t: Tiling, fitted: Fitted) -> float:
    """10^3 bytes a microsecond of a block whose operands the copy engine cannot bring."""
    return fitted.by_threads if t.unit == "group" else fitted.by_warp * t.parts


def _loaded(tile: int, extent: int, along: bool, size: int) -> int:
    """Bytes that a block gets of an operand for one element of the sum: across the sum, rows come
    in whole panels.
    """
    used = min(tile, extent) * size
    if along:
        return used
    panel = LINE if used > 64 else 64 if used > 32 else 32
    return -(-used // panel) * panel


def any_left(names: str, copied: str) -> bool:
    """Whether any of the operands is not copied before."""
    return bool(names) and (not copied or any(x not in copied for x in names))
