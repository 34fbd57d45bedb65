"""Microseconds of a schedule of a contraction on a GPU, foretold.

Everything at once: what comes from memory, through the L2 cache and into one multiprocessor, and
what its tensor units do, as a norm of these times (the exponent says how well they overlap). One
after the other: the launch, the results' way out of a block, what a block that follows another
on a multiprocessor waits for, and in a block that stays the products and stores of its groups: how
many blocks a multiprocessor has at a time decides how much of that is hidden.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import gcd

from selector.dataclass import dataclass
from selector.families.contraction.filling import (
    any_left,
    asked_twice,
    beyond_operands,
    feeding,
    from_cache,
    operand_bytes,
    tiles_of,
)
from selector.families.contraction.fitted import FITTED, Fitted
from selector.families.contraction.limits import registers_given, registers_needed, shared_bytes
from selector.families.contraction.tiling import ALONE, AT_ONCE, LINE, Shape, Tiling, neighbours
from selector.families.overlap import overlapped
from selector.machine.record import Machine, Rate
from selector.targets import Multiprocessor, Target, find_target

SUM_BYTES = 4
MOST_IN_CLUSTER = 2  # blocks
MANY_RUNS = 12  # of a block, one after the other, of which most are alike
MOST_STAYING = 2  # blocks that stay on a multiprocessor
ONE_BY_ONE = 4  # times as long operations on results take that lanes store so
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
    tiles_m, tiles_n = tiles_of(t, shape)
    running = machine.running(t.cluster)
    tiles = tiles_n * tiles_m * t.sums(shape.k) * shape.batch
    blocks = -(-tiles // running)
    together = min(blocks, t.persistent or blocks, resident(t, shape, target))
    memory = _memory(t, shape, machine, fitted, running * together)
    cache, filling = from_cache(t, shape, machine, fitted, tiles, blocks, together)
    own = _multiplying(t, shape, machine, fitted, together)
    multiplying = blocks * own
    waiting = machine.launch + fitted.start + _copies(t.copied, shape, machine, fitted)
    if t.cluster > 1:
        waiting += fitted.multicast
    storing = _storing(t, shape, machine, fitted)
    rounds = -(-blocks // together)
    leaving = 0.0
    if t.persistent:  # while the ring is filled, groups multiply and hand over results in turn
        memory *= 1 + fitted.idle * (1 - tiles / (blocks * running))
        working = _working(t, shape, machine, fitted)
        multiplying = max(multiplying, rounds * (own + fitted.store + working))
        leaving = rounds * (storing - working)
    else:
        waiting += (rounds - 1) * fitted.again / together
        last = storing if together == 1 else _storing(t, shape, machine, fitted, together)
        storing = last + storing * (rounds - 1) / together
    if t.part:
        waiting += _adding(t, shape, machine, fitted)
    turns = rounds * -(-t.own(shape.k) // t.k)
    long = turns >= MANY_RUNS and not shape.integers
    p = fitted.overlap if long else fitted.overlap_few
    at_once = overlapped(p, max(memory, leaving), cache, filling, multiplying)
    return Estimate(
        at_once + storing + waiting,
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
    run = max(LINE, 1 << (shape.k - 1).bit_length())  # no shorter than any of the space
    ways = (t, replace(t, wide=True)) if stays else (t,)
    twice = min(asked_twice(x, copied, run, MOST_IN_CLUSTER, shape, fitted) for x in ways)
    twice *= t.own(shape.k)
    own = blocks * sum(operand_bytes(t, shape)) * t.own(shape.k) / 1e3
    kilobytes = own + blocks * twice / 1e3
    beyond = -shape.m % t.m, -shape.n % t.n
    void = beyond_operands(t, copied, shape, blocks, beyond, fitted)
    filling = (kilobytes + void) / machine.kilobytes(machine.fill)
    if any_left(shape.odd, copied):
        filling = max(filling, own / (at_a_time * feeding(t, fitted)))
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
    tile_each = overlapped(p, memory, filling, multiplying) + after
    if stays:
        turns = -(-blocks // MOST_STAYING)
        multiplying = max(multiplying, turns * (multiplying / blocks + fitted.store))
        memory = max(memory, turns * (storing - _working(t, shape, machine, fitted)))
        tile_each = min(tile_each, overlapped(p, memory, filling, multiplying))
    return apart + storing + tile_each


def resident(t: Tiling, shape: Shape, target: Target) -> int:
    """Blocks that a multiprocessor holds."""
    sm = target.multiprocessor
    assert sm is not None
    shared = sm.shared_memory // (shared_bytes(t, shape) + sm.reserved_shared)
    return max(1, min(shared, _beside(t, shape, sm, t.k, stays=t.persistent > 0)))


def _beside(t: Tiling, shape: Shape, sm: Multiprocessor, run: int, *, stays: bool) -> int:
    """Blocks that a multiprocessor has registers and threads for. The compiler is told how many
    are to stay, and of two where results read inputs, if that suffices.
    """
    registers = -(-registers_given(t, shape, run, stays=stays) // 8) * 8 * t.threads
    two = shape.reads and t.unit == "group" and 2 * registers_needed(t) * t.threads <= sm.registers
    beside = max(sm.registers // registers, t.persistent, 2 * two)
    return max(1, min(beside, 32 * sm.warps // t.threads, sm.blocks))


def _memory(t: Tiling, shape: Shape, machine: Machine, fitted: Fitted, at_once: int) -> float:
    """What DRAM gives and takes: each operand once; where the operands are larger than the L2
    cache, what the blocks that run at once need anew each time.
    """
    size = shape.bytes
    operands = shape.batch * (shape.m + shape.n) * shape.k * size
    if operands > machine.l2_bytes // 2:
        tall, wide = neighbours(t, at_once, -(-shape.m // t.m), -(-shape.n // t.n))
        waves = (shape.m / (tall * t.m)) * (shape.n / (wide * t.n))
        anew = shape.batch * waves * (tall * t.m + wide * t.n) * shape.k * size
        operands = max(operands, min(anew, 2.0 * operands))
    results = shape.batch * shape.m * shape.n * shape.result_bytes
    slower = fitted.warps_read if t.unit == "warp" else 1.0
    return (slower * operands + results * _shared(t, shape, fitted)) / 1e6 / machine.copy


def _shared(t: Tiling, shape: Shape, fitted: Fitted) -> float:
    """Times as long results take as their bytes: rows of C that begin anywhere lie across a line
    more.
    """
    if shape.n <= t.n:  # rows follow each other
        return 1.0
    more = _more_lines(t.n * shape.result_bytes, shape.n * shape.result_bytes)
    return 1 + fitted.shared_lines * more


@lru_cache
def _more_lines(row: int, pitch: int) -> float:
    """Lines that the rows of a tile touch, more than they have bytes for, as a share of these."""
    grain = gcd(pitch, row, LINE)
    whole, rest = divmod(row, LINE)
    boxes = (LINE,) * whole + (rest,) * (rest > 0)
    lines = sum(1 + max(0, box - grain) / LINE for box in boxes)
    return LINE * lines / row - 1


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
        busy = 1.0 if shape.integers else fitted.busy  # bytes: not measured
        return busy * t.parts * t.rows / 64 / t.depth * max(full, full / 2 + 16)
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
    store = fitted.store + _working(t, shape, machine, fitted)
    if t.swapped:
        clocks = fitted.scattered * elements * size + fitted.turned_store
        return store + together * clocks / machine.megahertz
    boxes = t.unit == "group" and shape.n * size % 16 == 0
    sectors = elements * size / (32 if boxes or t.part else 16)
    clocks = fitted.sector * sectors
    if t.unit == "group":
        clocks += fitted.narrow * elements if t.vector_columns < STRIP else 0.0
    return store + (clocks if boxes else together * clocks) / machine.megahertz


def _working(t: Tiling, shape: Shape, machine: Machine, fitted: Fitted) -> float:
    """What becomes of a block's sums, by its threads, slower where they store one by one; where
    strips are narrow, no box stores them, and each waits for what it reads.
    """
    if t.part:
        return 0.0
    operations = shape.operations * (ONE_BY_ONE if t.swapped else 1)
    clocks = fitted.operation * operations * t.accumulators
    if shape.reads and t.unit == "group" and not t.swapped and t.columns % STRIP:
        clocks += fitted.fetch * t.columns / t.vector_columns * t.rows / t.instruction_rows
    return clocks / machine.megahertz


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
