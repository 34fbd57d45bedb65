"""A kernel of its own that copies an operand so that tensor units read it.

    image[x, y, c, n]    pixels side by side      weights[s, r, c, f]    taps side by side
    turned[c, x, y, n]   channels side by side    turned[c, s, r, f]

    image[c, 2 * x + s, n]                   windows two pixels apart
    dealt[c, x + s / 2, n, s % 2]            in the plane of a tap they are side by side

The copy engine brings rows of channels to shared memory, and tensor units read them there. A thread
has 16 bytes of channels of one pixel, which it writes at once; its neighbours read what lies beside
that in memory.
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
from selector.ir.nodes import Binary, BinaryOp, Var
from selector.ir.traverse import free_vars, walk_expr

_CLAMPS = (BinaryOp.MIN, BinaryOp.MAX)
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


def goes_on(operand: Member, d: int, program: Program) -> bool:
    """Whether an operand has elements beyond those of an argument along a dimension: clamped."""
    while operand.pure and not is_argument(operand, program):
        read, own = {*accesses(operand.stages[0].values[0])}, operand.args[d]
        if len(read) != 1:
            return False
        (access,) = read
        places = [i for i, e in enumerate(access.indices) if own in free_vars(e)]
        if len(places) != 1:
            return False
        index = access.indices[places[0]]
        if any(isinstance(e, Binary) and e.op in _CLAMPS for e in walk_expr(index)):
            return True
        if index != Var(own) or access.func not in program.members:
            return False
        operand, d = program.members[access.func], places[0]
    return False


def turned(
    script: Script, source: Recorded, reader: Recorded, found: Argument, sizes: Sequence[int]
) -> Recorded:
    """The copy of an argument that ``reader`` reads instead, its channels innermost. ``sizes``:
    about those of the argument.
    """
    if script.known(source, f"in_({reader.text})"):
        return source.in_(reader)
    copy, run = source.in_(reader), VECTOR // found.source.types[0].bytes
    _copied(script, copy, found.along, sizes, run, along=False)
    return copy


def dealt(
    script: Script,
    source: Recorded,
    reader: Recorded,
    steps: Sequence[int],
    channels: int,
    sizes: Sequence[int],
    run: int,
    *,
    along: bool,
) -> Recorded:
    """What ``reader`` reads of ``source``, dealt out by ``steps``: what was so far apart is side by
    side, and channels are innermost, ``run`` of them 16 bytes. ``sizes``: about those of the
    source, where channels lie ``along`` memory or do not.
    """
    copy = script.dealt(source, reader, steps)
    about = [-(-size // step) for size, step in zip(sizes, steps, strict=True)]
    _copied(script, copy, channels, [*about, prod(steps)], run, along=along)
    return copy


def _copied(
    script: Script, copy: Recorded, d: int, sizes: Sequence[int], run: int, *, along: bool
) -> None:
    """A kernel for a copy that is stored with dimension ``d`` innermost. Neighbours among threads
    have neighbours along it, or else along the pixels.
    """
    args = copy.args()
    first = slice(0, d) if d else slice(1, 3)
    line, outer = args[first], args[(first.stop if d == 0 else d + 1) :]
    copy.compute_root().reorder_storage(args[d], *line, *outer)
    aligned(copy, args[d], run)
    vectors, pixels = -(-sizes[d] // run), prod(sizes[first])
    wide = min(LANES, vectors if along else pixels)
    most = THREADS // wide
    high = min(most, pixels) if along else -(-vectors // -(-vectors // most))
    vo, vt, vl, lo, li = script.variables("vo", "vt", "vl", "lo", "li")
    beside, across = (vt, li) if along else (li, vt)
    copy.split(args[d], vo, vt, (wide if along else high) * run).split(vt, vt, vl, run)
    (row,) = fused(script, copy, line)
    copy.split(row, lo, li, high if along else wide)
    blocks = (lo, vo, *fused(script, copy, outer))
    copy.reorder(vl, beside, across, *blocks).vectorize(vl)
    copy.gpu_blocks(*blocks).gpu_threads(beside, across)
