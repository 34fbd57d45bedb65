"""A GPU kernel for any stage, on CUDA cores.

Threads go along the innermost dimension first, so that neighbours read and write side by side; a
thread computes as many neighbours as fill a vector, or several rows of outputs, whose loads it
shares. What only updates in its own order
(scans, scatters) keeps it, one line a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from halide_bridge.names import plain
from halide_bridge.schedules.lanes import VECTOR, lanes_of, turn_of
from halide_bridge.schedules.recognise.facts import SMALL, Body, Placement
from halide_bridge.schedules.recognise.program import Access, Member, Stage, accesses
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.schedules.short import Extents, are_shared, told_short, values_of
from halide_bridge.schedules.sizes import Guess
from halide_bridge.stock import is_rvar
from selector.dataclass import dataclass
from selector.ir.affine import Affine
from selector.ir.nodes import Expr
from selector.ir.recurrences import ORDER
from selector.ir.traverse import free_vars

LANES, WARPS = 32, 8  # threads of a block along the two inner dimensions
LINE = 256  # threads of a block where there is one dimension
ROWS = 4  # outputs of a thread
FUSED = 2  # dimensions in one loop: of more Halide does not know that it is at one value of each
MODEST = 150  # operations of an output: beyond that a thread computes one


@dataclass(frozen=True, slots=True)
class Grid:
    """Where the loops of a stage went: ``inner`` is the innermost one around the ``rows`` outputs
    of a thread along the dimension ``along``, or its ``lanes``; ``block``: the innermost one over
    blocks; ``each``: dimensions of which it has all; ``text`` is for the report.
    """

    inner: Any = None
    rows: int = 1
    lanes: int = 1
    along: Any = None
    block: Any = None
    text: str = "one thread"
    each: tuple[Any, ...] = ()


def spread(
    script: Script,
    stage: Recorded,
    parallel: Sequence[Any],
    serial: Sequence[Any] = (),
    rows: int = 1,
    lanes: int = 1,
    extents: Sequence[int] = (),
    turn: int = 0,
    length: int | None = None,
    near: bool = False,
) -> Grid:
    """Give each block and thread its part of a stage. ``parallel``: dimensions, innermost first,
    about so long (``extents``); ``serial``: loops inside a thread, innermost first; ``rows`` along
    the second dimension, or ``lanes`` along the first, of which a thread has those of every
    ``turn``, if there is one. ``length``: of the first dimension, where it is certain. ``near``:
    blocks next to each other are those of the outer dimensions, which read the same.
    """
    if not parallel:
        stage.gpu_single_thread()
        return Grid()
    x, *others = parallel
    if not others:
        return _line(script, stage, x, serial, 1 if serial else rows, lanes)
    y, *outer = others
    serial, outer = (*serial, *outer[FUSED:]), outer[:FUSED]
    turns: tuple[Any, ...] = ()
    if turn:
        xt, xp = _new(script, x, "xt", "xp")
        stage.split(x, xt, xp, turn).unroll(xt)
        x, turns, length, extents = xp, (xt,), turn, (turn, *extents[1:])
    xo, xi = _new(script, x, "xo", "xi")
    yo, yi, yu = _new(script, y, "yo", "yi", "yu")
    wide, high = _threads(extents, rows, lanes)
    inner = (*vectors(script, stage, x, wide, lanes), *turns, *serial)
    stage.split(y, yo, yi, high * rows)
    if rows > 1:
        stage.split(yi, yi, yu, rows)
        inner = (*inner, yu)
    one = length is not None and length <= wide * lanes  # block along the first dimension
    z = tuple(outer) if one else fused(script, stage, outer)
    plane = (yo,) if one else (xo, yo)
    blocks = (*z, *plane) if near else (*plane, *z)
    stage.reorder(*inner, xi, yi, *((xo,) if one else ()), *blocks)
    if rows > 1:
        stage.unroll(yu)
    stage.gpu_blocks(*blocks).gpu_threads(xi, yi)
    text = f"{wide} x {high} threads" + (f", {rows} rows each" if rows > 1 else "")
    text += f", {lanes} neighbours each" if lanes > 1 else ""
    text += f" in every {turn}" if turn else ""
    first, along = serial[0] if serial else xi, y if rows > 1 else parallel[0]
    return Grid(first, rows, lanes, along, blocks[0], text)


def _threads(extents: Sequence[int], rows: int, lanes: int) -> tuple[int, int]:
    """Those of a block along the two inner dimensions: where the first is short, more along the
    second, as many as are least too many.
    """
    if not extents:
        return LANES, WARPS
    wide = min(LANES, 1 << (-(-extents[0] // lanes) - 1).bit_length())
    most = LANES * WARPS // wide
    if wide == LANES:  # fewer where there are few along the second
        most = min(most, 1 << (-(-extents[1] // rows) - 1).bit_length())
        return LANES * WARPS // most, most
    high = [h for h in (most, most // 2, most // 4) if h == most or h >= WARPS]
    return wide, min(high, key=lambda h: -(-extents[1] // (h * rows)) * h)


def vectors(script: Script, stage: Recorded, x: Any, threads: int, lanes: int) -> tuple[Any, ...]:
    """Split a dimension into blocks of so many threads (``xo``, ``xi``) and vectors, whose variable
    is returned, if there are any.
    """
    xo, xi, xl = _new(script, x, "xo", "xi", "xl")
    stage.split(x, xo, xi, threads * lanes)
    if lanes == 1:
        return ()
    stage.split(xi, xi, xl, lanes).vectorize(xl)
    return (xl,)


def _line(
    script: Script, stage: Recorded, x: Any, serial: Sequence[Any], rows: int, lanes: int
) -> Grid:
    xo, xi, xu = _new(script, x, "xo", "xi", "xu")
    if lanes > 1:
        (xl,) = vectors(script, stage, x, LINE, lanes)
        stage.reorder(xl, *serial, xi, xo).gpu_blocks(xo).gpu_threads(xi)
        text = f"{LINE} threads, {lanes} outputs each"
        return Grid((*serial, xi)[0], block=xo, text=text)
    stage.split(x, xo, xi, LINE * rows)
    inner = tuple(serial)
    if rows > 1:
        stage.split(xi, xu, xi, LINE)
        inner = (xu,)
    if inner:
        stage.reorder(*inner, xi, xo)
    if rows > 1:
        stage.unroll(xu)
    stage.gpu_blocks(xo).gpu_threads(xi)
    text = f"{LINE} threads" + (f", {rows} outputs each" if rows > 1 else "")
    return Grid((*serial, xu if rows > 1 else xi)[0], block=xo, text=text)


def fused(script: Script, stage: Recorded, outer: Sequence[Any], most: int = 1) -> tuple[Any, ...]:
    """At most one block dimension for all that is left; ``most`` where these are too many for one
    loop (``FUSED``).
    """
    left = list(outer)
    loops = most if len(left) > FUSED else 1
    while len(left) > loops:
        (z,) = _new(script, left[0], f"z{len(left)}")
        stage.fuse(left[0], left[1], z)
        left = [z, *left[2:]] if loops == 1 else [*left[2:], z]
    return tuple(left)


def _new(script: Script, like: Any, *names: str) -> tuple[Any, ...]:
    """New variables of the kind of another one."""
    if is_rvar(like):
        return script.rvars(*(f"r{name}" for name in names))
    return script.variables(*names)


@dataclass(frozen=True, slots=True)
class Form:
    """Which dimensions of a Func are a thread's, and which blocks': ``lead`` is the innermost one of
    threads, ``rest`` are those behind it; those inside are loops of a thread, ``unrolled`` or one
    ``vector``.
    """

    extents: Extents
    lead: int
    rest: tuple[int, ...]
    rows: int
    lanes: int
    unrolled: bool
    vector: bool

    @property
    def inside(self) -> bool:
        """Whether a thread gains by having all of the inner dimensions."""
        return self.lead > 0 and (self.lanes > 1 or self.vector or self.unrolled)


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
    args, values = func.args(), values_of(member, body, sums)
    facts = [placement.extent(member.name, d) for d in range(len(args))]

    def form(extents: Extents, most: int, rows: int) -> Form:
        return _form(member, placement, body, known, values, extents, alone, most, rows)

    usual = form(facts, most, rows)
    if not usual.lead and args and member.name not in placement.program.outputs:
        aligned(func, args[0], VECTOR // member.types[0].bytes)
    told = told_short(member, placement, known) if alone or sums else None
    if told is not None and usual.lanes == 1:
        short = form(told, 1, 1)
        usual = usual if alone else form(facts, 1, 1)
        if short.inside and (alone or usual.unrolled or not usual.lead):
            new = {d: n for d, n in enumerate(told[: short.lead]) if n != facts[d] and n}
            where = script.where_extents(func, new)
            first = _spread(script, where, args, short, member, placement, body, known)
            other = _spread(script, func, args, usual, member, placement, body, known)
            said = " and ".join(f"{plain(args[d].name())} is {n}" for d, n in new.items())
            block = first.block if first.block is other.block else None
            return replace(first, block=block, text=f"{first.text} where {said}, else {other.text}")
    return _spread(script, func, args, usual, member, placement, body, known)


def _form(
    member: Member,
    placement: Placement,
    body: Body,
    known: Guess,
    values: Sequence[Expr],
    extents: Extents,
    alone: bool,
    most: int,
    rows: int,
) -> Form:
    """The form of such a kernel with dimensions of certain ``extents``; ``values``: what a thread
    computes of an element.
    """
    dims, bytes_ = range(len(extents)), member.types[0].bytes
    short = [e is not None and e <= SMALL for e in extents]
    lead = next((d for d in dims if not short[d]), 0)
    rest = sorted(dims[lead + 1 :], key=lambda d: short[d])
    if len(rest) > 1 and _is_told_short(known, member, lead):  # others would leave threads idle
        rest.sort(key=lambda d: _is_told_short(known, member, d))
    first = alone and body.stage.number == 0
    lanes = 1
    if first and dims and not lead:
        lanes = lanes_of(body, member.args[0], bytes_, pixels=True)
    elif most > 1 and rest and not lead:
        lanes = most
    vector = alone and lead > 0 and _is_vector(extents[0], bytes_)
    if first and lead == 1 and rest:
        channel = member.args[0], extents[0] or 0
        lanes = lanes_of(body, member.args[lead], bytes_, channel=channel)
        if vector:  # as many pixels as a thread stores at once
            lanes = min(lanes, VECTOR // (channel[1] * bytes_))
    if lanes > 1 and rest and not lead and _is_ragged(known, member, lead, lanes):
        lanes = 1
    own = {arg: n for arg, n in zip(member.args[:lead], extents, strict=False) if n}
    vector = vector and lanes == 1
    unrolled = lead > 0 and (lanes > 1 or (not vector and are_shared(values, own)))
    several = not lead and body.operations <= MODEST and lanes == 1
    return Form(extents, lead, tuple(rest), rows if several else 1, lanes, unrolled, vector)


def _is_told_short(known: Guess, member: Member, d: int) -> bool:
    return known.tells(member, d) and known.extent(member, d) <= SMALL


def _spread(
    script: Script,
    stage: Recorded,
    args: Sequence[Any],
    form: Form,
    member: Member,
    placement: Placement,
    body: Body,
    known: Guess,
) -> Grid:
    """The directives for a form."""
    serial, dims = args[: form.lead], (form.lead, *form.rest)
    if form.unrolled:
        for v in serial:
            stage.unroll(v)
    about = [known.extent(member, d) for d in dims] if form.rest else []
    turn = turn_of(body, member.args[0], form.extents[0]) if form.lanes > 1 else 0
    length = form.extents[form.lead] if args else None
    if form.vector:
        stage.vectorize(serial[0])
    near = _reads_again(body, member, form.rest[1:], placement)
    parallel = [args[d] for d in dims] if args else []
    grid = spread(
        script, stage, parallel, serial, form.rows, form.lanes, about, turn, length, near
    )
    if form.unrolled and form.lanes == 1:
        grid = replace(grid, inner=_new(script, args[form.lead], "xi")[0], each=tuple(serial))
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
    return extent is not None and extent in (2, 4, 8) and extent * bytes_ <= VECTOR


def aligned(func: Recorded, x: Any, elements: int) -> None:
    """Rows of what is stored begin at multiples of so many elements, for those who read them."""
    if elements > 1:
        func.align_bounds(x, elements).align_storage(x, elements)


def update_kernel(script: Script, func: Recorded, stage: Stage, placement: Placement) -> Grid:
    """An update of a Func that is stored: whatever may run at once does, in the order of memory;
    all else in its own order.
    """
    rvars = func.rvars(stage.number - 1) if stage.reduced else ()
    own = (a for e in stage.values for a in accesses(e) if a.func == stage.func)
    back = {r for access in own for r in _looked_back(stage, access)}
    pairs = zip(stage.reduced, rvars, strict=True)
    free = {r.name: v for r, v in pairs if r.free and r.name not in back}
    own = dict(zip(placement.program.members[stage.func].args, func.args(), strict=True))
    parallel: list[Any] = []
    for index, arg in zip(stage.indices, stage.free, strict=True):
        if arg is not None:
            parallel.append(own[arg])
        else:
            parallel += [free.pop(name) for name in sorted(free_vars(index) & free.keys())]
    serial = [v for v in rvars if not any(_same(v, p) for p in parallel)]
    kinds = {is_rvar(p) for p in parallel[2:]}
    if len(kinds) > 1:  # such loops cannot be fused
        kept = [p for p in parallel[2:] if not is_rvar(p)]
        serial += [p for p in parallel[2:] if is_rvar(p)]
        parallel = [*parallel[:2], *kept]
    return spread(script, func.update(stage.number - 1), parallel, serial)


def _looked_back(stage: Stage, read: Access) -> set[str]:
    """Variables that a recurrence goes along, in so few steps that none reads what another
    stores.
    """
    found = set[str]()
    for stored, index in zip(stage.indices, read.indices, strict=True):
        back = (Affine.of(stored) - Affine.of(index)).constant
        found |= free_vars(stored) if back and abs(back) <= ORDER else set()
    return found


def _same(a: Any, b: Any) -> bool:
    return is_rvar(a) == is_rvar(b) and a.name() == b.name()
