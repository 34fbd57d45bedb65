"""Filters whose blocks make what they read: rows, or columns, of other filters, which then never
lie in memory. All have gone to tensor units by themselves before; that it is faster so is the
machine model's to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from halide_bridge.schedules.candidates import window_shape
from halide_bridge.schedules.plan import Plan
from halide_bridge.schedules.recognise.facts import Place, Placement, place
from halide_bridge.schedules.recognise.program import Member, Program
from halide_bridge.schedules.recognise.windows import CHANNELS, Window, phases_of
from selector.dataclass import dataclass
from selector.families import transforms, windows
from selector.ir.nodes import Var

TRIED = 3  # tilings of transforms, should the first be refused


@dataclass(frozen=True, slots=True)
class Chain:
    """A filter and those that make its image, by stable names, the first one what it reads; the
    best tiling, those of the filters before, and the microseconds saved.
    """

    last: str
    before: tuple[str, ...]
    tiling: windows.Tiling | transforms.Tiling
    boxes: tuple[windows.Tiling, ...]
    gain: float


def chains(program: Program, plan: Plan) -> list[Chain]:
    """Those that are worth it by the model, the best first."""
    placement = place(program, plan.stored, plan.known)
    found: list[Chain] = []
    for member in program:
        before: tuple[Member, ...] = ()
        for maker in _makers(member, program, placement, plan):
            before = (*before, maker)
            found += _chains((member, *before), program, placement, plan)
    return sorted((c for c in found if c.gain > 0), key=lambda chain: -chain.gain)


def channels_stored(member: Member, placement: Placement) -> int:
    """Channels of a pixel that lie next to each other in what reads a filter; 1 where rows do, 0
    where their number is not known.
    """
    name = placement.reader.get(member.name)
    reader = member if name is None else placement.program.members[name]
    if reader.args[0] == member.args[0]:
        return 1
    count = placement.extent(reader.name, 0) or 0
    return count if count <= CHANNELS else 0


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


def _chains(
    members: Sequence[Member], program: Program, placement: Placement, plan: Plan
) -> Iterator[Chain]:
    """Of a filter and those before it, if that is worth it: the best tiling, and some that may be
    taken should it be refused.
    """
    known = [(m, w) for m in members if (w := _window(m, plan)) is not None]
    if len(known) < len(members):
        return
    shapes = [window_shape(w, program, plan.known) for _, w in known]
    bytes_ = (shapes[0].result_bytes, *(shape.bytes for shape in shapes))
    shapes = [replace(s, result_bytes=n) for s, n in zip(shapes, bytes_, strict=False)]
    alone = [plan.tensor[m.label][1] for m in members]
    tilings = tuple(t for t in alone if isinstance(t, windows.Tiling))
    apart = sum(
        windows.estimate(*each, plan.machine).microseconds - plan.machine.behind
        for each in zip(tilings, shapes, strict=True)
    )
    last, *before = (m.label for m in members)
    for microseconds, tiling, boxes in windows.ranked_made(shapes[0], shapes[1:], plan.machine)[:1]:
        gain = apart + plan.machine.behind - microseconds
        yield Chain(last, tuple(before), tiling, boxes, gain)
    channels = channels_stored(members[0], placement)
    if channels and all(phases_of(m, w, program) for m, w in known):
        for microseconds, best in transforms.ranked(shapes, channels, plan.machine)[:TRIED]:
            gain = apart + plan.machine.behind - microseconds
            yield Chain(last, tuple(before), best, tilings[1:], gain)
