"""The schedules of a contraction that are worth a thought at a size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from selector.families.contraction.limits import (
    BOX,
    beside_bytes,
    boxes,
    slot_bytes,
    turns_too_much,
    why_not,
)
from selector.families.contraction.tiling import (
    ALONE,
    AT_ONCE,
    NEIGHBOURS,
    Shape,
    Tiling,
    in_band,
)
from selector.machine.record import Machine
from selector.targets import Target, find_target

# Rows of C and groups along m; columns of C.
GROUP_ROWS = ((64, 1), (128, 1), (128, 2), (192, 3), (256, 2), (256, 4))
GROUP_COLUMNS = (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256)
# Swapped: columns of C and groups along n; rows of C.
SWAPPED_COLUMNS = ((64, 1), (128, 2), (192, 3))
SWAPPED_ROWS = (8, 16, 24, 32, 48, 64)
MOST_SWAPPED = 256  # rows of C: lanes store swapped results one by one
# Of warps: rows and columns of C, warps along m and n; swapped where there are 8 rows.
WARPS = (
    (8, 16, 1, 1), (8, 32, 1, 2), (8, 64, 1, 4), (8, 128, 1, 8),
    (16, 16, 1, 1), (16, 32, 1, 1), (16, 32, 1, 2), (16, 64, 1, 2), (16, 64, 1, 4), (16, 128, 1, 4),
    (32, 32, 2, 1), (32, 32, 2, 2), (32, 64, 2, 2), (32, 128, 2, 4),
    (64, 32, 2, 1), (64, 32, 4, 1), (64, 64, 2, 2), (64, 128, 2, 4),
    (128, 64, 2, 2), (128, 64, 4, 2), (128, 128, 4, 2), (128, 256, 2, 4),
)  # fmt: skip
TURNS = 24  # tiles of a multiprocessor beyond which larger ones are better in any case
RUNS = (64, 128)  # two-byte elements of the sum; twice as many bytes
SHORT_RUNS = (16, 32)  # that hold a whole sum
SMALL_SLOT = 36 << 10  # bytes of a slot that may hold the longer run
WORTH_COPIES = 1 << 26  # multiply-adds
USUAL_BAND, HIGHEST_BAND = 8, 16  # block rows
MANY_PARTS = 8  # of a sum: fewer may be added in less time, but the whole sum takes longer
MOST_ADDERS = 32  # threads that add the parts of a result: warps of a block
LEAST_RUNS = 2  # of a part, long ones
MOST_STAGES = 12  # of a ring: more wait for the same bytes
RESERVED = 1024  # bytes of a block's shared memory that the system has
OWN_RESULTS = 2 * BOX * 4  # bytes of a group's results on their way while its block stays


def space(shape: Shape, machine: Machine) -> Iterator[Tiling]:
    """All that compile for the machine's target, each once."""
    target = find_target(machine.target)
    for tile in tiles(shape, machine):
        for copied in copies(tile, shape):
            for tiling in finished(tile, copied, shape, machine):
                if not why_not(tiling, shape, target):
                    yield tiling


def finished(tile: Tiling, copied: str, shape: Shape, machine: Machine) -> Iterator[Tiling]:
    """The schedules with that block tile and those operands copied before, those among them that do
    not compile.
    """
    for run in _runs(shape):
        yield from _rings(tile, copied, run, shape, machine)


def _runs(shape: Shape) -> tuple[int, ...]:
    """The shortest one of a sum that is no longer, else the usual ones."""
    return next(((run,) for run in SHORT_RUNS if shape.k * shape.bytes <= run * 2), RUNS)


def tiles(shape: Shape, machine: Machine) -> Iterator[Tiling]:
    """Block tiles with the whole sum, or parts of it where that leaves multiprocessors idle."""
    target = find_target(machine.target)
    for tile in _tiles(shape, machine):
        blocks = -(-shape.m // tile.m) * -(-shape.n // tile.n) * shape.batch
        most = machine.multiprocessors // blocks
        quick = tile.unit == "group" or shape.odd or not target.has("wgmma")
        parts = [_parted(tile, part, shape, machine) for part in _parts(most, shape) if quick]
        if most < MANY_PARTS or not parts:
            yield tile
        yield from parts


def _parted(tile: Tiling, part: int, shape: Shape, machine: Machine) -> Tiling:
    """With a thread for a few parts of each result, where there are many parts and the GPU has
    room for as many threads.
    """
    sm = find_target(machine.target).multiprocessor
    assert sm is not None
    parts = -(-shape.k // part)
    if parts <= ALONE:
        return replace(tile, part=part)
    room = machine.multiprocessors * 32 * sm.warps // (shape.m * shape.n * shape.batch)
    adders = min(room, -(-parts // AT_ONCE), MOST_ADDERS)
    return replace(tile, part=part, adders=1 << max(adders.bit_length() - 1, 0))


def _parts(most: int, shape: Shape) -> Iterator[int]:
    """Elements of a sum in parts, whole runs: as many parts as fill the GPU, and where these are
    many, half of them.
    """
    run = RUNS[-1] * 2 // shape.bytes
    for parts in (most, most // 2) if most >= MANY_PARTS else (most,):
        part = -(-shape.k // (max(parts, 1) * run)) * run
        if parts > 1 and LEAST_RUNS * run <= part < shape.k:
            yield part


def _tiles(shape: Shape, machine: Machine) -> Iterator[Tiling]:
    """None much larger than C, nor so small that others must be better."""
    target = find_target(machine.target)
    found = list(_close(shape, target))
    largest = max((size for size, _ in found), default=0)  # those of a narrow C are small
    enough = 128 * 256 if target.has("wgmma") else 64 * 128
    results = shape.m * shape.n
    turns = results * shape.batch / (machine.multiprocessors * TURNS)
    least = min(enough, largest, results, turns)
    yield from (tile for size, tile in found if size >= least)


def _close(shape: Shape, target: Target) -> Iterator[tuple[int, Tiling]]:
    """Tiles not much larger than C, and how many results of theirs there are."""
    depth = 32 // shape.bytes
    groups_take = target.has("wgmma") and not (shape.across and shape.batch > 1)

    def fits(m: int, n: int) -> bool:
        return (m < 2 * shape.m or m <= 16) and (n < 2 * shape.n or n <= 16)

    if groups_take:
        for m, groups in GROUP_ROWS:
            for n in GROUP_COLUMNS:
                rows = shape.m if m == 64 and shape.m <= 32 else m
                if fits(rows, n):
                    yield rows * n, Tiling(n, m, RUNS[0], 1, groups, depth=depth)
        for n, groups in SWAPPED_COLUMNS if shape.m <= MOST_SWAPPED else ():
            for m in SWAPPED_ROWS:
                if fits(m, n):
                    tile = Tiling(n, m, RUNS[0], groups, 1, depth=depth, swapped=True)
                    yield m * n, tile
    for m, n, warps_m, warps_n in WARPS:
        if fits(m, n):
            swapped = m == 8
            tile = Tiling(n, m, RUNS[0], warps_n, warps_m, unit="warp", band=0, swapped=swapped)
            if not turns_too_much(tile, shape):
                yield m * n, tile


def _rings(t: Tiling, copied: str, run: int, shape: Shape, machine: Machine) -> Iterator[Tiling]:
    """A tile, what is copied before and a run, with rings and grids."""
    target = find_target(machine.target)
    k = run * 2 // shape.bytes
    if run > RUNS[0]:
        if t.unit == "warp" and shape.integers:
            return  # operands of that many instructions spill
        if t.own(shape.k) <= k or t.slot_bytes(shape.bytes) * 2 > SMALL_SLOT:
            return
    fed = t.unit == "warp" and _fed(t, k, shape, target)
    swizzled = fed or t.unit == "group"
    runs = max(2, -(-t.own(shape.k) // k))
    slot = slot_bytes(t.m, t.n, k, copied, shape, swizzled=swizzled)
    for cluster, persistent, band, wide in _grids(t, shape, machine):
        kept = OWN_RESULTS * t.parts * persistent
        most = MOST_STAGES if persistent else runs  # the rings of blocks that stay go on
        for stages in _deep(slot, most, target.shared_memory - kept, persistent):
            yield Tiling(
                t.n, t.m, k, t.parts_n, t.parts_m, stages, t.unit, t.depth, t.swapped,
                band, persistent, 1, cluster, fed, copied, part=t.part, adders=t.adders, wide=wide,
            )  # fmt: skip


def _deep(slot: int, runs: int, room: int, staying: int) -> Iterator[int]:
    """Stages of the deepest ring of one block and of two on a multiprocessor, or of those that
    stay on it, no deeper than ``runs``.
    """
    last = 0
    for blocks in (staying,) if staying else (1, 2):
        own = room // blocks - (blocks - 1) * RESERVED - beside_bytes(MOST_STAGES)
        stages = min(own // slot, runs, MOST_STAGES)
        if stages >= 2 and stages != last:
            yield stages
        last = stages


def copies(t: Tiling, shape: Shape) -> tuple[str, ...]:
    """Operands to copy before: those of ``worth_copying``, or of them only those that wgmma could
    not read otherwise.
    """
    if t.unit == "warp":
        return ("",)
    needed, wanted = shape.across, worth_copying(shape)
    return (needed,) if wanted == needed else (needed, wanted)


def worth_copying(shape: Shape) -> str:
    """Operands that may be worth a copy before the product: bytes that do not lie along the sum,
    and rows that no tensor map describes, where there is much to do.
    """
    odd = shape.odd if shape.multiply_adds >= WORTH_COPIES else ""
    return "".join(x for x in "AB" if x in shape.across or x in odd)


def _grids(t: Tiling, shape: Shape, machine: Machine) -> Iterator[tuple[int, int, int, bool]]:
    """Blocks of a cluster, those that stay on a multiprocessor, and block rows, or columns, of a
    band.
    """
    tiles_m, tiles_n = -(-shape.m // t.m), -(-shape.n // t.n)
    tiles = tiles_m * tiles_n * shape.batch
    at_once = tiles * t.sums(shape.k) <= machine.multiprocessors
    stays = t.unit == "group" and not t.part and tiles > machine.multiprocessors
    for cluster, wide in _clusters(t, tiles_m, tiles_n, wide=stays and not shape.integers):
        band = t.band and band_of(tiles_n if wide else tiles_m, cluster)
        if band and cluster == 1 and at_once:
            band = band_at_once(tiles_m, tiles_n, t.m, t.n)
        yield cluster, 0, band, wide
        if stays:
            yield cluster, 1, band, wide
            if tiles >= 2 * machine.multiprocessors:
                yield cluster, 2, band, wide


def _clusters(t: Tiling, tiles_m: int, tiles_n: int, *, wide: bool) -> Iterator[tuple[int, bool]]:
    """Blocks of a cluster, and whether they lie along n."""
    yield 1, False
    if t.unit == "group" and tiles_m > 1 and t.m >= 64:
        yield 2, False
    if wide and tiles_n > 1:
        yield 2, True


@lru_cache(maxsize=1024)
def band_of(tiles_m: int, cluster: int) -> int:
    """Block rows of a band, a multiple of the cluster: those that leave least beyond the last row
    of C, of these the most usual ones.
    """
    heights = range(cluster, HIGHEST_BAND + 1, cluster)
    return min(heights, key=lambda b: (-(-tiles_m // b) * b, abs(b - USUAL_BAND)))


@lru_cache(maxsize=4096)
def band_at_once(tiles_m: int, tiles_n: int, m: int, n: int) -> int:
    """Block rows of a band where all blocks run at once: those for which neighbours on the GPU read
    the fewest rows of both operands, with what lies beyond the last row of C.
    """

    def read(band: int) -> tuple[int, int]:
        down, across = in_band(NEIGHBOURS, band, tiles_m, tiles_n)
        return -(-tiles_m // band) * band * (down * m + across * n), abs(band - USUAL_BAND)

    return min(range(1, HIGHEST_BAND + 1), key=read)


def _fed(t: Tiling, k: int, shape: Shape, target: Target) -> bool:
    """Whether one thread has the operands of warps brought."""
    brings = target.has("bulk") and not shape.odd and not shape.single
    return brings and boxes(t.m, t.n, k, "", shape)
