"""A kernel of its own that copies an operand so that tensor units read it.

    image[x, y, c, n]    pixels side by side      weights[s, r, c, f]    taps side by side
    turned[c, x, y, n]   channels side by side    turned[c, s, r, f]

Also one whose channels are side by side, but not multiples of 16 bytes. The copy engine brings rows
of channels to shared memory, and tensor units read them there. A thread has 16 bytes of channels of
one pixel, which it writes at once. Where channels do not lie side by side a block brings a tile to
shared memory first: what neighbours read lies side by side, and so does what they write.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from halide_bridge.schedules.kernels import aligned, fused
from halide_bridge.schedules.recognise.program import Access, Member, Program, accesses
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.schedules.sizes import is_argument
from halide_bridge.schedules.transposed import WORD
from halide_bridge.stock import GPU_SHARED
from selector.dataclass import dataclass
from selector.ir.nodes import Var
from selector.ir.traverse import free_vars
from selector.targets import VECTOR_BYTES

SECTOR = 32  # bytes that caches move at once
PLANE = 3  # dimensions of pixels of a plane, and of their channels
THREADS, LANES = 256, 32  # of a block, and those of them that have pixels side by side


@dataclass(frozen=True, slots=True)
class Argument:
    """What an operand's elements are those of, ``along`` which dimension of it the operand's
    channels lie, and the Func that reads it for the operand; None where the sum itself does.
    """

    source: Member
    along: int
    reader: Member | None


def argument_of(operand: Member, channels: int, program: Program) -> Argument | None:
    """The argument that an operand's elements are those of, with zeros around it or not; None where
    they are computed. ``channels``: the operand's dimension.
    """
    reader, d = None, channels
    while not is_argument(operand, program):
        read = {*accesses(operand.stages[0].values[0])} if operand.pure else set[Access]()
        if len(read) != 1:
            return None
        (access,) = read
        own = Var(operand.args[d])
        mentioning = [i for i, e in enumerate(access.indices) if own.name in free_vars(e)]
        if len(mentioning) != 1 or access.func not in program.members:
            return None
        (place,) = mentioning
        if access.indices[place] != own:
            return None
        reader, operand, d = operand, program.members[access.func], place
    return Argument(operand, d, reader)


def turned(
    script: Script, source: Recorded, reader: Recorded, found: Argument, sizes: Sequence[int]
) -> Recorded:
    """The copy of an argument that ``reader`` reads instead, its channels innermost, by a kernel
    whose neighbours among threads have neighbours among pixels. ``sizes``: about those of the
    argument.
    """
    if script.known(source, f"in_({reader.text})"):
        return source.in_(reader)
    copy, d, run = source.in_(reader), found.along, VECTOR_BYTES // found.source.types[0].bytes
    args, last = copy.args(), max(d, 1)  # of the dimensions that neighbours lie along
    line, outer = [a for a in args[: last + 1] if a is not args[d]], args[last + 1 :]
    copy.compute_root()
    if d:
        copy.reorder_storage(args[d], *line, *outer)
    aligned(copy, args[d], run)
    wide = min(LANES, prod(sizes[: last + 1]) // sizes[d])
    high, threads = _vectors(script, copy, args[d], sizes[d], run, wide)
    if d and wide == LANES and sizes[0] > LANES // 2:  # shorter rows, such as taps, fill no tile
        _by_tiles(script, source, copy, d, high * run, sizes)
    else:
        _by_lanes(script, copy, threads, line, outer, wide)
    return copy


def picked(script: Script, copy: Recorded, sizes: Sequence[int], run: int) -> None:
    """A kernel for a Func of channels, its first dimension, in vectors of ``run``, and of pixels
    that are some of those of its source. ``sizes``: about its own.
    """
    first, *pixels = copy.args()
    copy.compute_root()
    aligned(copy, first, run)
    wide = min(LANES, prod(sizes[1:PLANE]))
    _, threads = _vectors(script, copy, first, sizes[0], run, wide)
    _by_lanes(script, copy, threads, pixels[: PLANE - 1], pixels[PLANE - 1 :], wide)


def _vectors(
    script: Script, copy: Recorded, channels: Any, count: int, run: int, wide: int
) -> tuple[int, tuple[Any, Any, Any]]:
    """Split the channels of a copy into vectors, of which a block has as many as there are threads
    beside those of pixels; that number, and the loops over blocks, threads and channels.
    """
    vectors = -(-count // run)
    high = -(-vectors // -(-vectors // (THREADS // wide)))
    vo, vt, vl = script.variables("vo", "vt", "vl")
    copy.split(channels, vo, vt, high * run).split(vt, vt, vl, run).vectorize(vl)
    return high, (vo, vt, vl)


def _by_lanes(
    script: Script, copy: Recorded, vectors: tuple[Any, Any, Any], line: Any, outer: Any, wide: int
) -> None:
    """Give neighbours among threads neighbours among the pixels of a line."""
    vo, vt, vl = vectors
    lo, li = script.variables("lo", "li")
    (row,) = fused(script, copy, line)
    copy.split(row, lo, li, wide)
    blocks = (lo, vo, *fused(script, copy, outer))
    copy.reorder(vl, li, vt, *blocks)
    copy.gpu_blocks(*blocks).gpu_threads(li, vt)


def _by_tiles(
    script: Script, source: Recorded, copy: Recorded, d: int, channels: int, sizes: Sequence[int]
) -> None:
    """Have the blocks of a copy bring so many channels of a few neighbours by way of shared memory:
    threads load what lies side by side here, 16 bytes at once where rows are about multiples of
    that, and write what does there.
    """
    args = copy.args()
    vo, vs, vt, vl, lo, li = script.variables("vo", "vs", "vt", "vl", "lo", "li")
    copy.split(args[0], lo, li, LANES)
    threads, bytes_ = [vt, li], source.type().bytes()
    at_once = sizes[0] * bytes_ % VECTOR_BYTES == channels * bytes_ % SECTOR == 0
    if at_once:  # then rows begin in the same bank: few lanes have channels, many pixels
        copy.split(vt, vs, vt, SECTOR // VECTOR_BYTES)
        threads.append(vs)
    blocks = (lo, vo, *fused(script, copy, [a for a in args[1:] if a is not args[d]]))
    copy.reorder(vl, *threads, *blocks)
    copy.gpu_blocks(*blocks).gpu_threads(*threads)
    tile = source.in_(copy)
    tile.compute_at(copy, lo).store_in(GPU_SHARED)
    row, *others = tile.args()
    for arg in others:
        tile.bound_extent(arg, channels if arg is tile.args()[d] else 1)
    tile.bound_extent(row, LANES)
    if at_once:
        tile.vectorize(row)
    tile.align_storage(row, LANES + (VECTOR_BYTES if at_once else WORD) // bytes_)


def side_by_side(
    script: Script, func: Recorded, terms: int, run: int, source: tuple[Recorded, int] | None = None
) -> None:
    """A kernel for a Func of so few ``terms`` along its first dimension that a warp has those of
    some neighbours, a vector of ``run`` each, side by side as they lie. What neighbours read of a
    ``source`` comes to shared memory first, where elements lie side by side along one of its
    dimensions: what they read is in different banks.
    """
    first, *others = func.args()
    func.compute_root()
    sector = run * SECTOR // VECTOR_BYTES  # of a part of one the cache reads the rest
    aligned(func, first, sector)
    vectors = -(-terms // sector) * sector // run
    vo, vl, xo, xu, xi, yo, yi = script.variables("vo", "vl", "xo", "xu", "xi", "yo", "yi")
    func.split(first, vo, vl, run).vectorize(vl)
    line, rows, outer = (*others[:2], others[2:]) if len(others) > 1 else (*others, None, [])
    func.split(line, xo, xi, LANES).split(xi, xu, xi, max(1, LANES // vectors)).unroll(xu)
    blocks, threads = [xo], [vo, xi]
    if rows is not None:
        func.split(rows, yo, yi, THREADS // LANES)
        blocks, threads = [xo, yo], [vo, xi, yi]
    blocks += fused(script, func, outer)
    func.reorder(vl, xu, *threads, *blocks).gpu_blocks(*blocks).gpu_threads(*threads)
    if source is not None:
        tile = source[0].in_(func)
        tile.compute_at(func, xo).store_in(GPU_SHARED)
        along = tile.args()[source[1]]
        if source[1]:
            tile.reorder_storage(along, *(a for a in tile.args() if a is not along))
