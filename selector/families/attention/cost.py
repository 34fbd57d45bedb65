"""Microseconds of a schedule of attention on a GPU, foretold.

A run of keys takes the two products on tensor units and the weights (a power for each score, and
what is around it) on the others; groups overlap these, the more the more there are. Between tiles
of queries come the results and the next queries. Tiles are dealt to multiprocessors as they come
free, or in turn where blocks stay. All keys and values come from memory meanwhile. Where blocks
have parts of the keys, a second kernel joins what they found; with one group they have few queries,
and memory takes longest. What is no property of a GPU was fitted to times of an H200.
"""

from __future__ import annotations

from selector.dataclass import dataclass
from selector.families.attention.tiling import JOINED_AT_ONCE, Shape, Tiling, padded
from selector.families.overlap import overlapped
from selector.machine.record import Machine

POWERS = 16  # a clock of a multiprocessor (CUDA C++ programming guide, throughput of instructions)


@dataclass(frozen=True, slots=True)
class Fitted:
    """Clocks unless said otherwise.

    ``power``: times a power that a weight takes. ``overlap``: how well two groups overlap products
    and weights, ``more`` for each one more, ``ahead`` where the next scores are taken under the
    product with values (exponents of a norm, beyond 1). ``run``: beside them, of each run.
    ``shallow``: of a thousand clocks of products, where only one run of keys and values is ahead.
    ``masked``: runs that a mask adds. ``start``: of a block, ``row``: of the results of a row of
    a thousand channels, ``arrival``: until a thousand bytes of the first run are there.
    ``streaming``: how well memory and all else overlap (exponent). Microseconds: ``launch``;
    ``joining`` of parts, beside ``round`` of the loads that a thread has on their way at once.
    """

    power: float = 1.2
    overlap: float = 0.69
    more: float = 0.42
    ahead: float = 0.41
    run: float = 282.0
    shallow: float = 141.0
    masked: float = 0.044
    start: float = 2112.0
    row: float = 275.0
    arrival: float = 17.0
    launch: float = 1.5
    streaming: float = 4.0
    joining: float = 2.4
    round: float = 0.78


@dataclass(frozen=True, slots=True)
class FittedParts:
    """Of parts for one group. Clocks: ``run`` as above; ``refill``: until a stage that was read is
    full again. ``reading``: of the time that memory takes otherwise, more by ``crowded`` for each
    KB that a multiprocessor asks for ahead beyond ``ahead``, and by ``short`` for runs of 16 KB.
    ``streaming``: as above.
    """

    run: float = 140.0
    refill: float = 2180.0
    reading: float = 0.965
    crowded: float = 0.0006
    ahead: float = 64.0
    short: float = 0.05
    streaming: float = 6.0


FITTED = Fitted()
FITTED_PARTS = FittedParts()
SHORT = 16 << 10  # bytes


@dataclass(frozen=True, slots=True)
class Estimate:
    """Microseconds: the sum, and those of it in which a multiprocessor has ``products`` to do,
    ``weights``, what is ``between`` tiles, and in which ``memory`` is busy. ``tiles`` of queries in
    all, times parts of the keys.
    """

    microseconds: float
    products: float
    weights: float
    between: float
    memory: float
    tiles: int

    @property
    def bound(self) -> str:
        """What takes longest."""
        return max(
            ("products", "weights", "between", "memory"), key=lambda name: getattr(self, name)
        )


def estimate(t: Tiling, shape: Shape, machine: Machine, fitted: Fitted = FITTED) -> Estimate:
    """Of a schedule for warpgroups, of ``space``."""
    products, weights = _products(t, shape, machine), _weights(t, machine, fitted)
    between = fitted.row * t.block * shape.depth / 1e3
    if t.part and t.units == 1:
        busy = _streamed(t, shape, machine, products + weights, between)
    else:
        between += 0.0 if t.persistent else _first(t, shape, fitted)
        exponent = 1.0 if t.units == 1 else 1 + fitted.overlap + fitted.more * (t.units - 2)
        exponent += fitted.ahead if t.ahead(shape) else 0.0
        run = overlapped(exponent, products, weights) + fitted.run
        run += fitted.shallow * products / 1e3 if t.stages == 2 else 0.0
        busy = _multiplied(t, shape, machine, run, between, fitted)
    runs, share = _runs(t, shape), shape.heads / machine.multiprocessors / machine.megahertz
    return Estimate(
        fitted.launch + busy + _joining(t, shape, fitted),
        products * sum(runs) * share,
        weights * sum(runs) * share,
        between * len(runs) * share,
        _memory(t, shape, machine),
        len(runs) * shape.heads,
    )


def _first(t: Tiling, shape: Shape, fitted: Fitted) -> float:
    """Clocks until the first run of a block is there."""
    return fitted.start + fitted.arrival * t.keys * padded(shape.depth) * 4 / 1e3


def _multiplied(
    t: Tiling, shape: Shape, machine: Machine, run: float, between: float, fitted: Fitted
) -> float:
    """Microseconds of clocks of each ``run`` and ``between`` tiles."""
    masked = fitted.masked if shape.causal or shape.keys % t.keys else 0.0
    tiles = [(r + masked) * run + between for r in _runs(t, shape)]
    clocks = _dealt(t, tiles, shape.heads, machine.multiprocessors)
    clocks += _first(t, shape, fitted) if t.persistent else 0.0
    memory = _memory(t, shape, machine)
    return overlapped(fitted.streaming, clocks / machine.megahertz, memory)


def _streamed(
    t: Tiling,
    shape: Shape,
    machine: Machine,
    run: float,
    between: float,
    fitted: FittedParts = FITTED_PARTS,
) -> float:
    """The same where keys and values stream through blocks; nothing overlaps the last run."""
    run += fitted.run
    turn = max(run, (run + fitted.refill) / t.stages)
    tiles = [runs * turn + between for runs in _runs(t, shape)]
    clocks = _dealt(t, tiles, shape.heads, machine.multiprocessors)
    one = t.keys * padded(shape.depth) * 2  # bytes of keys, and of values
    crowded = fitted.crowded * max(0.0, 2 * one * t.stages / 1e3 - fitted.ahead)
    slowed = fitted.reading * (1 + crowded) * (1 + fitted.short * SHORT / one)
    memory = _memory(t, shape, machine) * slowed
    last = run / machine.megahertz
    return overlapped(fitted.streaming, clocks / machine.megahertz, memory) + last


def _products(t: Tiling, shape: Shape, machine: Machine) -> float:
    return t.block * t.keys * 2 * padded(shape.depth) / machine.rates["wgmma.f16"]


def _weights(t: Tiling, machine: Machine, fitted: Fitted) -> float:
    return t.block * t.keys * fitted.power / POWERS


def _memory(t: Tiling, shape: Shape, machine: Machine) -> float:
    """Operands and results once; of parts, a mean and a size for each query and channel."""
    elements = 2 * (shape.keys + shape.queries) * shape.depth
    elements += shape.matrices * shape.queries * shape.keys
    if t.part:
        elements += 4 * t.parts(shape.keys) * shape.queries * shape.depth
    return shape.heads * elements * 2 / 1e6 / machine.copy


def _joining(t: Tiling, shape: Shape, fitted: Fitted) -> float:
    """Of the kernel that joins parts: it reads sizes, then all."""
    rounds = -(-t.parts(shape.keys) // JOINED_AT_ONCE)
    return fitted.joining + 2 * rounds * fitted.round if t.part else 0.0


def _runs(t: Tiling, shape: Shape) -> list[int]:
    """Of the tiles of a head, and of the parts of each."""
    every, tiles = -(-shape.keys // t.keys), -(-shape.queries // t.block)
    if not shape.causal:
        own = t.part // t.keys if t.part else every
        parts = t.parts(shape.keys)
        return [own] * (parts - 1) * tiles + [every - own * (parts - 1)] * tiles
    found: list[int] = []
    for first in range(0, shape.queries, t.block):
        end = min(every, (first + t.block - 1) // t.keys + 1)
        oldest = max(0, first - shape.window + 1) // t.keys if shape.window else 0
        found.append(max(0, end - oldest))
    return found


def _dealt(t: Tiling, tiles: list[float], heads: int, multiprocessors: int) -> float:
    """Clocks of the multiprocessor that has most to do. Long tiles go first, and those of one
    length of all heads one after the other, where they differ.
    """
    count, longest = heads * len(tiles), max(tiles)
    if count <= multiprocessors:
        return longest
    if longest == min(tiles):
        return -(-count // multiprocessors) * longest
    if not t.persistent:
        return max(longest, heads * sum(tiles) / multiprocessors + min(tiles) / 2)
    order, loads = tiles[::-1], [0.0] * multiprocessors
    for number in range(count):
        loads[number % multiprocessors] += order[number // heads]
    return max(loads)
