"""Microseconds of a schedule of a contraction on a GPU, foretold.

Everything at once: what comes from memory, through the L2 cache and into one multiprocessor, and
what its tensor units do, as a norm of these times (the exponent says how well they overlap). One
after the other: the launch, the results' way out of a block, and what a block that follows another
on a multiprocessor waits for. The numbers that are no property of a GPU were fitted to times of an
H200 (``python -m casestudies model``).
"""

from __future__ import annotations

from dataclasses import dataclass

from selector.families.contraction.limits import registers_needed, shared_bytes
from selector.families.contraction.tiling import Shape, Tiling
from selector.machine.record import Machine, Rate
from selector.targets import Target, find_target

OVERLAP = 3.5  # exponent of the norm
IN_FLIGHT = 1.0  # microseconds from asking for a slot to having it, under load
HALF_LINES = 0.4  # of the rate, where rows lie across two lines each
BY_THREADS = 14.0  # 10^3 bytes a microsecond that the threads of a feeding group copy
BY_WARP = 6.0  # that a warp copies which multiplies as well
MULTICAST = 0.24  # microseconds of meeting in a cluster
START = 1.1  # microseconds until the first run is there, and from the last result to the end
AGAIN = 0.9  # microseconds until the next block on a multiprocessor multiplies
COPY_KERNEL = 2.0  # microseconds beside the bytes, of a copy ahead of the product
STORE = 0.3  # microseconds until results are out, and
SECTOR = 2.0  # clocks for 32 bytes of them
TURN = 20.0  # clocks of a run, for one group alone
STEP = 45.0  # clocks from a warp's loads to its next ones


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


def estimate(t: Tiling, shape: Shape, machine: Machine) -> Estimate:
    """Of a schedule that ``limits.why_not`` lets pass."""
    target = find_target(machine.target)
    tiles_n, tiles_m = -(-shape.n // t.n), -(-shape.m // t.m)
    if t.band:  # neighbours down a band, else along n, form clusters
        tiles_m = -(-tiles_m // t.cluster) * t.cluster
    else:
        tiles_n = -(-tiles_n // t.cluster) * t.cluster
    running = machine.running(t.cluster)
    blocks = -(-tiles_n * tiles_m // running)
    together = min(blocks, t.persistent or resident(t, shape, target))
    memory = _memory(t, shape, machine, running * together)
    cache, filling = _filling(t, shape, machine, tiles_n * tiles_m, blocks, together)
    multiplying = blocks * _multiplying(t, shape, machine, together)
    storing = _storing(t, shape, machine)
    rounds = -(-blocks // together)
    storing *= 1 if t.persistent else rounds if together == 1 else 1 + (rounds - 1) / together
    waiting = (
        machine.launch + START + (MULTICAST if t.cluster > 1 else 0.0) + _copies(t, shape, machine)
    )
    if not t.persistent:
        waiting += (rounds - 1) * AGAIN / together
    powers = memory**OVERLAP + cache**OVERLAP + filling**OVERLAP + multiplying**OVERLAP
    overlapped = powers ** (1 / OVERLAP)
    return Estimate(
        overlapped + storing + waiting,
        memory, cache, filling, multiplying, storing, waiting, blocks, together,
    )  # fmt: skip


def resident(t: Tiling, shape: Shape, target: Target) -> int:
    """Blocks that a multiprocessor holds."""
    sm = target.multiprocessor
    assert sm is not None
    shared = sm.shared_memory // (shared_bytes(t, shape) + sm.reserved_shared)
    registers = -(-registers_needed(t) // 8) * 8 * t.threads
    fitting = min(shared, sm.registers // registers, 32 * sm.warps // t.threads, sm.blocks)
    return max(1, fitting)


def _memory(t: Tiling, shape: Shape, machine: Machine, at_once: int) -> float:
    """What DRAM gives and takes: each operand once; where the operands are larger than the L2
    cache, what the blocks that run at once need anew each time.
    """
    size = shape.bytes
    operands = (shape.m + shape.n) * shape.k * size
    if operands > machine.l2_bytes // 2:
        tall = min(t.band or 1, -(-shape.m // t.m), at_once)
        wide = min(-(-at_once // tall), -(-shape.n // t.n))
        waves = (shape.m / (tall * t.m)) * (shape.n / (wide * t.n))
        anew = waves * (tall * t.m + wide * t.n) * shape.k * size
        operands = max(operands, min(anew, 2.0 * operands))
    return (operands + shape.m * shape.n * shape.result_bytes) / 1e6 / machine.copy


def _filling(
    t: Tiling, shape: Shape, machine: Machine, tiles: int, blocks: int, together: int
) -> tuple[float, float]:
    """What all multiprocessors get from the L2 cache, and the busiest one alone."""
    rows_a, rows_b = min(t.m, shape.m) * shape.bytes, min(t.n, shape.n) * shape.bytes
    shared = rows_b if t.band else rows_a
    through = tiles * (rows_a + rows_b - shared * (1 - 1 / t.cluster)) * shape.k
    cache = through / 1e6 / machine.l2
    own = blocks * (rows_a + rows_b) * shape.k / 1e3
    ring = together * t.stages * t.k * (rows_a + rows_b) / 1e3
    rate = min(machine.kilobytes(machine.fill), ring / IN_FLIGHT)
    if _left(shape.odd, t.copied):
        feeding = BY_THREADS if t.unit == "group" else BY_WARP * t.parts
        return cache, own / min(rate, together * feeding)
    if _left(shape.split, t.copied):
        rate = min(rate, HALF_LINES * machine.kilobytes(machine.fill) * t.cluster**0.5)
    return cache, own / rate


def _left(names: str, copied: str) -> bool:
    """Whether any of the operands is not copied before."""
    return bool(names) and (not copied or any(x not in copied for x in names))


def _multiplying(t: Tiling, shape: Shape, machine: Machine, together: int) -> float:
    """Of one block's tile, by tensor units that are its own."""
    runs = -(-shape.k // t.k)
    if t.unit == "group":
        rate: Rate = "wgmma.s8" if shape.integers else "wgmma.f16"
        full = 64 * t.depth * t.columns / machine.rates[rate]
        clocks = max(full, full / 2 + 16)  # the rows are read again for few columns
        strips = t.parts * t.rows / 64
        turn = TURN / (t.parts * together)
        return runs * (strips * t.k / t.depth * clocks + turn) / machine.megahertz
    rate = "mma.s8" if shape.integers else "mma.f16"
    macs = t.m * t.n * t.k / machine.rates[rate]
    read = t.parts * (t.part_n + t.part_m) * t.k * shape.bytes / machine.shared
    alone = STEP * t.k * shape.bytes / 32 / together
    return runs * max(macs, read, alone) / machine.megahertz


def _storing(t: Tiling, shape: Shape, machine: Machine) -> float:
    """Results of one block: by the copy engine in whole rows, by threads in halves of sectors."""
    elements = min(t.m, shape.m) * min(t.n, shape.n)
    boxes = t.unit == "group" and not t.swapped and shape.n * shape.result_bytes % 16 == 0
    sectors = elements * shape.result_bytes / (32 if boxes else 16)
    return STORE + SECTOR * sectors / machine.megahertz


def _copies(t: Tiling, shape: Shape, machine: Machine) -> float:
    """Kernels that copy operands before."""
    size = {"A": shape.m * shape.k, "B": shape.k * shape.n}
    return sum(COPY_KERNEL + 2 * size[x] * shape.bytes / 1e6 / machine.copy for x in t.copied)
