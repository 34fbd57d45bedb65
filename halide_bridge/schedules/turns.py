"""A kernel of its own that copies an operand so that tensor units read it.

    image[x, y, c, n]    pixels side by side      weights[s, r, c, f]    taps side by side
    turned[c, x, y, n]   channels side by side    turned[c, s, r, f]

Also one whose channels are side by side, but not multiples of 16 bytes. The copy engine brings rows
of channels to shared memory, and tensor units read them there. A thread has 16 bytes of channels of
one pixel, which it writes at once; its neighbours read what lies beside that in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from halide_bridge.schedules.kernels import aligned, fused
from halide_bridge.schedules.lanes import VECTOR
from halide_bridge.schedules.recognise.program import Access, Member, Program, accesses
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.schedules.sizes import is_argument
from selector.ir.nodes import Var
from selector.ir.traverse import free_vars

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
    copy, d, run = source.in_(reader), found.along, VECTOR // found.source.types[0].bytes
    args, last = copy.args(), max(d, 1)  # of the dimensions that neighbours lie along
    line, outer = [a for a in args[: last + 1] if a is not args[d]], args[last + 1 :]
    copy.compute_root()
    if d:
        copy.reorder_storage(args[d], *line, *outer)
    aligned(copy, args[d], run)
    vectors, wide = -(-sizes[d] // run), min(LANES, prod(sizes[: last + 1]) // sizes[d])
    high = -(-vectors // -(-vectors // (THREADS // wide)))
    vo, vt, vl, lo, li = script.variables("vo", "vt", "vl", "lo", "li")
    copy.split(args[d], vo, vt, high * run).split(vt, vt, vl, run)
    (row,) = fused(script, copy, line)
    copy.split(row, lo, li, wide)
    blocks = (lo, vo, *fused(script, copy, outer))
    copy.reorder(vl, li, vt, *blocks).vectorize(vl)
    copy.gpu_blocks(*blocks).gpu_threads(li, vt)
    return copy


def side_by_side(script: Script, func: Recorded, run: int) -> None:
    """A kernel for a Func of few elements along its first dimension, which a thread has all of, as
    vectors of ``run``; its neighbours have those behind them.
    """
    first, *others = func.args()
    func.compute_root()
    aligned(func, first, run)
    vo, vl, xo, xi, yo, yi = script.variables("vo", "vl", "xo", "xi", "yo", "yi")
    func.split(first, vo, vl, run).vectorize(vl).unroll(vo)
    line, rows, outer = (*others[:2], others[2:]) if len(others) > 1 else (*others, None, [])
    func.split(line, xo, xi, LANES)
    blocks, threads = [xo], [xi]
    if rows is not None:
        func.split(rows, yo, yi, THREADS // LANES)
        blocks, threads = [xo, yo], [xi, yi]
    blocks += fused(script, func, outer)
    func.reorder(vl, vo, *threads, *blocks).gpu_blocks(*blocks).gpu_threads(*threads)
