"""The schedules of a contraction that are worth a thought at a size."""

from __future__ import annotations

from collections.abc import Iterator

from selector.families.contraction.limits import (
    BOX,
    SWIZZLED,
    beside_bytes,
    slot_bytes,
    why_not,
)
from selector.families.contraction.tiling import LINE, Shape, Tiling
from selector.machine.record import Machine
from selector.targets import Target, find_target

# Rows of C and groups along m; columns of C.
GROUP_ROWS = ((64, 1), (128, 1), (128, 2), (192, 3), (256, 2), (256, 4))
GROUP_COLUMNS = (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 224, 256)
# Swapped: columns of C and groups along n; rows of C.
SWAPPED_COLUMNS = ((64, 1), (128, 2), (192, 3))
SWAPPED_ROWS = (8, 16, 24, 32, 48, 64)
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
SMALL_SLOT = 36 << 10  # bytes of a slot that may hold the longer run
WORTH_COPIES = 1 << 26  # multiply-adds
USUAL_BAND, HIGHEST_BAND = 8, 16  # block rows
MOST_STAGES = 12  # of a ring: more wait for the same bytes
RESERVED = 1024  # bytes of a block's shared memory that the system has
OWN_RESULTS = 2 * BOX * 4  # bytes of a group's results on their way while its block stays


def space(shape: Shape, machine: Machine) -> Iterator[Tiling]:
    """All that compile for the machine's target, each once."""
    for tile in tiles(shape, machine):
        yield from finished(tile, shape, machine)


def finished(tile: Tiling, shape: Shape, machine: Machine) -> Iterator[Tiling]:
    """The schedules of the space with that block tile; first the plainest one."""
    target = find_target(machine.target)
    for tiling in _rings(tile, shape, machine, target):
        if not why_not(tiling, shape, target):
            yield tiling


def tiles(shape: Shape, machine: Machine) -> Iterator[Tiling]:
    """Block tiles, none much larger than C, nor so small that others must be better."""
    target = find_target(machine.target)
    largest = 128 * 256 if target.has("wgmma") else 64 * 128
    least = min(largest, shape.m * shape.n / (machine.multiprocessors * TURNS))
    depth = 32 // shape.bytes

    def fits(m: int, n: int) -> bool:
        close = (m < 2 * shape.m or m <= 16) and (n < 2 * shape.n or n <= 16)
        return close and m * n >= least

    if target.has("wgmma"):
        for m, groups in GROUP_ROWS:
            for n in GROUP_COLUMNS:
                if fits(m, n) or (m == 64 and shape.m <= 32 and fits(shape.m, n)):
                    yield Tiling(n, m, RUNS[0], 1, groups, depth=depth)
        for n, groups in SWAPPED_COLUMNS:
            for m in SWAPPED_ROWS:
                if fits(m, n):
                    yield Tiling(n, m, RUNS[0], groups, 1, depth=depth, swapped=True)
    for m, n, warps_m, warps_n in WARPS:
        if fits(m, n):
            yield Tiling(n, m, RUNS[0], warps_n, warps_m, unit="warp", band=0, swapped=m == 8)


def _rings(t: Tiling, shape: Shape, machine: Machine, target: Target) -> Iterator[Tiling]:
    """A tile with runs, rings and grids."""
    grids = list(_grids(t, shape, machine))
    for copied in _copied(shape, t):
        for run in RUNS:
            k = run * 2 // shape.bytes
            if run > RUNS[0] and t.unit == "warp" and shape.integers:
                continue  # operands of that many instructions spill
            if run > RUNS[0] and (shape.k <= k or t.slot_bytes(shape.bytes) * 2 > SMALL_SLOT):
                continue
            fed = t.unit == "warp" and _fed(t, k, shape, target)
            swizzled = fed or t.unit == "group"
            slot = slot_bytes(t.m, t.n, k, copied, shape, swizzled=swizzled)
            runs = max(2, -(-shape.k // k))
            for cluster, persistent, band in grids:
                kept = OWN_RESULTS * t.parts if persistent else 0
                for stages in _deep(slot, runs, target.shared_memory - kept, alone=persistent > 0):
                    yield Tiling(
                        t.n, t.m, k, t.parts_n, t.parts_m, stages, t.unit, t.depth, t.swapped,
                        band, persistent, 1, cluster, fed, copied,
                    )  # fmt: skip


def _deep(slot: int, runs: int, room: int, *, alone: bool) -> Iterator[int]:
    """Stages of the deepest ring of one block and of two on a multiprocessor, no deeper than the
    sum.
    """
    last = 0
    for blocks in (1,) if alone else (1, 2):
        own = room // blocks - (blocks - 1) * RESERVED - beside_bytes(MOST_STAGES)
        stages = min(own // slot, runs, MOST_STAGES)
        if stages >= 2 and stages != last:
            yield stages
        last = stages


def _copied(shape: Shape, t: Tiling) -> tuple[str, ...]:
    """Operands to copy before: bytes that wgmma could not read; rows of odd lengths, where there is
    much to do.
    """
    needed = shape.across if t.unit == "group" else ""
    if t.unit == "warp" or shape.multiply_adds < WORTH_COPIES:
        return (needed,)
    wanted = "".join(x for x in "AB" if x in needed or x in shape.odd)
    return (needed,) if wanted == needed else (needed, wanted)


def _grids(t: Tiling, shape: Shape, machine: Machine) -> Iterator[tuple[int, int, int]]:
    """Blocks of a cluster, those that stay on a multiprocessor, and block rows of a band."""
    tiles_m = -(-shape.m // t.m)
    tiles = tiles_m * -(-shape.n // t.n)
    for cluster in (1, 2) if t.unit == "group" and tiles_m > 1 and t.m >= 64 else (1,):
        band = t.band and band_of(tiles_m, cluster)
        yield cluster, 0, band
        if t.unit == "group" and tiles > machine.multiprocessors:
            yield cluster, 1, band


def band_of(tiles_m: int, cluster: int) -> int:
    """Block rows of a band, a multiple of the cluster: those that leave least beyond the last row
    of C, of these the most usual ones.
    """
    heights = range(cluster, HIGHEST_BAND + 1, cluster)
    return min(heights, key=lambda b: (-(-tiles_m // b) * b, abs(b - USUAL_BAND)))


def _fed(t: Tiling, k: int, shape: Shape, target: Target) -> bool:
    """Whether one thread has the operands of warps brought."""
    if not target.has("bulk") or shape.odd:
        return False
    inner = (k if shape.along_a else t.m) * shape.bytes, (k if shape.along_b else t.n) * shape.bytes
    return all(i in SWIZZLED or i % LINE == 0 for i in inner)
