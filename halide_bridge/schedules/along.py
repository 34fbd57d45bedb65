"""A kernel for a pure Func along its dimensions: which of them threads have, how many neighbours or
rows each, and which are loops inside a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from halide_bridge.names import plain
from halide_bridge.schedules.kernels import (
    LANES,
    MODEST,
    MOST_ACROSS,
    ROWS,
    Grid,
    aligned,
    new_variables,
    spread,
)
from halide_bridge.schedules.lanes import lanes_of, turn_of
from halide_bridge.schedules.recognise.facts import SMALL, Body, Placement
from halide_bridge.schedules.recognise.program import Member
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.schedules.short import Extents, are_shared, told_short, values_of
from halide_bridge.schedules.sizes import Guess
from selector.dataclass import dataclass
from selector.ir.nodes import Expr
from selector.ir.traverse import free_vars
from selector.targets import VECTOR_BYTES


@dataclass(frozen=True, slots=True)
class _Work:
    """What a kernel does: elements of a ``member`` of the pipeline, as ``body`` says, which are
    made of ``values``; ``alone``: nothing is computed at its threads. ``known``: sizes to be fast
    at.
    """

    member: Member
    placement: Placement
    body: Body
    values: Sequence[Expr]
    known: Guess
    alone: bool

    def is_short(self, d: int) -> bool:
        """Whether a dimension is told to be short."""
        return self.known.tells(self.member, d) and self.known.extent(self.member, d) <= SMALL


@dataclass(frozen=True, slots=True)
class _Form:
    """Which dimensions are a thread's, where they have such ``extents``: ``lead`` is the innermost
    one of threads, ``rest`` are those behind it, those inside are loops of a thread, ``unrolled``
    or one ``vector``.
    """

    extents: Extents
    lead: int
    rest: tuple[int, ...]
    rows: int
    lanes: int
    unrolled: bool
    vector: bool


def along_dims(
    script: Script,
    func: Recorded,
    member: Member,
    placement: Placement,
    body: Body,
    known: Guess,
    *,
    sums: Sequence[tuple[Member, Body]] = (),
    alone: bool = False,
    most: int = 1,
    rows: int = ROWS,
) -> Grid:
    """A kernel for a pure Func with the dimensions of a member of the pipeline, which does what
    ``body`` says: short inner dimensions are loops of a thread, others of blocks. ``alone``:
    nothing is computed at its threads; else ``most`` neighbours are a thread's, or so many ``rows``
    of light work, and they may have ``sums``. ``known``: sizes to be fast at.
    """
    func.compute_root()
    work = _Work(member, placement, body, values_of(member, body, sums), known, alone)
    args, outputs = func.args(), placement.program.outputs
    facts = [placement.extent(member.name, d) for d in range(len(args))]
    usual = _form(work, facts, most, rows)
    if not usual.lead and args and member.name not in outputs:
        aligned(func, args[0], VECTOR_BYTES // member.types[0].bytes)
    told = told_short(member, placement, known) if alone or sums else None
    if told is not None and usual.lanes == 1:
        short = _form(work, told, 1, 1)
        if short.lanes > 1 or short.vector or short.unrolled:
            if not alone:  # sums are at the same loop in both
                usual = replace(_form(work, facts, 1, 1), unrolled=usual.lead > 0)
            return _two_ways(script, func, work, short, usual)
    return _directives(script, func, args, work, usual)


def _two_ways(script: Script, func: Recorded, work: _Work, short: _Form, usual: _Form) -> Grid:
    """One for calls where what is told of short dimensions holds, the usual one for others."""
    args = func.args()
    told = zip(range(short.lead), short.extents, usual.extents, strict=False)
    new = {d: n for d, n, fact in told if n is not None and n != fact}
    where = script.where_extents(func, new)
    first = _directives(script, where, args, work, short)
    other = _directives(script, func, args, work, usual)
    said = " and ".join(f"{plain(args[d].name())} is {n}" for d, n in new.items())
    block = first.block if first.block is other.block else None
    return replace(first, block=block, text=f"{first.text} where {said}, else {other.text}")


def _form(work: _Work, extents: Extents, most: int, rows: int) -> _Form:
    member, body, known = work.member, work.body, work.known
    dims, bytes_ = range(len(extents)), member.types[0].bytes
    short = [e is not None and e <= SMALL for e in extents]
    lead = next((d for d in dims if not short[d]), 0)
    rest = sorted(dims[lead + 1 :], key=lambda d: short[d])
    if len(rest) > 1 and work.is_short(lead):  # beside one that is short, too, threads were idle
        rest.sort(key=work.is_short)
    first = work.alone and body.stage.number == 0
    lanes = 1
    if first and dims and not lead:
        lanes = lanes_of(body, member.args[0], bytes_, pixels=True)
    elif most > 1 and rest and not lead:
        lanes = most
    vector = work.alone and lead > 0 and _is_vector(extents[0], bytes_)
    if first and lead == 1:
        channel = member.args[0], extents[0] or 0
        lanes = lanes_of(body, member.args[lead], bytes_, channel=channel)
        if vector:  # as many pixels as a thread stores at once
            lanes = min(lanes, VECTOR_BYTES // (channel[1] * bytes_))
    if lanes > 1 and rest and not lead and _is_ragged(known, member, lead, lanes):
        lanes = 1
    own = {arg: n for arg, n in zip(member.args[:lead], extents, strict=False) if n}
    vector = vector and lanes == 1
    unrolled = lead > 0 and (lanes > 1 or (not vector and are_shared(work.values, own)))
    several = not lead and body.operations <= MODEST and lanes == 1
    return _Form(extents, lead, tuple(rest), rows if several else 1, lanes, unrolled, vector)


def _directives(
    script: Script, stage: Recorded, args: Sequence[Any], work: _Work, form: _Form
) -> Grid:
    serial, dims = args[: form.lead], (form.lead, *form.rest)
    if form.unrolled:
        for v in serial:
            stage.unroll(v)
    about = [work.known.extent(work.member, d) for d in dims] if form.rest else []
    turn = turn_of(work.body, work.member.args[0], form.extents[0]) if form.lanes > 1 else 0
    length = form.extents[form.lead] if args else None
    if form.vector:
        stage.vectorize(serial[0])
    near = _reads_again(work.body, work.member, form.rest[1:], work.placement)
    parallel = [args[d] for d in dims] if args else []
    far = form.rest and prod(about) > MOST_ACROSS  # a size that is asked for is depended on
    told = bool(far) and all(work.known.tells(work.member, d) for d in dims)
    grid = spread(
        script, stage, parallel, serial, form.rows, form.lanes, about, turn, length, near, told=told
    )
    if form.unrolled and form.lanes == 1:
        inner = new_variables(script, args[form.lead], "xi")[0]
        grid = replace(grid, inner=inner, each=tuple(serial))
    return grid


def _is_ragged(known: Guess, member: Member, d: int, lanes: int) -> bool:
    """Whether rows are told to be short and no vectors: most begin at no multiple, and what is
    left of each at both ends is much beside it.
    """
    extent = known.extent(member, d) if known.tells(member, d) else 0
    return extent % lanes > 0 and extent <= LANES * lanes


def _reads_again(body: Body, member: Member, outer: Sequence[int], placement: Placement) -> bool:
    """Whether all values of some dimensions, few as they are, read the same element."""
    if not outer or prod(placement.about(member.name, d) for d in outer) > SMALL:
        return False
    own = {member.args[d] for d in outer}
    read = [frozenset[str]().union(*map(free_vars, a.indices)) for a in body.reads()]
    for m in placement.at_threads_of(member):
        at = next((a.indices for a in body.reads() if a.func == m.name), ())
        names = dict(zip(m.args, map(free_vars, at), strict=False))
        for a in placement.bodies[m.name][-1].reads():
            mine = frozenset[str]().union(*map(free_vars, a.indices)) if a.func != m.name else own
            read.append(frozenset[str]().union(*(names.get(n, {n}) for n in mine)))
    return any(member.args[0] in names and not names & own for names in read)


def _is_vector(extent: int | None, bytes_: int) -> bool:
    """Whether the elements of a short dimension are loaded and stored at once, a pixel's say."""
    return extent is not None and extent in (2, 4, 8) and extent * bytes_ <= VECTOR_BYTES


def first_kernel(
    script: Script, func: Recorded, member: Member, placement: Placement, known: Guess
) -> Grid:
    """The kernel of what a Func is before its updates."""
    body, lanes, sizes = placement.bodies[member.name][0], 1, list[int]()
    if member.args:
        lanes = lanes_of(body, member.args[0], member.types[0].bytes)
    if lanes > 1 and len(member.args) > 1:
        sizes = [known.extent(member, d) for d in range(len(member.args))]
    return spread(script, func, func.args(), lanes=lanes, extents=sizes)
