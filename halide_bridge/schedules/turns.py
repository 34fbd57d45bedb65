"""A kernel of its own that turns an argument: elements that are added up get to lie side by side.

    image[x, y, c, n]    pixels side by side      weights[s, r, c, f]    taps side by side
    turned[c, x, y, n]   channels side by side    turned[c, s, r, f]

The copy engine brings rows of channels to shared memory, and tensor units read them there. A thread
has 16 bytes of channels of one pixel, which it writes at once; its neighbours read the pixels
beside it.
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
    """The copy of an argument that ``reader`` reads instead, its channels innermost. ``sizes``:
    about those of the argument.
    """
    if script.known(source, f"in_({reader.text})"):
        return source.in_(reader)
    copy, d = source.in_(reader), found.along
    args, run = copy.args(), VECTOR // found.source.types[0].bytes
    line, outer = args[:d], args[d + 1 :]
    copy.compute_root().reorder_storage(args[d], *line, *outer)
    aligned(copy, args[d], run)
    wide = min(LANES, prod(sizes[:d]))
    vo, vt, vl, lo, li = script.variables("vo", "vt", "vl", "lo", "li")
    vectors = -(-sizes[d] // run)
    most = THREADS // wide
    high = -(-vectors // -(-vectors // most))  # as few too many as can be
    along = fused(script, copy, line)[0]
    copy.split(args[d], vo, vt, high * run).split(vt, vt, vl, run).split(along, lo, li, wide)
    copy.reorder(vl, li, vt, lo, vo, *outer).vectorize(vl)
    copy.gpu_blocks(lo, vo, *fused(script, copy, outer)).gpu_threads(li, vt)
    return copy
