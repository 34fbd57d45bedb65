"""Sums, maxima and the like, whose every element is computed from itself alone.

The thread that reads an element adds it up in registers. Where what is added lies side by side in
memory, the 32 threads of a warp take turns along it, and one adds their parts. Floats are added in
another order then, as everywhere in this compiler. What reads an argument once is shared by more
threads (``sweeps``).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt, prod
from typing import Any

from halide_bridge.names import plain
from halide_bridge.schedules.along import along_dims
from halide_bridge.schedules.kernels import (
    LANES,
    ROWS,
    WARPS,
    Grid,
    fused,
    fusible,
    spread,
)
from halide_bridge.schedules.lanes import lanes_of
from halide_bridge.schedules.recognise.facts import LARGEST, Body, Placement, side_by_side
from halide_bridge.schedules.recognise.program import Access, Member, Reduced, number
from halide_bridge.schedules.recognise.rows import SHORT, associative, chooses
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.schedules.rows import JOINED, Columns, columns
from halide_bridge.schedules.sizes import Guess
from halide_bridge.stock import GPU_SHARED
from selector.ir.nodes import Var
from selector.targets import VECTOR_BYTES

SEARCHED = 1024  # elements, about eight for each thread, that are looked through by a block
FULL = 1 << 18  # threads that a large GPU has at once
CHUNK = 4096  # elements of a line that are scattered by one thread, at most
UPDATE = 3  # times as long as an addition of a copy that an update of it takes


def at_thread(
    script: Script,
    member: Member,
    reader: Recorded,
    grid: Grid,
    access: Access,
    *,
    some: bool = False,
) -> None:
    """Compute a reduction in the registers of the thread that reads it, in ``some`` places only."""
    func = script.func(member.label, member.handle)
    func.compute_at(reader, grid.inner)
    several = max(grid.rows, grid.lanes) > 1
    name, args = grid.along.name() if several else "", func.args()
    if grid.each:
        _unroll_each(func, member, grid, access)
    elif some:  # Halide would say how many there are of each
        for a, i in zip(args, access.indices, strict=True):
            if i != Var(name):
                func.bound_extent(a, 1)
    if not several:
        return
    along = next(a for a, i in zip(args, access.indices, strict=True) if i == Var(name))
    func.bound_extent(along, max(grid.rows, grid.lanes))
    stages = [func, *(func.update(stage.number - 1) for stage in member.stages[1:])]
    for n, stage in enumerate(stages):
        reduced = func.rvars(n - 1) if n else ()
        if n:
            stage.reorder(along, *reduced)
        if grid.rows > 1:
            stage.unroll(along)
            continue
        stage.vectorize(along)
        for r in reduced:
            stage.unroll(r)


def _unroll_each(func: Recorded, member: Member, grid: Grid, access: Access) -> None:
    """Have a thread add up all elements along some dimensions of its reader at once."""
    names = {Var(v.name()) for v in grid.each}
    for n, stage in enumerate([func, *map(func.update, range(len(member.stages) - 1))]):
        free = member.stages[n].free
        places = zip(func.args(), access.indices, free, strict=True)
        own = [arg for arg, i, name in places if i in names and name is not None]
        if n and own:
            stage.reorder(*own, *func.rvars(n - 1))
        for arg in own:
            stage.unroll(arg)


def inner_sum(script: Script, member: Member, outer: Member) -> None:
    """Compute a short sum in the turns of an ``outer`` reduction that a thread takes."""
    func, turns = (script.func(m.label, m.handle) for m in (member, outer))
    func.compute_at(turns, turns.rvars(0)[0])
    for r in func.rvars(0):
        func.update(0).unroll(r)


def lanes_at_thread(
    members: list[Member], reader: Member, placement: Placement, of_reader: Body
) -> int:
    """Neighbours of a thread that computes short sums where it reads them: all terms are written
    out then, and what they share is loaded once. 1 where some sum is long.
    """
    bodies, lanes = [of_reader], VECTOR_BYTES
    for m in members:
        body = placement.bodies[m.name][-1]
        terms = prod(number(r.extent) or LARGEST for r in body.stage.reduced)
        at = next((a.indices for a in of_reader.reads() if a.func == m.name), ())
        own = [arg for arg, i in zip(m.args, at, strict=False) if i == Var(reader.args[0])]
        if len(m.stages) != 2 or len(m.types) != 1 or len(own) != 1 or body.predicate is not None:
            return 1
        bodies += [body] * terms if terms < LARGEST else [of_reader] * LARGEST
        lanes = min(lanes, lanes_of(body, own[0], reader.types[0].bytes))
    total = sum(b.operations for b in bodies)
    return lanes if total <= LARGEST else 1


def along_memory(member: Member, placement: Placement) -> tuple[int, Reduced] | None:
    """The dimension of its domain along which a reduction reads neighbours, and nothing else does:
    its number, too.
    """
    if len(member.stages) != 2 or not associative(member):
        return None
    body = placement.bodies[member.name][1]
    side = side_by_side(body)
    if side & set(member.args):
        return None
    for place, r in enumerate(body.stage.reduced):
        if r.name in side and (number(r.extent) or CHUNK) > SHORT:
            return place, r
    return None


def by_warps(
    script: Script, func: Recorded, reader: Recorded, place: int, reduced: tuple[Any, ...]
) -> Grid:
    """A warp for each element of ``reader``, which reads ``func`` at its own element. ``place``: of
    the dimension along memory among those ``reduced``.
    """
    y, *outer = reader.args()
    yo, yi = script.variables("yo", "yi")
    reader.compute_root().split(y, yo, yi, WARPS)
    z = fused(script, reader, outer, most=2)
    reader.reorder(yi, yo, *z).gpu_blocks(yo, *z).gpu_threads(yi)
    func.compute_at(reader, yi)
    shared_parts(script, func, reader, yo, reduced[place], LANES)
    return Grid(yi, text=f"{LANES} threads an element, {WARPS} elements a block")


def shared_parts(
    script: Script, func: Recorded, reader: Recorded, block: Any, reduced: Any, threads: int
) -> None:
    """Let so many threads add up parts of each element, in registers, and meet in shared memory."""
    ro, ri = script.rvars("ro", "ri")
    (u,) = script.variables("u")
    update = func.update(0)
    update.split(reduced, ro, ri, threads)
    parts = update.rfactor(ri, u)
    met = parts.in_(func)
    met.compute_at(reader, block).store_in(GPU_SHARED)
    *own, last = met.args()
    met.reorder(last, *own).gpu_threads(last, *own[:1])
    parts.compute_at(met, last)


def line_of(turns: int, bytes_: int, room: int) -> int:
    """Elements of a domain of one dimension, of about so many ``turns``, that have a copy of a Func
    of about so many bytes; all copies have ``room``. A line's updates wait for each other, as those
    of each of the threads do that add up the copies: both take about as long.
    """
    alike = 1 << isqrt(turns // (JOINED * UPDATE)).bit_length()
    return max(-(-turns * bytes_ // room), min(CHUNK, max(LANES, alike)))


def scattered(
    script: Script,
    func: Recorded,
    free: Sequence[int],
    along: Sequence[int],
    sizes: Sequence[int],
    line: int,
    *,
    declared: bool,
) -> Grid:
    """Updates of elements that data choose, along all dimensions but those that are ``free`` and
    those that variables of the domain go ``along``, about so long (``sizes``): each line of what is
    left of the domain, of so many elements where that has one dimension, has a copy of the Func.
    ``declared``: the user says how many elements there are, and wherever one of them is computed,
    Halide computes all.
    """
    domain = func.rvars(0)
    first, *others = (r for n, r in enumerate(domain) if n not in along)
    if others:
        outer = others[-1]
    else:
        outer, inner = script.rvars("rc", "rl")
        func.update(0).split(first, outer, inner, line)
    (v,) = script.variables("v")
    parts = func.update(0).rfactor(outer, v)
    parts.compute_root()
    spread(script, parts, parts.args())
    update, own = parts.update(0), parts.args()
    beside = [domain[n] for n in along]
    if free or beside:
        parallel, more = fusible([*(own[d] for d in free), *beside, v])
        left = [r for r in parts.rvars(0) if r.name() not in {b.name() for b in beside}]
        spread(script, update, parallel, [*left, *more], extents=[*sizes, CHUNK])
    else:
        vo, vi = script.variables("vo", "vi")
        update.split(v, vo, vi, LANES)
        update.reorder(*parts.rvars(0), vi, vo).gpu_blocks(vo).gpu_threads(vi)
    if declared:
        spread(script, func.compute_root(), func.args())
        spread(script, func.update(0), func.args())
    else:
        x = func.args()[0]
        columns(script, func.in_(), x, [Columns(func, x, outer, JOINED)], 1)
    return Grid(text=f"a copy of it for each line of {plain(outer.name())}, added up after")


def is_search(member: Member, known: Guess) -> bool:
    """Whether the best of long rows is looked for, which is work for the threads of a block."""
    if not member.args or member.fixed or not chooses(member):
        return False
    return prod(max(1, known.value(r.extent)) for r in member.stages[1].reduced) > SEARCHED


def searched(script: Script, func: Recorded) -> Grid:
    """A kernel whose blocks look for the best of a row each: as if one thread did, the compiler
    gives it more (``selector.lowering.choices``).
    """
    xo, xi = script.variables("xo", "xi")
    func.compute_root()
    spread(script, func, func.args())
    x, *outer = func.args()
    update = func.update(0).split(x, xo, xi, 1)
    z = fused(script, update, outer)
    update.reorder(*func.rvars(0), xi, xo, *z).gpu_blocks(xo, *z).gpu_threads(xi)
    return Grid(text="the threads of a block look for the best of a row")


def alone(script: Script, member: Member, placement: Placement, known: Guess) -> Grid:
    """A kernel that stores what its threads add up."""
    func = script.func(member.label, member.handle)
    stored = func.in_()
    body = placement.bodies[member.name][-1]
    outputs = prod(known.extent(member, d) for d in range(len(member.args)))
    rows = ROWS if outputs >= ROWS * FULL else 1
    sums = [(member, body)]
    grid = along_dims(script, stored, member, placement, body, known, sums=sums, rows=rows)
    for v, arg in zip(stored.args(), member.args, strict=True):
        if arg in member.bounds and any(v is each for each in grid.each):
            stored.bound_extent(v, member.bounds[arg])  # as the sum has it
    at_thread(script, member, stored, grid, Access(member.name, 0, tuple(map(Var, member.args))))
    return grid
