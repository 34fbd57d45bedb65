"""Filters of columns whose blocks make what they read: rows, or columns, of other filters, which
then never lie in memory. All have gone to tensor units by themselves before; that it is faster so
is the machine model's to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from halide_bridge.schedules.candidates import window_shape
from halide_bridge.schedules.plan import Plan
from halide_bridge.schedules.recognise.facts import Place, Placement, place
from halide_bridge.schedules.recognise.program import Member, Program
from halide_bridge.schedules.recognise.windows import Window
from selector.families import windows
from selector.ir.nodes import Var


@dataclass(frozen=True, slots=True)
class Chain:
    """A filter of columns and those that make its image, by stable names, the first one what the
    columns read; the best tiling, the boxes that its blocks make, and the microseconds saved.
    """

    columns: str
    before: tuple[str, ...]
    tiling: windows.Tiling
    boxes: tuple[windows.Tiling, ...]
    gain: float


def chains(program: Program, plan: Plan) -> list[Chain]:
    """Those that are worth it by the model, the best first."""
    placement = place(program, plan.stored)
    found: list[Chain] = []
    for member in program:
        before: tuple[Member, ...] = ()
        for maker in _makers(member, program, placement, plan):
            before = (*before, maker)
            chain = _chain(member, before, program, plan)
            found += [] if chain is None else [chain]
    return sorted(found, key=lambda chain: -chain.gain)


def _makers(member: Member, program: Program, placement: Placement, plan: Plan) -> Iterator[Member]:
    """Filters that make the image of one, of the first of these, and so on."""
    while (found := _window(member, plan)) is not None:
        kept = program.members[found.image]
        sums = [name for name, reader in placement.reader.items() if reader == kept.name]
        if program.readers(kept) != (member,) or len(sums) != 1:
            return
        member = program.members[sums[0]]
        own = tuple(map(Var, member.args))
        reads = [a for body in placement.bodies[kept.name] for a in body.reads()]
        alike = all(a.indices == own for a in reads if a.func == member.name)
        if placement.places[kept.name] is not Place.KERNEL or member.args != kept.args or not alike:
            return
        yield member


def _window(member: Member, plan: Plan) -> Window | None:
    """The filter that a sum is, if warps have it whose windows lie along the first dimensions."""
    found, tiling = plan.tensor.get(member.label, (None, None))
    if not isinstance(found, Window) or not isinstance(tiling, windows.Tiling):
        return None
    return None if found.first or found.converted else found


def _chain(
    member: Member, before: tuple[Member, ...], program: Program, plan: Plan
) -> Chain | None:
    known = [(m, w) for m in (member, *before) if (w := _window(m, plan)) is not None]
    if len(known) <= len(before):
        return None
    shapes = [window_shape(w, program, plan.known) for _, w in known]
    bytes_ = (shapes[0].result_bytes, *(shape.bytes for shape in shapes))
    shapes = [replace(s, result_bytes=n) for s, n in zip(shapes, bytes_, strict=False)]
    ranks = windows.ranked_made(shapes[0], shapes[1:], plan.machine)
    if not ranks:
        return None
    apart = 0.0
    for (m, _), shape in zip(known, shapes, strict=True):
        tiling = plan.tensor[m.label][1]
        assert isinstance(tiling, windows.Tiling)
        apart += windows.estimate(tiling, shape, plan.machine).microseconds
    microseconds, best, boxes = ranks[0]
    if microseconds >= apart:
        return None
    names = tuple(m.label for m in before)
    return Chain(member.label, names, best, boxes, apart - microseconds)
