"""Microseconds of a schedule of a contraction on a GPU, foretold.

Everything at once: what comes from memory, through the L2 cache and into one multiprocessor, and
what its tensor units do, as a norm of these times (the exponent says how well they overlap). One
after the other: the launch, the results' way out of a block, what a block that follows another
on a multiprocessor waits for, and in a block that stays the products and stores of its groups: how
many blocks a multiprocessor has at a time decides how much of that is hidden.

The L2 cache puts together what neighbouring multiprocessors ask for at the same time (of 512 x 2560
x 10240 an H100's counters show 297 MB of the 587 that arrive), so that blocks which all run at once
share operands without a cluster, the better the squarer the part of C is that neighbours have. What
a cluster brings its blocks is not put together: it helps where blocks stay, and are at different
tiles after a while. What is no property of a GPU was fitted to times of an H100 (``python -m
casestudies model --fit``); of eleven held-out sizes the choice loses 3 % in the mean, 10 % at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from selector.families.contraction.limits import registers_given, shared_bytes
from selector.families.contraction.tiling import (
    ALONE,
    AT_ONCE,
    LINE,
    NEIGHBOURS,
    Shape,
    Tiling,
    neighbours,
)
from selector.machine.record import Machine, Rate
from selector.targets import Multiprocessor, Target, find_target


@dataclass(frozen=True, slots=True)
class Fitted:
    """Microseconds unless said otherwise.

    ``overlap``: exponent of the norm. ``start``: until the first run is there, and from the last
    result to the end, beside the launch. ``arrival``: from asking for a slot to having it, under
    load; ``held``: slots of a ring that multiplication keeps, ``held_beside`` more where blocks
    stay beside each other. What a byte's requests take longer, times its own: where rows begin
    within ``sectors`` of 32 bytes (``sectors_along``: rows along the sum) or within ``lines``,
    where a tile has ``parts_of_lines``, and for ``short_rows`` of half a line. ``shared_lines``: of
    a line's bytes, where results of two boxes lie in it. ``void``: times a byte's, where the byte
    lies beyond an operand, in rows along the sum, and the copy engine makes it zero. ``merged``: of
    what neighbours ask for twice, that the L2 cache is asked for once; ``shared_twice``: times what
    a cluster asks for. ``by_threads``, ``by_warp``: 10^3 bytes a microsecond that the threads of a
    feeding group copy where the copy engine cannot, and a warp that multiplies as well.
    ``multicast``: of meeting in a cluster. ``again``: until the next block on a multiprocessor
    multiplies. ``copy_kernel``: of a copy ahead, beside its bytes, which take ``turned_copy`` times
    as long where it turns them. ``store``: until a block has handed over its results, and clocks
    for a ``sector`` of them, for an element in a ``narrow`` strip, or for one that a lane stores by
    itself, where operands are swapped (``scattered``). ``turn``: clocks between runs of a group
    alone; ``step``: from a warp's loads to its next ones, and for each result of ``single`` floats;
    ``turning``: times as long it reads bytes that do not lie along the sum. ``adding``: of the
    kernel that adds parts, beside ``round``, of the loads of a thread that are on their way at
    once, and ``meeting``, of the threads that add a result's.
    """

    overlap: float = 3.4
    start: float = 0.55
    arrival: float = 1.08
    held: float = 1.44
    held_beside: float = 0.8
    sectors: float = 2.2
    sectors_along: float = 2.0
    lines: float = 0.05
    parts_of_lines: float = 1.6
    short_rows: float = 1.0
    shared_lines: float = 1.26
    void: float = 2.2
    by_threads: float = 7.0
    by_warp: float = 0.8
    multicast: float = 0.18
    merged: float = 0.68
    shared_twice: float = 1.12
    again: float = 1.8
    copy_kernel: float = 0.78
    turned_copy: float = 1.65
    store: float = 0.36
    sector: float = 1.32
    narrow: float = 0.06
    scattered: float = 0.42
    turn: float = 0.64
    step: float = 105.0
    single: float = 0.25
    turning: float = 16.4
    adding: float = 0.25
    meeting: float = 0.61
    round: float = 0.58


FITTED = Fitted()
SUM_BYTES = 4
MOST_IN_CLUSTER = 2  # blocks
MOST_STAYING = 2  # blocks that stay on a multiprocessor
SECTOR = 32  # bytes
STRIP = 32  # columns of a vector statement whose results leave as one box


@dataclass(frozen=True, slots=True)
class Estimate:
    """Microseconds: the sum, and its parts. ``blocks`` of the busiest multiprocessor, of which
    ``together`` run at a time.
    """

    microseconds: float
    memory: float
    cache: float
    filling: float
    multiplying: float
    storing: float
    waiting: float
    blocks: int
    together: int

    @property
    def bound(self) -> str:
        """What takes longest."""
        names = ("memory", "cache", "filling", "multiplying", "storing", "waiting")
        return max(names, key=lambda name: getattr(self, name))


def estimate(t: Tiling, shape: Shape, machine: Machine, fitted: Fitted = FITTED) -> Estimate:
    """Of a schedule that ``limits.why_not`` lets pass."""
    target = find_target(machine.target)
    tiles_m, tiles_n = _tiles(t, shape)
    running = machine.running(t.cluster)
    tiles = tiles_n * tiles_m * t.sums(shape.k) * shape.batch
    blocks = -(-tiles // running)
    together = min(blocks, t.persistent or blocks, resident(t, shape, target))
    memory = _memory(t, shape, machine, fitted, running * together)
    cache, filling = _filling(t, shape, machine, fitted, tiles, blocks, together)
    own = _multiplying(t, shape, machine, fitted, together)
    multiplying = blocks * own
    waiting = machine.launch + fitted.start + _copies(t.copied, shape, machine, fitted)
    if t.cluster > 1:
        waiting += fitted.multicast
    storing = _storing(t, shape, machine, fitted)
    rounds = -(-blocks // together)
    leaving = 0.0
    if t.persistent:  # while the ring is filled, groups multiply and hand over results in turn
        multiplying = max(multiplying, rounds * (own + fitted.store))
        leaving = rounds * storing
    else:
        waiting += (rounds - 1) * fitted.again / together
        last = _storing(t, shape, machine, fitted, together)
        storing = last + storing * (rounds - 1) / together
    if t.part:
        waiting += _adding(t, shape, machine, fitted)
    p = fitted.overlap
    at_once = (max(memory, leaving), cache, filling, multiplying)
    overlapped = sum(part**p for part in at_once) ** (1 / p)
    return Estimate(
        overlapped + storing + waiting,
        memory, cache, filling, multiplying, storing, waiting, blocks, together,
    )  # fmt: skip


def least(t: Tiling, copied: str, shape: Shape, machine: Machine, fitted: Fitted = FITTED) -> float:
    """Microseconds that no schedule of the space with that block tile, those parts of a sum and
    those operands copied takes less than: everything at its full rate, as many blocks at a time as
    their registers and threads allow, and nothing waits for a slot.
    """
    sm = find_target(machine.target).multiprocessor
    assert sm is not None
    tiles = -(-shape.n // t.n) * -(-shape.m // t.m) * t.sums(shape.k) * shape.batch
    blocks = -(-tiles // machine.multiprocessors)
    stays = t.unit == "group" and not t.part
    together = min(blocks, _beside(t, shape, sm, 0, stays=False))
    at_a_time = max(together, min(blocks, MOST_STAYING)) if stays else together
    run = 1 << max(4, (shape.k - 1).bit_length())  # no shorter than any of the space
    twice = _asked_twice(t, copied, run, MOST_IN_CLUSTER, shape, fitted) * t.own(shape.k)
    kilobytes = blocks * (sum(_operands(t, shape)) * t.own(shape.k) + twice) / 1e3
    beyond = -shape.m % t.m, -shape.n % t.n
    void = _void(t, copied, shape, blocks, beyond) * fitted.void
    filling = (kilobytes + void) / machine.kilobytes(machine.fill)
    if _left(shape.odd, copied):
        filling = max(filling, kilobytes / (at_a_time * _feeding(t, fitted)))
    multiplying = blocks * t.own(shape.k) * _clocks(t, shape, machine, fitted) / machine.megahertz
    operands = (shape.m + shape.n) * shape.k * shape.bytes
    results = shape.m * shape.n * shape.result_bytes * _shared(t, shape, fitted)
    memory = shape.batch * (operands + results) / 1e6 / machine.copy
    apart = machine.launch + fitted.start + _copies(copied, shape, machine, fitted)
    if t.part:
        apart += _adding(t, shape, machine, fitted)
    storing = _storing(t, shape, machine, fitted)
    p = fitted.overlap
    after = (-(-blocks // together) - 1) / together * (storing + fitted.again)
    parts = memory**p + filling**p + multiplying**p
    own = parts ** (1 / p) + after  # of blocks with a tile each
    if stays:
        turns = -(-blocks // MOST_STAYING)
        multiplying = max(multiplying, turns * (multiplying / blocks + fitted.store))
        memory = max(memory, turns * storing)
        own = min(own, (memory**p + filling**p + multiplying**p) ** (1 / p))
    return apart + storing + own


def resident(t: Tiling, shape: Shape, target: Target) -> int:
    """Blocks that a multiprocessor holds."""
    sm = target.multiprocessor
    assert sm is not None
    shared = sm.shared_memory // (shared_bytes(t, shape) + sm.reserved_shared)
    return max(1, min(shared, _beside(t, shape, sm, t.k, stays=t.persistent > 0)))


def _beside(t: Tiling, shape: Shape, sm: Multiprocessor, run: int, *, stays: bool) -> int:
    """Blocks that a multiprocessor has registers and threads for. The compiler is told how many
    are to stay.
    """
    registers = -(-registers_given(t, shape, run, stays=stays) // 8) * 8 * t.threads
    beside = max(sm.registers // registers, t.persistent)
    return max(1, min(beside, 32 * sm.warps // t.threads, sm.blocks))


def _memory(t: Tiling, shape: Shape, machine: Machine, fitted: Fitted, at_once: int) -> float:
    """What DRAM gives and takes: each operand once; where the operands are larger than the L2
    cache, what the blocks that run at once need anew each time.
    """
    size = shape.bytes
    operands = shape.batch * (shape.m + shape.n) * shape.k * size
    if operands > machine.l2_bytes // 2:
        tall, wide = neighbours(at_once, t.band, -(-shape.m // t.m), -(-shape.n // t.n))
        waves = (shape.m / (tall * t.m)) * (shape.n / (wide * t.n))
        anew = shape.batch * waves * (tall * t.m + wide * t.n) * shape.k * size
        operands = max(operands, min(anew, 2.0 * operands))
    results = shape.batch * shape.m * shape.n * shape.result_bytes
    return (operands + results * _shared(t, shape, fitted)) / 1e6 / machine.copy


def _shared(t: Tiling, shape: Shape, fitted: Fitted) -> float:
    """Times as long results take as their bytes: rows of C that begin anywhere lie across a line
    more.
    """
    row = t.n * shape.result_bytes
    grain = gcd(shape.n * shape.result_bytes, row, LINE)
    if shape.n <= t.n:  # rows follow each other
        return 1.0
    whole, rest = divmod(row, LINE)
    boxes = (LINE,) * whole + (rest,) * (rest > 0)
    lines = sum(1 + max(0, box - grain) / LINE for box in boxes)
    return 1 + fitted.shared_lines * (LINE * lines / row - 1)


def _filling(
    t: Tiling,
    shape: Shape,
    machine: Machine,
    fitted: Fitted,
    tiles: int,
    blocks: int,
    together: int,
) -> tuple[float, float]:
    """What all multiprocessors get from the L2 cache, and the busiest one alone."""
    rows_a, rows_b = _operands(t, shape)
    at_once = not t.persistent and blocks == together
    cache = tiles * _through(t, shape, fitted, at_once=at_once) / 1e6 / machine.l2
    twice = blocks * _asked_twice(t, t.copied, t.k, t.cluster, shape, fitted) * t.own(shape.k) / 1e3
    own = blocks * (rows_a + rows_b) * t.own(shape.k) / 1e3
    full = machine.kilobytes(machine.fill)
    filling = (own + twice) / full
    ahead = blocks / together if t.persistent else 1  # tiles of a block's ring
    if ahead * max(t.own(shape.k), t.k) > t.stages * t.k:  # else all is on its way at once
        held = fitted.held + fitted.held_beside * (t.persistent > 1)
        slots = max(t.stages - held, 0.5)
        ring = together * slots * t.k * (rows_a + rows_b) / 1e3
        filling = max(filling, own * fitted.arrival / ring)
    if _left(shape.odd, t.copied):
        filling = max(filling, (own + twice) / (together * _feeding(t, fitted)))
    tiles_m, tiles_n = _tiles(t, shape)
    beyond = tiles_m * t.m - shape.m, tiles_n * t.n - shape.n
    return cache, filling + _void(t, t.copied, shape, blocks, beyond) * fitted.void / full


def _through(t: Tiling, shape: Shape, fitted: Fitted, *, at_once: bool) -> float:
    """Bytes that the L2 cache is asked for a block's sake. Of blocks that all run at once, those
    that are neighbours on the GPU ask for the same rows at the same time, which are read once; not
    so where blocks are at different tiles after a while, nor what a cluster brings each other.
    """
    rows = [
        size * _in_cache(t, shape, name)
        for name, size in zip("AB", _operands(t, shape), strict=True)
    ]
    own = sum(rows)
    if t.cluster > 1:
        shared = rows[1] if t.band else rows[0]
        own = fitted.shared_twice * (own - shared * (1 - 1 / t.cluster))
    elif at_once:
        down, across = neighbours(NEIGHBOURS, t.band, -(-shape.m // t.m), -(-shape.n // t.n))
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


def _asked_twice(
    t: Tiling, copied: str, run: int, cluster: int, shape: Shape, fitted: Fitted
) -> float:
    """Bytes for an element of the sum that as many requests for whole lines take as a block has
    more of them: for shorter rows, and where rows begin within a sector or a line.
    """
    found = 0.0
    for name, rows in zip("AB", _operands(t, shape), strict=True):
        pitch, along = shape.row_bytes(name), shape.along(name)
        along = along or (name in copied and name in shape.across)
        share = cluster if (name == "B") == (t.band > 0) else 1
        row = min(run * shape.bytes if along else rows, LINE)
        more = fitted.short_rows * (LINE / row - 1)
        if name not in copied and pitch % LINE:
            within = fitted.sectors_along if along else fitted.sectors
            more += within if pitch % SECTOR else fitted.lines
        tile, extent = (t.m, shape.m) if name == "A" else (t.n, shape.n)
        if not along and extent > tile and tile * shape.bytes % LINE:
            more += fitted.parts_of_lines
        found += rows / share * more
    return found


def _operands(t: Tiling, shape: Shape) -> tuple[int, int]:
    return (
        _loaded(t.m, shape.m, shape.along_a, shape.bytes),
        _loaded(t.n, shape.n, shape.along_b, shape.bytes),
    )


def _void(t: Tiling, copied: str, shape: Shape, blocks: int, beyond: tuple[int, int]) -> float:
    """10^3 bytes beyond the operands that the copy engine makes zero for a multiprocessor's blocks:
    for the one that has most, of ``beyond`` rows of both, and for all where a tile is larger than
    an operand.
    """
    found = 0
    sizes = ("A", t.m, shape.m, beyond[0]), ("B", t.n, shape.n, beyond[1])
    for name, tile, extent, rows in sizes:
        if shape.along(name) or (name in copied and name in shape.across):
            found += min(rows, tile) * (blocks if extent < tile else 1)
    return found * shape.bytes * t.own(shape.k) / 1e3


def _tiles(t: Tiling, shape: Shape) -> tuple[int, int]:
    """Rows and columns of tiles, with those beyond C."""
    tiles_m, tiles_n = -(-shape.m // t.m), -(-shape.n // t.n)
    if t.band:  # all bands are as high: blocks beyond C multiply for nothing
        return -(-tiles_m // t.band) * t.band, tiles_n
    return tiles_m, -(-tiles_n // t.cluster) * t.cluster


def _feeding(t: Tiling, fitted: Fitted) -> float:
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


def _left(names: str, copied: str) -> bool:
    """Whether any of the operands is not copied before."""
    return bool(names) and (not copied or any(x not in copied for x in names))


def _multiplying(t: Tiling, shape: Shape, machine: Machine, fitted: Fitted, together: int) -> float:
    """Of one block's tile, by tensor units that are its own."""
    runs, clocks = -(-t.own(shape.k) // t.k), t.k * _clocks(t, shape, machine, fitted)
    if t.unit == "group":
        clocks += fitted.turn / (t.parts * together)
    else:
        step = fitted.step + fitted.single * t.part_m * t.part_n * shape.single
        clocks = max(clocks, step * t.k * shape.bytes / 32 / together)
    return runs * clocks / machine.megahertz


def _clocks(t: Tiling, shape: Shape, machine: Machine, fitted: Fitted) -> float:
    """Of a tile's products for an element of the sum, when nothing waits."""
    slower = 2 if shape.single else 1  # of tf32 an instruction has half the depth
    if t.unit == "group":
        rate: Rate = "wgmma.s8" if shape.integers else "wgmma.f16"
        full = 64 * t.depth * t.columns * slower / machine.rates[rate]
        # The rows are read again for few columns.
        return t.parts * t.rows / 64 / t.depth * max(full, full / 2 + 16)
    rate = "mma.s8" if shape.integers else "mma.f16"
    macs = t.m * t.n * slower
    across = shape.across if shape.integers else ""
    turned = [fitted.turning if x in across else 1.0 for x in "AB"]
    read = t.parts * (t.part_m * turned[0] + t.part_n * turned[1]) * shape.bytes / machine.shared
    return max(macs / machine.rates[rate], read)


def _storing(t: Tiling, shape: Shape, machine: Machine, fitted: Fitted, together: int = 1) -> float:
    """Results of a block, or of so many at once: by the copy engine in whole rows, by the threads
    of all of them in turn in halves of sectors.
    """
    elements = min(t.m, shape.m) * min(t.n, shape.n)
    size = SUM_BYTES if t.part else shape.result_bytes
    if t.swapped:
        return fitted.store + together * fitted.scattered * elements / machine.megahertz
    boxes = t.unit == "group" and shape.n * size % 16 == 0
    sectors = elements * size / (32 if boxes or t.part else 16)
    clocks = fitted.sector * sectors
    if t.unit == "group":
        clocks += fitted.narrow * elements if t.vector_columns < STRIP else 0.0
    return fitted.store + (clocks if boxes else together * clocks) / machine.megahertz


def _adding(t: Tiling, shape: Shape, machine: Machine, fitted: Fitted) -> float:
    results = shape.m * shape.n * shape.batch
    return adding(results, t.sums(shape.k), machine, t.adders, fitted)


def adding(
    results: int, parts: int, machine: Machine, adders: int = 1, fitted: Fitted = FITTED
) -> float:
    """Microseconds of the kernel that adds the sums of so many parts, ``adders`` threads those of
    a result, beside the launch of both kernels.
    """
    sm = find_target(machine.target).multiprocessor
    assert sm is not None
    waves = results * adders / (machine.multiprocessors * 32 * sm.warps)
    rounds = -(-parts // (AT_ONCE * adders if adders > 1 else ALONE))
    meeting = fitted.meeting if adders > 1 else 0.0
    read = parts * results * SUM_BYTES / 1e6 / machine.copy
    return fitted.adding + meeting + read + max(1.0, waves) * rounds * fitted.round


def _copies(copied: str, shape: Shape, machine: Machine, fitted: Fitted) -> float:
    """Kernels that copy operands before."""
    if not copied:
        return 0.0
    size = {"A": shape.m * shape.k, "B": shape.k * shape.n}
    moved = {x: 2 * shape.batch * size[x] * shape.bytes / 1e6 / machine.copy for x in copied}
    turned = {x: fitted.turned_copy if x in shape.across else 1.0 for x in copied}
    return sum(fitted.copy_kernel + moved[x] * turned[x] for x in copied)
