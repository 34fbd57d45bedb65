"""The schedules of a contraction that are worth a thought at a size."""

from __future__ import annotations

from collections.abc import Iterator

from selector.families.contraction.limits import SWIZZLED, shared_bytes, why_not
from selector.families.contraction.tiling import Shape, Tiling
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


def space(shape: Shape, machine: Machine) -> Iterator[Tiling]:
    """All that compile for the machine's target, each once."""
    target = find_target(machine.target)
    for tile in _tiles(shape, machine, target):
        for finished in _rings(tile, shape, machine, target):
            if not why_not(finished, shape, target):
                yield finished


def _tiles(shape: Shape, machine: Machine, target: Target) -> Iterator[Tiling]:
    """Block tiles, none much larger than C, nor so small that others must be better."""
    least = shape.m * shape.n / (machine.multiprocessors * TURNS)
    depth = 32 // shape.bytes

    def fits(m: int, n: int) -> bool:
        close = (m < 2 * shape.m or m <= 16) and (n < 2 * shape.n or n <= 16)
        return close and (m * n >= least or m * n >= 128 * 256)

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
    """A tile with runs, rings and grids: the deepest ring of one block and of two on a
    multiprocessor, no deeper than the sum.
    """
    for copied in _copied(shape, t):
        for run in RUNS:
            k = run * 2 // shape.bytes
            if run > RUNS[0] and (shape.k <= k or t.slot_bytes(shape.bytes) * 2 > SMALL_SLOT):
                continue
            for cluster, persistent in _grids(t, shape, machine):
                yield from _deep(
                    changed(t, k=k, copied=copied, cluster=cluster, persistent=persistent),
                    shape, target,
                )  # fmt: skip


def _copied(shape: Shape, t: Tiling) -> tuple[str, ...]:
    """Operands to copy before: bytes that wgmma could not read; rows of odd lengths, where there is
    much to do.
    """
    needed = shape.across if t.unit == "group" else ""
    if t.unit == "warp" or shape.multiply_adds < WORTH_COPIES:
        return (needed,)
    wanted = "".join(x for x in "AB" if x in needed or x in shape.odd)
    return (needed,) if wanted == needed else (needed, wanted)


def _grids(t: Tiling, shape: Shape, machine: Machine) -> Iterator[tuple[int, int]]:
    """Blocks of a cluster, and those that stay on a multiprocessor."""
    tiles_m = -(-shape.m // t.m)
    tiles = tiles_m * -(-shape.n // t.n)
    for cluster in (1, 2) if t.unit == "group" and tiles_m > 1 and t.m >= 64 else (1,):
        yield cluster, 0
        if t.unit == "group" and tiles > machine.multiprocessors:
            yield cluster, 1


def _deep(t: Tiling, shape: Shape, target: Target) -> Iterator[Tiling]:
    runs = max(2, -(-shape.k // t.k))
    fed = t.unit == "warp" and _fed(t, shape, target)
    found: set[int] = set()
    for blocks in (1, 2) if not t.persistent else (1,):
        own = target.shared_memory // blocks - (0 if blocks == 1 else 1024)
        own -= 4096 * 4 * t.parts if t.persistent else 0
        slot = shared_bytes(changed(t, stages=8, self_fed=fed), shape) / 8
        stages = min(int(own / slot), runs, 12)
        if stages >= 2 and stages not in found:
            found.add(stages)
            yield changed(t, stages=stages, self_fed=fed)


def _fed(t: Tiling, shape: Shape, target: Target) -> bool:
    """Whether one thread has the operands of warps brought."""
    if not target.has("bulk") or shape.odd:
        return False
    inner = (t.k if shape.along(x) else e for x, e in (("A", t.m), ("B", t.n)))
    return all(i * shape.bytes in SWIZZLED or i * shape.bytes % SWIZZLED[-1] == 0 for i in inner)


def changed(t: Tiling, **fields: object) -> Tiling:
    """``dataclasses.replace`` without its checks: a space is made of thousands."""
    made = {name: getattr(t, name) for name in Tiling.__slots__} | fields
    return Tiling(**made)  # pyright: ignore[reportArgumentType]
