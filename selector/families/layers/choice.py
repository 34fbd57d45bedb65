"""The schedules of a layer that are worth a thought at a size, best first.

A block is bound by its products, by the bytes that they read of shared memory, or by those that
come from the L2 cache; multiprocessors take blocks in rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import prod

from selector.families.contraction.cost import FITTED, SUM_BYTES
from selector.families.contraction.tiling import AT_ONCE
from selector.families.layers.tiling import ROWS, Shape, Tiling
from selector.machine.record import Machine
from selector.targets import LARGEST_BOX, find_target

TRIED = 3
GROUPS, BOXES = (1, 2, 3), (1, 2)
FILTERS = (32, 64, 96, 128, 256)
REGISTERS, MOST, OTHERS = 65536, 232, 96  # of a multiprocessor, of a lane, for all but sums
RUN_BYTES, MOST_STAGES = (32, 64, 128, 256), 6
MOST_STATEMENTS = 96  # of a group for a run: more take too long to compile
ROOM = 200 << 10  # bytes of shared memory
# Cycles: bytes of the L2 cache for a multiprocessor in one, of a step beside the products, of a
# block beside the steps; fitted to a layer of 12 x 12 pixels on an H200.
L2_BYTES, STEP, START = 100, 115, 2500
ALL_READ = 33  # bytes of the L2 cache where all multiprocessors read, as they do for parts of sums
HANDOVER = 660  # cycles between two tiles of a block that stays (contraction.cost: ``store``)
STORED = 2  # dimensions of pixels that a box of results has
# Filters of a block that stays, and elements that are read for all of them to leave: the text of
# more takes too long to compile (8.7 s for 128 filters and 6 of each, below 3 s for 64).
MOST_STORED, MOST_READ = 128, 384
VECTOR = 16  # bytes that channels are rounded to where they are turned
CORES = 0.1  # of their rate: what sums over windows reach on CUDA cores, measured


def candidates(shape: Shape, machine: Machine) -> list[Tiling]:
    """The best few; none where the machine has no warpgroups."""
    if not find_target(machine.target).has("wgmma"):
        return []

    def order(t: Tiling) -> tuple[float, ...]:  # of equal ones those with few images, square boxes
        return _cycles(t, shape, machine), _blocks(t, shape), t.box[-1], max(t.box)

    return sorted(_space(shape, machine), key=order)[:TRIED]


def worth_turning(shape: Shape, pixels: int, machine: Machine) -> bool:
    """Whether the products of a layer take CUDA cores longer than it takes to write its image anew,
    channels side by side, and to read that; ``pixels`` of it for each of the result's.
    """
    run = VECTOR // shape.bytes
    elements = shape.channels + 2 * -(-shape.channels // run) * run  # of a pixel
    terms = shape.filters * shape.channels * shape.taps
    cores = terms / (CORES * machine.tera_macs("fma.f32"))
    return cores > pixels * elements * shape.bytes / machine.copy


def _space(shape: Shape, machine: Machine) -> Iterator[Tiling]:
    depth = shape.depth
    channels = 1 << (-(-shape.channels // depth) * depth - 1).bit_length()
    lengths = [k for n in RUN_BYTES if (k := n // shape.bytes) <= channels]
    for one in _pixels(shape):
        runs = lengths[-2:] if one.taps == 1 else lengths[:2]
        left = min(MOST, REGISTERS // one.threads // 8 * 8)
        for n, k in product(FILTERS, runs):
            few = n > 32 and n - 32 >= shape.filters
            t = replace(one, n=n, k=k)
            if few or t.boxes * n // 2 + OTHERS > left or t.statements > MOST_STATEMENTS:
                continue
            stages = min(MOST_STAGES, ROOM // t.run_bytes)
            if stages > 2:
                yield from _ways(replace(t, stages=stages), shape, machine)


def _pixels(shape: Shape) -> Iterator[Tiling]:
    """The pixels of a block, for one tap a run, and for all taps where windows lie side by side."""
    dimensions = range(len(shape.pixels))
    wide = shape.phases == 1 and any(shape.reach) and max(shape.steps, default=1) == 1
    for reach in ((), shape.reach) if wide else ((),):
        taps = shape.taps if reach else 1
        for box, groups, boxes in product(_boxes(len(dimensions), ROWS), GROUPS, BOXES):
            if boxes > 1 and not reach:
                continue
            for along in dimensions:
                t = Tiling(
                    box, groups, along, FILTERS[0], shape.depth, 1, shape.bytes, boxes=boxes,
                    taps=taps, reach=reach,
                )  # fmt: skip
                if _lies(t) and _in_reach(t, shape):
                    yield t


def _lies(t: Tiling) -> bool:
    """Whether the pixels of a box lie side by side in shared memory, and those of its neighbours
    behind them: all that is read along every dimension but the last, of the box or of several.
    """
    order = t.order
    last = max((i for i, d in enumerate(order) if t.box[d] > 1), default=0)
    whole = all(t.read[d] == t.box[d] for d in order[:last])
    if t.groups * t.boxes == 1:
        return whole and t.along == order[-1]
    return whole and order.index(t.along) >= last


def _ways(t: Tiling, shape: Shape, machine: Machine) -> Iterator[Tiling]:
    """A tiling, with blocks that stay, and with parts of the sums for as many blocks as there are
    multiprocessors without one.
    """
    yield t
    if shape.rows and t.n <= min(MOST_STORED, MOST_READ // shape.rows):
        yield replace(t, persistent=True)
    runs, idle = -(-shape.channels // t.k), machine.multiprocessors // _blocks(t, shape)
    if shape.phases == 1:
        own = {-(-runs // parts) for parts in range(2, min(runs, idle) + 1)}
        yield from (replace(t, part=n * t.k) for n in sorted(own))


def _in_reach(t: Tiling, shape: Shape) -> bool:
    """Whether the copy engine brings a block's pixels as one box, with those between them, and
    takes its results.
    """
    steps = shape.steps or (1,) * len(t.box)
    if shape.rows and sum(e > 1 for e in t.box) > STORED:
        return False
    return all(e * step <= LARGEST_BOX for e, step in zip(t.read, steps, strict=True))


def _boxes(dimensions: int, left: int) -> Iterator[tuple[int, ...]]:
    """Powers of two of this product."""
    if dimensions == 1:
        yield (left,)
        return
    size = 1
    while size <= left:
        for rest in _boxes(dimensions - 1, left // size):
            yield (size, *rest)
        size *= 2


def _blocks(t: Tiling, shape: Shape) -> int:
    pairs = zip(shape.pixels, t.block, strict=True)
    tiles = prod(-(-e // b) for e, b in pairs) * -(-shape.filters // t.n)
    return tiles * shape.phases * _parts(t, shape)


def _parts(t: Tiling, shape: Shape) -> int:
    return -(-shape.channels // t.part) if t.part else 1


def _cycles(t: Tiling, shape: Shape, machine: Machine) -> float:
    rows = prod(t.block)
    terms = t.taps * t.k
    products = rows * t.n * terms / machine.rates["wgmma.f16" if t.bytes == 2 else "wgmma.s8"]
    shared = (rows + t.groups * t.boxes * t.n) * terms * t.bytes / machine.shared
    steps = shape.taps // t.taps * -(-(t.part or shape.channels) // t.k)
    rounds = -(-_blocks(t, shape) // machine.multiprocessors)
    step = max(products, shared, t.run_bytes / (ALL_READ if t.part else L2_BYTES)) + STEP
    leaving = rows * t.n / 8
    if t.part:
        return rounds * (steps * step + START + 2 * leaving) + _adding(t, shape, machine)
    if t.persistent:
        return START + rounds * max(steps * step + HANDOVER, leaving) + leaving
    return rounds * (steps * step + START + leaving)


def _adding(t: Tiling, shape: Shape, machine: Machine) -> float:
    """Cycles of the kernel that adds the sums of parts, of which a thread loads some at once."""
    sums = prod(shape.pixels) * shape.filters * _parts(t, shape) * SUM_BYTES
    rounds = -(-_parts(t, shape) // AT_ONCE)
    took = machine.launch + FITTED.adding + FITTED.round * rounds + sums / 1e6 / machine.copy
    return took * machine.megahertz
