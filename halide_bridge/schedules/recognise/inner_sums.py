"""Short sums that a longer reduction reads once in each of its turns: the thread that takes the
turn computes them, and nobody stores them.

    distance[k, n] = sum over d < 8 of (points[d, n] - centres[d, k])^2
    best[n] = argmin over k of distance[k, n]
"""

from __future__ import annotations

from halide_bridge.schedules.recognise.facts import Place, Placement
from halide_bridge.schedules.recognise.program import Access, Member, number
from selector.ir.nodes import Var
from selector.ir.traverse import free_vars

FEW = 16  # terms: all are written out, and what they read of the thread's own stays in registers


def place_inner_sums(found: Placement, apart: frozenset[str]) -> None:
    """Decide it for the sums of a pipeline that have a kernel of their own, but for those that are
    to be ``apart`` (labels).
    """
    for member in found.program:
        kernel = found.places[member.name] is Place.KERNEL and member.reduction
        if not kernel or member.label in apart or member.name in found.program.outputs:
            continue
        reads = _reads_of(member, found)
        if len(reads) != 1 or not _is_short(member, found):
            continue
        ((reader, access),) = reads
        if _is_turn(found.program.members[reader], access, found):
            found.places[member.name] = Place.THREAD
            found.reader[member.name] = reader


def _reads_of(member: Member, found: Placement) -> list[tuple[str, Access]]:
    return [
        (name, access)
        for name, bodies in found.bodies.items()
        if name != member.name
        for access in dict.fromkeys(a for body in bodies for a in body.reads())
        if access.func == member.name
    ]


def _is_short(member: Member, found: Placement) -> bool:
    """Whether it has few terms, and what it reads is no window: neighbours share nothing then."""
    if len(member.stages) != 2 or len(member.types) != 1:
        return False
    body, terms = found.bodies[member.name][1], 1
    for r in body.stage.reduced:
        terms *= number(r.extent) or FEW + 1
    reduced, args = {r.name for r in body.stage.reduced}, set(member.args)
    indices = [free_vars(i) for a in body.reads() for i in a.indices if a.func != member.name]
    return terms <= FEW and not any(i & reduced and i & args for i in indices)


def _is_turn(reader: Member, access: Access, found: Placement) -> bool:
    """Whether a thread alone takes the turns of a reduction, and reads another element in each."""
    if found.places[reader.name] is not Place.THREAD or len(reader.stages) != 2:
        return False
    turns = {*reader.args, *(r.name for r in reader.stages[1].reduced)}
    names = [i.name for i in access.indices if isinstance(i, Var)]
    return len(names) == len(access.indices) == len(turns) and {*names} == turns
