"""Filters of columns whose blocks make what they read: rows, or columns, of another filter, which
then never lie in memory. Both have gone to tensor units by themselves before; that it is faster so
is the machine model's to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from halide_bridge.schedules.candidates import window_shape
from halide_bridge.schedules.plan import Plan
from halide_bridge.schedules.recognise.facts import Place, Placement, place
from halide_bridge.schedules.recognise.narrow import readers_of
from halide_bridge.schedules.recognise.program import Member, Program
from halide_bridge.schedules.recognise.windows import Window
from selector.families import windows
from selector.ir.nodes import Var


@dataclass(frozen=True, slots=True)
class Pair:
    """A filter of columns, and the one that makes its image, by stable names; the best tiling, the
    box that its blocks make, and the microseconds that this saves.
    """

    columns: str
    before: str
    tiling: windows.Tiling
    box: windows.Tiling
    gain: float


def pairs(program: Program, plan: Plan) -> list[Pair]:
    """Those that are worth it by the model, the best first."""
    placement = place(program, plan.stored)
    found = (_pair(m, n, program, plan) for m, n in _chained(program, placement, plan))
    return sorted((p for p in found if p is not None), key=lambda p: -p.gain)


def _chained(program: Program, placement: Placement, plan: Plan) -> Iterator[tuple[Member, Member]]:
    """Filters on tensor units, and those whose results they alone read, as these are stored."""
    for member in program:
        found, tiling = plan.tensor.get(member.label, (None, None))
        if not isinstance(found, Window) or not isinstance(tiling, windows.Tiling):
            continue
        kept = program.members[found.image]
        sums = [name for name, r in placement.reader.items() if r == kept.name]
        if readers_of(kept, program) != (member,) or len(sums) != 1:
            continue
        before = program.members[sums[0]]
        own = tuple(map(Var, before.args))
        reads = [
            a.indices for b in placement.bodies[kept.name] for a in b.reads() if a.func == sums[0]
        ]
        alike = before.args == kept.args and all(indices == own for indices in reads)
        if placement.places[kept.name] is Place.KERNEL and alike and before.label in plan.tensor:
            yield member, before


def _pair(member: Member, before: Member, program: Program, plan: Plan) -> Pair | None:
    (found, tiling), (first, alone) = plan.tensor[member.label], plan.tensor[before.label]
    if not isinstance(found, Window) or not isinstance(first, Window):
        return None
    if not isinstance(tiling, windows.Tiling) or not isinstance(alone, windows.Tiling):
        return None
    shape = window_shape(found, program, plan.known)
    image = replace(window_shape(first, program, plan.known), result_bytes=shape.bytes)
    if not shape.down or found.first or first.first or image.converted:
        return None
    ranks = windows.ranked_made(shape, image, plan.machine)
    if not ranks:
        return None
    apart = windows.estimate(tiling, shape, plan.machine).microseconds
    apart += windows.estimate(alone, image, plan.machine).microseconds
    microseconds, best, box = ranks[0]
    if microseconds >= apart:
        return None
    return Pair(member.label, before.label, best, box, apart - microseconds)
