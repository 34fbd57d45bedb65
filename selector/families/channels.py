"""Sums over windows of pixels on CUDA cores where each channel, or each few, has filters of its
own: depthwise layers, and grouped ones.

A thread has a tile of results in its registers, some neighbours along each dimension, and keeps
what these read there as well: pixels and weights come once, by vectors where channels lie side by
side, and are turned into single floats once. What neighbours among threads both read the first
cache answers, or shared memory: where channels are planes, and elements come one by one, a block
may bring what its threads read there, each element once. Or a thread has neighbours along such
rows, whose pixels come as a vector, and single ones at both of its ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import product
from math import prod
from operator import mul

from selector.dataclass import dataclass
from selector.machine.record import Machine

VECTOR, MOST_LANES = 16, 64  # bytes of a load, lanes of a statement: those of the emitter
WARP, SHORT, LONG = 32, 64, 256  # threads of a block
EACH = (1, 2, 4, 7, 8, 14)  # results of a thread along a dimension of pixels
ROW = (2, 4, 8)  # along rows of planes
TOGETHER = 12  # registers less where elements of a row have one address
AGAIN = 3  # times more for one of its loads: tests of a vector, and of its elements one by one
FEW = (1, 2, 4, 8, 16)  # threads of a block along other dimensions than the first
WRITTEN_OUT = 2048  # multiply-adds of a thread
MOST_TERMS = 25  # of a result without a loop, channels side by side: no more were measured
STATEMENTS = 600  # of a kernel: loads and sums, vectors twice, as elements as well
OF_ROWS = 256  # the same where threads have parts of rows: longer texts came too late (H200)
REGISTERS, OTHERS = 65536, 40  # of a multiprocessor, of a thread beside values
MOST, MOST_ALONE = 200, 240  # of a thread for all values; of channels side by side, each alone
# Fitted to 247 kernels for 52 layers on an H200 (13 % off in the median; of those that were timed
# for a layer the choice is the best in the median, 24 % off at most): instructions beside one load,
# for its address and whether it is inside, more of them in a loop, beside one store, beside one
# load from shared memory, and of an element that a block brings there; cycles of a launch, of a
# block, of a warp for one of its instructions, of an instruction until its text is there, and until
# what a block brings to shared memory is there and all have met.
LOAD, LOOPED, STORE, SHARED_LOAD, BROUGHT = 12, 5, 5, 1, 40
LAUNCH, START, WAIT, TEXT, ARRIVING = 3800, 60, 2, 2, 1800
# Of channels side by side, each with a filter of its own, to 506 kernels for 25 layers, none of
# whose data was in the L2 cache (11 % off; the choice loses 5.5 % in the mean): cycles of a launch,
# of a warp for one of its instructions alone and as one of many, until what a thread loads is
# there, and of an instruction's text; bytes from memory for which one counts that is read again;
# the power with which arithmetic, waiting and bytes add up; of the registers of all values, how
# many nvcc takes, and how few do.
LAUNCH_ALONE, PACE, ISSUE, LATENCY, TEXT_ALONE = 2760, 1.0, 0.22, 915, 1.1
REREAD, POWER, TAKEN, FEWEST = 4, 1.3, 0.78, 0.66
RUN = 8  # elements of a row that a thread brings at once, also if there are fewer
ROOM = 96 << 10  # bytes of shared memory for all blocks of a multiprocessor
L1_BYTES = 128


@dataclass(frozen=True, slots=True)
class Windows:
    """So many ``taps`` along a dimension, that many elements ``apart``, which move on by ``step``
    from one result to the next.
    """

    taps: int = 1
    step: int = 1
    apart: int = 1

    def reach(self, results: int) -> int:
        """Elements that neighbours read."""
        return self.step * (results - 1) + self.apart * (self.taps - 1) + 1


@dataclass(frozen=True, slots=True)
class Shape:
    """``extents`` of the results, in the order of memory, and the windows along each; ``channel``:
    the place of the channels there, of which ``group`` are summed up for each; ``bytes`` of an
    element. ``side``: whether channels lie side by side in the image; among the weights so many
    elements lie ``inside`` of a channel.
    """

    extents: tuple[int, ...]
    windows: tuple[Windows, ...]
    channel: int
    group: int
    bytes: int
    side: bool
    inside: int = 1

    @property
    def terms(self) -> int:
        return self.group * prod(w.taps for w in self.windows)

    @property
    def alone(self) -> bool:
        """Whether channels lie side by side, each with a filter of its own."""
        return self.side and self.group == 1

    @property
    def windowed(self) -> tuple[int, ...]:
        """The dimensions with several taps."""
        return tuple(d for d, w in enumerate(self.windows) if w.taps > 1)


@dataclass(frozen=True, slots=True)
class Tile:
    """A thread has ``each`` results along each dimension, ``lanes`` of them a vector, a block so
    many ``threads``; the taps along dimension ``rolled`` are a loop, along none if that is None:
    what neighbouring results read there comes once for each, along others once for all;
    ``staged``: what threads read is in shared memory. ``resident`` blocks are to find registers.
    """

    each: tuple[int, ...]
    threads: tuple[int, ...]
    lanes: int
    rolled: int | None
    resident: int = 1
    staged: bool = False

    @property
    def row(self) -> bool:
        return _in_rows(self.each, self.lanes)

    @property
    def vectors(self) -> bool:
        return self.lanes > 1 or self.row


def ranked(shape: Shape, machine: Machine) -> list[tuple[float, Tile]]:
    """Tiles with the cycles that they take, the best first; none where no thread can hold one."""
    return [*_ranked(shape, machine.multiprocessors, machine.copy * 1e6 / machine.megahertz)]


@lru_cache(maxsize=1024)
def _ranked(shape: Shape, multiprocessors: int, speed: float) -> tuple[tuple[float, Tile], ...]:
    """``speed``: bytes a cycle from memory."""
    cost: _Cost = partial(_cost, shape=shape, multiprocessors=multiprocessors)
    if shape.alone:
        once = prod(shape.extents) * (1 + prod(w.step for w in shape.windows))
        cost = partial(
            _cost_alone, shape=shape, multiprocessors=multiprocessors, speed=speed, once=once
        )
    grids, found = dict[tuple[int, ...], list[_Grid]](), list[tuple[float, Tile]]()
    for p in _parts(shape):
        if p.each not in grids:
            grids[p.each] = [*_grids(p.each, shape)]
        for grid in grids[p.each]:
            known = cost(p, grid)
            if known is not None:
                cycles, resident = known
                tile = Tile(p.each, grid.threads, p.lanes, p.rolled, resident, p.staged)
                found.append((cycles, tile))
    return tuple(sorted(found, key=lambda rank: rank[0]))


@dataclass(frozen=True, slots=True)
class _Part:
    """What a thread has, the ``registers`` that takes, and what it does: ``instructions``, those
    that its warp does besides (``again``), and lines of the first cache that this asks for.
    """

    each: tuple[int, ...]
    lanes: int
    rolled: int | None
    registers: int
    instructions: int
    again: int
    lines: float
    staged: bool


@dataclass(frozen=True, slots=True)
class _Grid:
    """So many ``blocks``, each of ``count`` ``threads``, which have ``spans`` of the results."""

    threads: tuple[int, ...]
    count: int
    spans: tuple[int, ...]
    blocks: int


_Cost = Callable[[_Part, _Grid], tuple[float, int] | None]


def _parts(shape: Shape) -> Iterator[_Part]:
    for lanes, rolled in product(_lanes(shape), (None, *shape.windowed)):
        terms = shape.terms // _times(rolled, shape)
        if shape.alone and rolled is None and terms > MOST_TERMS:
            continue
        choices = [
            (lanes,) if d == 0 and lanes > 1 else _along(shape, d, lanes)
            for d in range(len(shape.extents))
        ]
        for each in product(*choices):
            sums = prod(each) * terms
            registers = _registers(each, lanes, rolled, shape)
            pixels, weights = _loads(each, lanes, rolled, shape)
            statements = (sums // lanes + pixels + weights) * (2 if lanes > 1 else 1)
            most = STATEMENTS
            row = _in_rows(each, lanes)
            if row and rolled is not None:
                continue
            if row:  # pixels and results once more as elements
                statements += pixels // _row_loads(each[0], shape) * each[0] + prod(each)
                most = OF_ROWS
            written = sums <= WRITTEN_OUT and statements <= most
            if not written or registers > (MOST_ALONE if shape.alone else MOST):
                continue
            for staged in (False,) if shape.side or row else (False, True):
                work = _work(each, lanes, rolled, staged, shape)
                yield _Part(each, lanes, rolled, registers, *work, staged)


def _work(
    each: tuple[int, ...], lanes: int, rolled: int | None, staged: bool, shape: Shape
) -> tuple[int, int, float]:
    pixels, weights = (n * _times(rolled, shape) for n in _loads(each, lanes, rolled, shape))
    loads, sums = pixels + weights, prod(each)
    row = each[0] if _in_rows(each, lanes) else 1
    rows = pixels // _row_loads(row, shape) if row > 1 else 0
    converted = (loads * lanes + rows * (row - 1)) * (shape.bytes < 4)
    beside = SHARED_LOAD if staged else LOAD + (LOOPED if rolled is not None else 0)
    again = AGAIN * pixels * beside if row > 1 else 0
    moved = converted + loads * beside + sums // (lanes * row) * STORE + sums
    lines = loads * max(1.0, lanes * shape.bytes * WARP / L1_BYTES)
    lines += rows * max(0.0, row * shape.bytes * WARP / L1_BYTES - 1)
    return sums * shape.terms + moved + OTHERS, again, lines


def _grids(each: tuple[int, ...], shape: Shape) -> Iterator[_Grid]:
    """With the threads that a block may have."""
    for threads in _threads(each, shape):
        spans = tuple(map(mul, threads, each))
        blocks = prod(-(-e // n) for e, n in zip(shape.extents, spans, strict=True))
        yield _Grid(threads, prod(threads), spans, blocks)


def _cost(p: _Part, grid: _Grid, *, shape: Shape, multiprocessors: int) -> tuple[float, int] | None:
    """The cycles of all blocks, and how many are resident; None where there is no room for one, or
    it has parts of groups.
    """
    resident = max(1, min(REGISTERS // (grid.count * -(-p.registers // 8) * 8), 16))
    share = -(-grid.blocks // multiprocessors)
    instructions = float(p.instructions)
    if p.staged:
        row, *rows = (w.reach(n) for n, w in zip(grid.spans, shape.windows, strict=True))
        brought = -(-row // RUN) * RUN * prod(rows)
        brought += shape.terms * grid.spans[shape.channel]
        resident = min(resident, ROOM // (brought * shape.bytes))
        if not resident or grid.spans[shape.channel] % shape.group:
            return None
        instructions += BROUGHT * brought / grid.count
    issue = share * -(-grid.count // WARP) * max((instructions + p.again) / 4, p.lines)
    waiting = -(-share // resident) * (instructions * WAIT + START)
    text = TEXT * (p.instructions + p.again) / _times(p.rolled, shape)
    arriving = ARRIVING if p.staged else 0
    return max(issue, waiting) + text + arriving + LAUNCH, resident


def _cost_alone(
    p: _Part, grid: _Grid, *, shape: Shape, multiprocessors: int, speed: float, once: int
) -> tuple[float, int]:
    """The same of channels side by side, each alone, of whose pixels so many are moved at least
    ``once``.
    """
    warps = -(-grid.count // WARP)
    room, few = REGISTERS // (warps * WARP), int(FEWEST * p.registers)
    resident = max(1, min(room // (-(-few // 8) * 8), 16))
    held = min(REGISTERS // (grid.count * resident) // 8 * 8, TAKEN * p.registers)
    there = max(1, min(room // held, 64 // warps))
    share = min(-(-grid.blocks // multiprocessors), grid.blocks / multiprocessors + 0.5)
    turns = _times(p.rolled, shape)
    issue = share * warps * p.instructions * ISSUE
    waiting = max(1.0, share / there) * (p.instructions * PACE + LATENCY * turns**0.5)
    read = grid.blocks * prod(w.reach(n) for n, w in zip(grid.spans, shape.windows, strict=True))
    read *= max(1.0, L1_BYTES / (grid.spans[0] * shape.bytes))  # parts of lines come alone
    bytes_ = shape.bytes * (read / REREAD + once) / speed
    body = sum(part**POWER for part in (issue, waiting, bytes_)) ** (1 / POWER)
    return body + TEXT_ALONE * p.instructions / turns + LAUNCH_ALONE, resident


def _lanes(shape: Shape) -> list[int]:
    """Channels of a vector: whole groups, and no remainder."""
    if not shape.side:
        return [1]
    channels = shape.extents[shape.channel]
    found = [n for n in (8, 4, 2) if n * shape.bytes <= VECTOR and channels % n == 0]
    found = [n for n in found if n * shape.inside <= MOST_LANES]
    return [n for n in found if n % shape.group == 0 and n * shape.bytes >= 4] or [1]


def _along(shape: Shape, d: int, lanes: int) -> tuple[int, ...]:
    """Results of a thread: several only along dimensions with windows, of whole groups, which read
    the same, and along memory those of a vector alone.
    """
    if d == shape.channel and d and shape.group > 1:
        return (1, shape.group) if shape.extents[d] % shape.group == 0 else (1,)
    if shape.windows[d].taps == 1 or (d == 0 and shape.side):
        return (1,)
    if d == 0:
        whole = (n for n in ROW if 4 <= n * shape.bytes <= VECTOR and shape.extents[0] % n == 0)
        return (1, *(n for n in whole if shape.windows[0].step == 1))
    return tuple(n for n in EACH if n <= shape.extents[d])


def _threads(each: tuple[int, ...], shape: Shape) -> Iterator[tuple[int, ...]]:
    """Those of a block along the first three dimensions with any: who would have none of the
    channels would go through them one by one.
    """
    turns = [-(-e // n) for e, n in zip(shape.extents, each, strict=True)]
    dims = [d for d, n in enumerate(turns) if n > 1][:3]
    parts = [
        sorted({*(n for n in FEW if n < turns[d]), *(-(-turns[d] // k) for k in (1, 2, 3))})
        if d
        else [n for n in range(1, turns[0] + 1) if turns[0] % n == 0]
        for d in dims
    ]
    for chosen in product(*parts):
        count = prod(chosen)
        if count <= LONG and (count >= SHORT or count == prod(turns[d] for d in dims)):
            threads = [1] * len(each)
            for d, n in zip(dims, chosen, strict=True):
                threads[d] = n
            if threads[0] * each[0] >= min(L1_BYTES // 2 // shape.bytes, shape.extents[0]):
                yield tuple(threads)


def _times(rolled: int | None, shape: Shape) -> int:
    """Turns of a thread's loop over taps."""
    return 1 if rolled is None else shape.windows[rolled].taps


def _loads(each: tuple[int, ...], lanes: int, rolled: int | None, shape: Shape) -> tuple[int, int]:
    """Vectors of pixels and of weights that a thread loads, in each turn of its loop. One turn's
    weights of several channels are no run where those of others lie between.
    """
    pixels, weights = shape.group if lanes == 1 else 1, shape.group
    if rolled is not None and shape.inside > 1:
        weights *= lanes
    for d, (n, w) in enumerate(zip(each, shape.windows, strict=True)):
        if d == 0 and lanes > 1:
            continue
        if d == shape.channel:
            weights *= n
        elif d == rolled:
            pixels *= n
        else:
            pixels *= _row_loads(n, shape) if d == 0 and n > 1 else w.reach(n)
            weights *= w.taps
    return pixels, weights


def _in_rows(each: tuple[int, ...], lanes: int) -> bool:
    """Whether a thread has neighbours along rows of planes."""
    return lanes == 1 and each[0] > 1


def _row_loads(each: int, shape: Shape) -> int:
    """Of a row of planes for so many neighbours: a vector, and what they read at its ends."""
    return 1 + shape.windows[0].reach(each) - each


def _registers(each: tuple[int, ...], lanes: int, rolled: int | None, shape: Shape) -> int:
    words = -(-lanes * shape.bytes // 4)
    d = next((d for d in shape.windowed if d != rolled), 1 if lanes > 1 else 0)
    row = shape.windows[d]
    floats = lanes * (row.reach(each[d]) + row.taps * shape.group)
    floats -= 2 * TOGETHER if _in_rows(each, lanes) else 0
    return OTHERS + prod(each) + sum(_loads(each, lanes, rolled, shape)) * words + floats // 2
