"""Microseconds of a schedule of attention on a GPU, foretold.

A run of keys takes the two products on tensor units and the weights (a power for each score, and
what is around it) on the others; groups overlap these, the more the more there are. Between tiles
of queries come the results and the next queries. Tiles are dealt to multiprocessors as they come
free, or in turn where blocks stay. All keys and values come from memory meanwhile. Where blocks
have parts of the keys, a second kernel joins what they found. What is no property of a GPU was
fitted to times of an H200.
"""

from __future__ import annotations

from selector.dataclass import dataclass
from selector.families.attention.tiling import JOINED_AT_ONCE, Shape, Tiling, padded
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
    joining: float = 1.5
    round: float = 1.0


FITTED = Fitted()


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
    exponent = 1.0 if t.units == 1 else 1 + fitted.overlap + fitted.more * (t.units - 2)
    exponent += fitted.ahead if t.ahead(shape) else 0.0
    run = (products**exponent + weights**exponent) ** (1 / exponent) + fitted.run
    run += fitted.shallow * products / 1e3 if t.stages == 2 else 0.0
    masked = fitted.masked if shape.causal or shape.keys % t.keys else 0.0
    first = fitted.start + fitted.arrival * t.keys * padded(shape.depth) * 4 / 1e3
    between = fitted.row * t.block * shape.depth / 1e3 + (0.0 if t.persistent else first)
    runs = _runs(t, shape)
    tiles = [(r + masked) * run + between for r in runs]
    clocks = _dealt(t, tiles, shape.heads, machine.multiprocessors)
    clocks += first if t.persistent else 0.0
    share = shape.heads / machine.multiprocessors / machine.megahertz
    memory, p = _memory(t, shape, machine), fitted.streaming
    busy = ((clocks / machine.megahertz) ** p + memory**p) ** (1 / p)
    return Estimate(
        fitted.launch + busy + _joining(t, shape, fitted),
        products * sum(runs) * share,
        weights * sum(runs) * share,
        between * len(runs) * share,
        memory,
        len(runs) * shape.heads,
    )


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
