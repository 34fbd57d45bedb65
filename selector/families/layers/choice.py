"""The schedules of a layer that are worth a thought at a size, best first.

A block is bound by its products, by the bytes that they read of shared memory, or by those that
come from the L2 cache; multiprocessors take blocks in rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product
from math import ceil, gcd, inf, prod
from operator import itemgetter

from selector.families.contraction.cost import adding
from selector.families.contraction.tiling import LINE
from selector.families.layers.tiling import ROWS, Shape, Tiling
from selector.families.layers.warps import warp_tilings
from selector.machine.choice import machine_named
from selector.machine.record import Machine, Rate
from selector.targets import LARGEST_BOX, find_target

TRIED = 3
GROUPS, BOXES = (1, 2, 3, 4), (1, 2)
# Pixels of a row that are columns of a product, what these come in, the most of one, what leaves
# as a box.
WIDE, EIGHT, COLUMNS, BOXED = (8, 16, 32, 64), 8, 256, 32
FILTERS = (16, 32, 64, 96, 128, 256)
REGISTERS, MOST, OTHERS = 65536, 232, 96  # of a multiprocessor, of a lane, for all but sums
IN_BOXES = 40  # where results leave in planes, as boxes
FEW_OTHERS = 64  # where weights stay, and a run is all that there is to sum up
RUN_BYTES, MOST_STAGES = (32, 64, 128, 256), 6
STRIPS = 2  # a ring that goes on from block to block needs no more
MOST_STATEMENTS = 96  # of a group for a run: more take too long to compile
ROOM, WITH_SUMS = 200 << 10, 224 << 10  # bytes of shared memory, and with those of staged sums
RESERVED = 3 << 10  # of a block of warps, for what is not of the layer
# Cycles of a step beside the products, and of a block beside the steps; fitted to a layer of 12 x
# 12 pixels on an H200.
STEP, START = 115, 2500
# Of the rate of the L2 cache, what pixels of several rows reach; of a line, what a shorter row
# takes beside its bytes for each line in its place: of thirty layers on an H100.
L2_SHARE, SHORT_ROWS = 0.75, 0.5
ALL_READ = 33  # bytes of the L2 cache where all multiprocessors read, as they do for parts of sums
HANDOVER = 660  # cycles between two tiles of a block that stays (contraction.fitted: ``store``)
STORED = 2  # dimensions of pixels that a box of results has
# Elements that a thread of a block that stays reads for its results: the text of more takes too
# long to compile (8.7 s for 384, below 3 s for half as many).
MOST_READ = 192
# Cycles of a line that lanes name one after the other, or one element of it at a time; of sums that
# come by shared memory, and of each: of ten layers on an H100.
GUARDED, ALONE, TURNED, STAGED = 3, 4, 2000, 0.25
AT_ONCE = 8  # bytes that a lane stores of a row at most (``store_rows``)
PIXELS = 8  # whose results for a filter a store of a warp has
VECTOR = 16  # bytes that channels are rounded to where they are turned
CORES = 0.1  # of their rate: what sums over windows reach on CUDA cores, measured


def candidates(shape: Shape, machine: Machine) -> list[Tiling]:
    """The best few."""
    target = find_target(machine.target)
    if not target.has("wgmma"):
        return list(warp_tilings(shape, target.shared_memory - RESERVED))

    return [t for _, t in _best(shape, machine, TRIED)]


def worth_turning(shape: Shape, pixels: int, machine: Machine) -> bool:
    """Whether the products of a layer take CUDA cores longer than it takes to write its image anew,
    channels side by side, and to read that; ``pixels`` of it for each of the result's.
    """
    results = prod(shape.pixels) * shape.phases
    terms = shape.filters * shape.channels * shape.taps
    cores = results * terms / 1e6 / (CORES * machine.tera_macs("fma.f32"))
    return cores > copying(shape, pixels, machine)


def copying(shape: Shape, pixels: int, machine: Machine) -> float:
    """Microseconds to write an image anew, channels side by side, and to read that: ``pixels`` of
    it for each of the result's.
    """
    run = VECTOR // shape.bytes
    elements = shape.channels + 2 * -(-shape.channels // run) * run  # of a pixel
    moved = prod(shape.pixels) * shape.phases * pixels * elements * shape.bytes / 1e6
    return machine.launch + moved / machine.copy


def copying_weights(shape: Shape, machine: Machine) -> float:
    """Microseconds to write a layer's weights anew."""
    moved = 2 * shape.filters * shape.channels * shape.taps * shape.bytes / 1e6
    return machine.launch + moved / machine.copy


def microseconds(shape: Shape, machine: Machine) -> float:
    """What a layer takes whose rows of channels the copy engine brings; infinite where it has no
    schedule.
    """
    return _microseconds(shape, machine.name)


@lru_cache(maxsize=1024)
def _microseconds(shape: Shape, name: str) -> float:
    machine = machine_named(name)
    assert machine is not None
    best = _best(shape, machine, 1)
    return best[0][0] / machine.megahertz if best else inf


def _best(shape: Shape, machine: Machine, few: int) -> list[tuple[float, Tiling]]:
    """The best few, and the cycles that they take; of equal ones those with few images, square
    boxes. What takes longer than those that are known, whatever its runs are, is left out.
    """
    best = list[tuple[tuple[float, ...], Tiling]]()
    tried = [
        (least, i, n, one)
        for i, one in enumerate(_pixels(shape))
        for least, n in _least(one, shape, machine)
    ]
    for least, i, n, one in sorted(tried, key=itemgetter(0)):
        if len(best) == few and least > best[-1][0][0]:
            break
        for t in _tilings(one, n, shape, machine):
            order = _cycles(t, shape, machine), _blocks(t, shape), t.box[-1], max(t.box), i, n
            best.append((order, t))
        best.sort(key=itemgetter(0))
        del best[few:]
    return [(order[0], t) for order, t in best]


def _least(one: Tiling, shape: Shape, machine: Machine) -> Iterator[tuple[float, int]]:
    """Cycles that all tilings with these pixels of a block take at least, and with how many
    filters.
    """
    block, rate = one.block, machine.rates[_rate(one)]
    rows, parts = prod(block), one.groups * one.boxes
    most = (_registers(one) - min(IN_BOXES, FEW_OTHERS)) * one.n / one.sums
    tiles = prod(-(-e // b) for e, b in zip(shape.pixels, block, strict=True)) * shape.phases
    arriving = prod(one.read) * shape.bytes / machine.fill
    turns, shares = shape.taps // one.taps, _may_share(one, shape)
    beside = STEP * -(-shape.channels // max(RUN_BYTES[-1] // shape.bytes, shape.deep))
    lines = _lines(one, 0, shape)
    more, filters = _lines(one, 1, shape) - lines, shape.filters
    multiprocessors = machine.multiprocessors
    for n in _filters(shape, one):
        if n > most:
            break
        rounds = tiles * -(-filters // n) / multiprocessors
        rounds = rounds if shares and rounds <= 0.5 else ceil(rounds)
        read = (rows * (n // ROWS if one.planes else 1) + parts * n) * shape.bytes
        step = max(one.taps * max(rows * n / rate, read / machine.shared), arriving)
        leaving = max(rows * n / 8, lines + more * n)
        each = turns * (shape.channels * step + beside) + leaving
        yield START + max(0.0, rounds - 1) * min(START, HANDOVER) + rounds * each, n


def _registers(t: Tiling) -> int:
    """Those that a lane can have."""
    return min(MOST, REGISTERS // t.threads // 8 * 8)


def _tilings(one: Tiling, n: int, shape: Shape, machine: Machine) -> Iterator[Tiling]:
    """Those with these pixels and filters of a block."""
    one = replace(one, n=n)
    channels = 1 << (shape.deep - 1).bit_length()
    lengths = [k for b in RUN_BYTES if (k := b // shape.bytes) <= channels]
    left = _registers(one)
    least = ROWS if one.planes else 32
    others = IN_BOXES if one.planes and one.box[0] % BOXED == 0 else OTHERS
    if (n <= least or n - least < shape.filters) and one.sums + others <= left:
        for k in lengths[-2:] if one.taps == 1 else lengths[:2]:
            t = replace(one, k=k)
            room = min(ROOM, WITH_SUMS - t.staged_bytes)
            stages = min(MOST_STAGES, room // t.run_bytes)
            if stages > 2 and t.statements <= MOST_STATEMENTS:
                yield from _ways(replace(t, stages=stages), shape, machine)
    if one.reach and shape.fixed and shape.rows:
        yield from _resident(one, shape, left)


def _resident(one: Tiling, shape: Shape, left: int) -> Iterator[Tiling]:
    """With all weights in the shared memory of blocks that stay."""
    if one.n != next((n for n in _filters(shape, one) if n >= shape.filters), 0):
        return
    t = replace(one, k=shape.deep, strips=STRIPS, persistent=True)
    if t.sums + FEW_OTHERS <= left and t.statements <= MOST_STATEMENTS:
        stages = min(MOST_STAGES, (ROOM - t.weight_bytes) // t.run_bytes)
        if stages > 1 and _may_stay(t, shape):
            yield replace(t, stages=stages)


def _may_stay(t: Tiling, shape: Shape) -> bool:
    """Whether results of a block leave by boxes while it goes on."""
    whole = t.planes == shape.planes and not (t.planes and t.box[0] % BOXED)
    return whole and 0 < t.sums * shape.rows <= MOST_READ


def _filters(shape: Shape, one: Tiling) -> Iterator[int]:
    """Filters of a block: where they lie along rows, these are short or whole lines."""
    for n in FILTERS:
        row = n * shape.bytes
        if one.planes and n % ROWS:
            continue
        if not shape.across or row <= LINE or row % LINE == 0:
            yield n


def _pixels(shape: Shape) -> Iterator[Tiling]:
    """The pixels of a block, for one tap a run, and for all taps where windows lie side by side."""
    dimensions = range(len(shape.pixels))
    wide, apart = any(shape.reach), max(shape.steps, default=1) > 1
    planar = shape.planes and shape.phases == 1
    leaving = (False, True) if planar else (False,)
    for reach in ((), shape.reach) if wide else ((),):
        taps = shape.taps if reach else 1
        ways = [(b, False, staged) for b in _boxes(len(dimensions), ROWS) for staged in leaving]
        ways += [(b, True, False) for b in _wide(shape)] if planar else []
        for box, planes, staged in ways:
            make = partial(
                Tiling, box, n=FILTERS[0], k=shape.depth, stages=1, bytes=shape.bytes, taps=taps,
                reach=reach, steps=shape.steps if reach and apart else (), planes=planes,
                staged=staged,
            )  # fmt: skip
            one = make(groups=1, along=0)
            if not _lies(one):
                continue
            first, last = one.order.index(one.sliced), one.order[-1]
            for groups, boxes, along in product(GROUPS, BOXES if reach else (1,), dimensions):
                if along != last if groups * boxes == 1 else one.order.index(along) < first:
                    continue
                t = make(groups=groups, boxes=boxes, along=along)
                if _in_reach(t, shape):
                    yield t


def _wide(shape: Shape) -> Iterator[tuple[int, ...]]:
    """Boxes of pixels that are columns of a product, as wide as rows are stored in: of a power of
    two, or of all that an image has.
    """
    first, *others = shape.pixels
    most = 1 << (first - 1).bit_length()
    wide = {n for n in WIDE if n <= max(most, min(WIDE))} | (
        {first} if first < ROWS else set[int]()
    )
    for x in sorted(wide):
        rows = 1
        while x * rows <= COLUMNS:
            for rest in _boxes(len(others), rows):
                if x * rows % EIGHT == 0:
                    yield (x, *rest)
            rows *= 2


def _lies(one: Tiling) -> bool:
    """Whether the pixels of a box lie side by side in shared memory, and those of its neighbours
    behind them, if these are along its last dimension or one behind it: all that is read along
    every dimension before that is of the box. Boxes whose windows lie apart have one along it.
    """
    order = one.order
    if any(e > 1 and step > 1 for e, step in zip(one.box, one.steps, strict=False)):
        return False
    several = [i for i, d in enumerate(order) if one.box[d] > 1]
    if one.planes and (order[min(several)] != 0 or not _in_slices(one)):
        return False
    return all(one.read[d] == one.box[d] for d in order[: max(several, default=0)])


def _in_slices(t: Tiling) -> bool:
    """Whether the vector statements of a box have whole columns of an instruction each."""
    return t.box[t.sliced] % t.slices == 0 and prod(t.box) // t.slices % EIGHT == 0


def _ways(t: Tiling, shape: Shape, machine: Machine) -> Iterator[Tiling]:
    """A tiling, with blocks that stay, and with parts of the sums for as many blocks as there are
    multiprocessors without one.
    """
    runs = -(-shape.channels // t.k)
    several = runs * shape.taps > t.taps  # else there is nothing that a ring goes through
    if not several and t.taps > 1 and shape.channels < t.k:
        return  # threads copy what a single run has, element by element where rows end within it
    yield t
    if several and _may_stay(t, shape):
        yield replace(t, persistent=True)
    idle = machine.multiprocessors // _blocks(t, shape)
    if _may_share(t, shape):
        own = {-(-runs // parts) for parts in range(2, min(runs, idle) + 1)}
        yield from (replace(t, part=n * t.k) for n in sorted(own))


def _may_share(t: Tiling, shape: Shape) -> bool:
    """Whether blocks may have parts of the sums."""
    return shape.phases == t.taps == 1 and t.planes == shape.planes


def _in_reach(t: Tiling, shape: Shape) -> bool:
    """Whether the copy engine brings a block's pixels as one box, with those between them, and
    takes its results.
    """
    steps = (1,) * len(t.box) if t.reach else shape.steps or (1,) * len(t.box)
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
    block = (b * (max(t.strips, 1) if d == t.along else 1) for d, b in enumerate(t.block))
    pairs = zip(shape.pixels, block, strict=True)
    tiles = prod(-(-e // b) for e, b in pairs) * -(-shape.filters // t.n)
    return tiles * shape.phases * _parts(t, shape)


def _parts(t: Tiling, shape: Shape) -> int:
    return -(-shape.channels // t.part) if t.part else 1


def _cycles(t: Tiling, shape: Shape, machine: Machine) -> float:
    rows, strips = prod(t.block), max(t.strips, 1)
    terms = t.taps * t.k
    products = rows * t.n * terms / machine.rates[_rate(t)]
    read = rows * (t.n // ROWS if t.planes else 1) + t.groups * t.boxes * t.n
    shared = read * terms * t.bytes / machine.shared
    steps = shape.taps // t.taps * -(-(t.part or shape.channels) // t.k)
    blocks = _blocks(t, shape)
    arriving = _arriving(t, shape, min(blocks, machine.multiprocessors), machine)
    step = max(products, shared, arriving) + STEP
    rounds = -(-blocks // machine.multiprocessors)
    leaving = max(rows * t.n / 8, _lines(t, t.n, shape))
    if t.part:
        results = prod(shape.pixels) * shape.filters
        after = adding(results, _parts(t, shape), machine) * machine.megahertz
        return rounds * (steps * step + START + 2 * leaving) + after
    if t.persistent:
        return START + rounds * strips * (steps * step + HANDOVER + leaving)
    return rounds * (steps * step + START + leaving)


def _rate(t: Tiling) -> Rate:
    return "wgmma.f16" if t.bytes == 2 else "wgmma.s8"


def _lines(t: Tiling, n: int, shape: Shape) -> float:
    """That warps name to the first cache, one a cycle, for ``n`` results of each pixel of a block
    where they store these themselves: in planes 8 pixels at once, of which those side by side are
    in one line.
    """
    if not shape.planes:
        return 0.0
    if t.planes and t.box[0] % BOXED == 0:  # several elements at once where no map takes rows
        row = shape.pixels[0] * shape.bytes
        return 0.0 if row % VECTOR == 0 else prod(t.block) * n * shape.bytes / gcd(row, AT_ONCE)
    if t.staged:
        return TURNED + STAGED * prod(t.block) * n * max(1, PIXELS / t.block[0])
    first = next((d for d in t.order if t.box[d] > 1), 0)
    run = 1 if first else min(PIXELS, t.box[0])
    lines = prod(t.block) * n / run * max(1, shape.rows - 1)
    return lines if shape.phases > 1 else (ALONE if t.planes else GUARDED) * lines


def _beside(row: int) -> float:
    """What short rows take for each of their bytes."""
    return 1 + SHORT_ROWS * (LINE / min(row, LINE) - 1)


def _arriving(t: Tiling, shape: Shape, busy: int, machine: Machine) -> float:
    """Cycles until a run is there, when so many multiprocessors read from the L2 cache."""
    if t.part:
        return t.run_bytes / ALL_READ
    weights = 0 if t.strips else t.weight_bytes
    lines = (t.run_bytes - weights) * _beside(t.k * t.bytes)
    lines += weights * _beside((t.n if shape.across else t.k) * t.bytes)
    return lines / min(machine.fill, L2_SHARE * machine.l2 * 1e6 / machine.megahertz / busy)
