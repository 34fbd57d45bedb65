"""What a thread has of the results, and the blocks that threads are in."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from operator import mul

from selector.dataclass import dataclass
from selector.families.channels.tiling import Shape, in_rows
from selector.targets import THREAD_LANES, VECTOR_BYTES

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
L1_BYTES = 128
# Instructions beside one load, for its address and whether it is inside, more of them in a loop,
# beside one store, and beside one load from shared memory: fitted with the cycles in ``cost``.
LOAD, LOOPED, STORE, SHARED_LOAD = 12, 5, 5, 1


@dataclass(frozen=True, slots=True)
class Part:
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
class Grid:
    """So many ``blocks``, each of ``count`` ``threads``, which have ``spans`` of the results and
    read that many pixels in all, those of a line that nobody reads among them.
    """

    threads: tuple[int, ...]
    count: int
    spans: tuple[int, ...]
    blocks: int
    read: float


def parts(shape: Shape) -> Iterator[Part]:
    for lanes, rolled in product(_lanes(shape), (None, *shape.windowed)):
        terms = shape.terms // times(rolled, shape)
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
            row = in_rows(each, lanes)
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
                yield Part(each, lanes, rolled, registers, *work, staged)


def _work(
    each: tuple[int, ...], lanes: int, rolled: int | None, staged: bool, shape: Shape
) -> tuple[int, int, float]:
    pixels, weights = (n * times(rolled, shape) for n in _loads(each, lanes, rolled, shape))
    loads, sums = pixels + weights, prod(each)
    row = each[0] if in_rows(each, lanes) else 1
    rows = pixels // _row_loads(row, shape) if row > 1 else 0
    converted = (loads * lanes + rows * (row - 1)) * (shape.bytes < 4)
    beside = SHARED_LOAD if staged else LOAD + (LOOPED if rolled is not None else 0)
    again = AGAIN * pixels * beside if row > 1 else 0
    moved = converted + loads * beside + sums // (lanes * row) * STORE + sums
    lines = loads * max(1.0, lanes * shape.bytes * WARP / L1_BYTES)
    lines += rows * max(0.0, row * shape.bytes * WARP / L1_BYTES - 1)
    return sums * shape.terms + moved + OTHERS, again, lines


def grids(each: tuple[int, ...], shape: Shape) -> Iterator[Grid]:
    """With the threads that a block may have."""
    for threads in _threads(each, shape):
        spans = tuple(map(mul, threads, each))
        blocks = read = 1
        for extent, n, w in zip(shape.extents, spans, shape.windows, strict=True):
            blocks *= -(-extent // n)
            read *= w.reach(n)
        pieces = max(1.0, L1_BYTES / (spans[0] * shape.bytes))  # of lines: these come alone
        yield Grid(threads, prod(threads), spans, blocks, blocks * read * pieces)


def _lanes(shape: Shape) -> list[int]:
    """Channels of a vector: whole groups, and no remainder."""
    if not shape.side:
        return [1]
    channels = shape.extents[shape.channel]
    found = [n for n in (8, 4, 2) if n * shape.bytes <= VECTOR_BYTES and channels % n == 0]
    found = [n for n in found if n * shape.inside <= THREAD_LANES]
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
        whole = (
            n for n in ROW if 4 <= n * shape.bytes <= VECTOR_BYTES and shape.extents[0] % n == 0
        )
        return (1, *(n for n in whole if shape.windows[0].step == 1))
    return tuple(n for n in EACH if n <= shape.extents[d])


def _threads(each: tuple[int, ...], shape: Shape) -> Iterator[tuple[int, ...]]:
    """Those of a block along the first three dimensions with any: who would have none of the
    channels would go through them one by one.
    """
    turns = [-(-e // n) for e, n in zip(shape.extents, each, strict=True)]
    dims = [d for d, n in enumerate(turns) if n > 1][:3]
    some = [
        sorted({*(n for n in FEW if n < turns[d]), *(-(-turns[d] // k) for k in (1, 2, 3))})
        if d
        else [n for n in range(1, turns[0] + 1) if turns[0] % n == 0]
        for d in dims
    ]
    least = least_row(shape)
    if dims and dims[0] == 0:
        some[0] = [n for n in some[0] if n * each[0] >= least]
    chosen: list[tuple[tuple[int, ...], int]] = [((), 1)]
    for along in some:
        chosen = [((*c, n), count * n) for c, count in chosen for n in along if count * n <= LONG]
    most = prod(turns[d] for d in dims)
    for c, count in chosen:
        if count >= SHORT or count == most:
            threads = [1] * len(each)
            for d, n in zip(dims, c, strict=True):
                threads[d] = n
            if threads[0] * each[0] >= least:
                yield tuple(threads)


def least_row(shape: Shape) -> int:
    """Results of a block along memory, at least."""
    return min(L1_BYTES // 2 // shape.bytes, shape.extents[0])


def times(rolled: int | None, shape: Shape) -> int:
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


def _row_loads(each: int, shape: Shape) -> int:
    """Of a row of planes for so many neighbours: a vector, and what they read at its ends."""
    return 1 + shape.windows[0].reach(each) - each


def _registers(each: tuple[int, ...], lanes: int, rolled: int | None, shape: Shape) -> int:
    words = -(-lanes * shape.bytes // 4)
    d = next((d for d in shape.windowed if d != rolled), 1 if lanes > 1 else 0)
    row = shape.windows[d]
    floats = lanes * (row.reach(each[d]) + row.taps * shape.group)
    floats -= 2 * TOGETHER if in_rows(each, lanes) else 0
    return OTHERS + prod(each) + sum(_loads(each, lanes, rolled, shape)) * words + floats // 2
