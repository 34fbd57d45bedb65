"""Sums, maxima and the like, whose every element is computed from itself alone.

The thread that reads an element adds it up in registers. Where what is added lies side by side in
memory, the 32 threads of a warp take turns along it, and one adds their parts. Where there are few
elements, or none beside the one, blocks add up parts in a kernel before. Floats are added in
another order then, as everywhere in this compiler.
"""

from __future__ import annotations

from typing import Any

from halide_bridge.names import plain
from halide_bridge.schedules.kernels import LANES, LINE, WARPS, Grid, along_dims, fused, spread
from halide_bridge.schedules.recognise.facts import Placement, side_by_side
from halide_bridge.schedules.recognise.program import Access, Member, Reduced, accesses, number
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.stock import GPU_SHARED
from selector.ir.nodes import Binary, BinaryOp, Call, Var

CHUNK = 4096  # elements of a sum that a warp adds up, where there is nothing else to share
SHORT = 16  # elements of a sum that are not worth a warp
_ASSOCIATIVE = frozenset(
    {BinaryOp.ADD, BinaryOp.MUL, BinaryOp.MIN, BinaryOp.MAX, BinaryOp.AND, BinaryOp.OR}
)


def at_thread(script: Script, member: Member, reader: Recorded, grid: Grid, access: Access) -> None:
    """Compute a reduction in the registers of the thread that reads it."""
    func = script.func(member.label, member.handle)
    func.compute_at(reader, grid.inner)
    if grid.rows == 1:
        return
    name = grid.along.name()
    args = func.args()
    along = next(a for a, i in zip(args, access.indices, strict=True) if i == Var(name))
    func.bound_extent(along, grid.rows).unroll(along)
    for stage in member.stages[1:]:
        update = func.update(stage.number - 1)
        update.reorder(along, *func.rvars(stage.number - 1)).unroll(along)


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


def associative(member: Member) -> bool:
    """Whether the one value is combined with others by one operation, in any order."""
    (update,) = member.stages[1:]
    if len(update.values) != 1:
        return False
    match update.values[0]:
        case Binary(op, Call() as a, b) if op in _ASSOCIATIVE:
            first, rest = a, b
        case Binary(op, a, Call() as b) if op in _ASSOCIATIVE:
            first, rest = b, a
        case _:
            return False
    own = Access(member.name, 0, update.indices)
    return next(accesses(first), None) == own and all(a.func != member.name for a in accesses(rest))


def by_warps(
    script: Script,
    func: Recorded,
    reader: Recorded,
    place: int,
    reduced: tuple[Any, ...],
    order: tuple[Any, ...] = (),
) -> Grid:
    """A warp for each element of ``reader``, which reads ``func`` at its own element. ``place``: of
    the dimension along memory among those ``reduced``.
    """
    y, *outer = order or reader.args()
    yo, yi = script.variables("yo", "yi")
    reader.compute_root().split(y, yo, yi, WARPS)
    z = fused(script, reader, outer)
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


def in_parts(script: Script, func: Recorded, place: int) -> Grid:
    """Few elements of much: warps add up parts of them in a kernel before. ``place``: of the
    dimension along memory in the domain.
    """
    first, *others = func.rvars(0)
    if others:
        outer = others[-1] if place != len(others) else first
        place -= outer is first
    else:
        outer, inner = script.rvars("rc", "rl")
        func.update(0).split(first, outer, inner, CHUNK)
    (v,) = script.variables("v")
    parts = func.update(0).rfactor(outer, v)
    stored = parts.in_()
    *own, last = stored.args()
    stored.reorder(last, *own)
    grid = by_warps(script, parts, stored, place, parts.rvars(0), (last, *own))
    ro, ri = script.rvars("rp", "rq")
    (u,) = script.variables("w")
    func.update(0).split(outer, ro, ri, LINE)
    again = func.update(0).rfactor(ri, u)
    kept = again.in_()
    kept.compute_root()
    *own, last = kept.args()
    lines = spread(script, kept, (last, *own))
    again.compute_at(kept, lines.inner)
    return grid


def scattered(script: Script, func: Recorded) -> Grid:
    """Updates of elements that data choose: each line of the domain has a copy of the Func."""
    first, *others = func.rvars(0)
    if others:
        outer = others[-1]
    else:
        outer, inner = script.rvars("rc", "rl")
        func.update(0).split(first, outer, inner, CHUNK)
    (v,) = script.variables("v")
    parts = func.update(0).rfactor(outer, v)
    parts.compute_root()
    spread(script, parts, parts.args())
    vo, vi = script.variables("vo", "vi")
    update = parts.update(0)
    update.split(v, vo, vi, LANES)
    update.reorder(*parts.rvars(0), vi, vo).gpu_blocks(vo).gpu_threads(vi)
    return Grid(text=f"a copy of it for each line of {plain(outer.name())}, added up after")


def alone(script: Script, member: Member, placement: Placement) -> Grid:
    """A kernel that stores what its threads add up."""
    func = script.func(member.label, member.handle)
    stored = func.in_()
    grid = along_dims(script, stored, member, placement, placement.bodies[member.name][-1])
    at_thread(script, member, stored, grid, Access(member.name, 0, tuple(map(Var, member.args))))
    return grid
