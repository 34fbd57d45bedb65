"""Loops of a CPU for any stage: vectors along the innermost dimension that is not short, the outer
ones on all cores.

Sums are added up where a vector of what reads them is computed; where what they add lies side by
side in memory, in a vector for each, whose lanes are added last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from halide_bridge.schedules.recognise.facts import SMALL, Placement
from halide_bridge.schedules.recognise.program import Access, Member, Stage
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.schedules.reductions import along_memory
from halide_bridge.stock import is_rvar
from selector.dataclass import dataclass
from selector.ir.nodes import Var

VECTOR = 64  # bytes; of longer elements the compiler takes several registers
LINE = 4096  # elements of a line that a core has at a time


@dataclass(frozen=True, slots=True)
class Loops:
    """Those of a stage: ``inner`` is the innermost one around its vectors of so many ``lanes``
    along dimension ``lead``. ``text`` is for the report.
    """

    inner: Any = None
    lead: int = 0
    lanes: int = 1
    text: str = "one core"


def by_vectors(script: Script, func: Recorded, member: Member, placement: Placement) -> Loops:
    """Loops of a pure Func that has a member's dimensions."""
    func.compute_root()
    short = [
        e is not None and e <= SMALL
        for e in (placement.extent(member.name, d) for d in range(len(member.args)))
    ]
    lead = next((d for d, s in enumerate(short) if not s), 0)
    return _spread(script, func, func.args(), lead, (), VECTOR // member.types[0].bytes)


def _spread(
    script: Script,
    stage: Recorded,
    args: Sequence[Any],
    lead: int,
    serial: Sequence[Any],
    lanes: int,
) -> Loops:
    """``args``: dimensions whose elements do not wait for each other, innermost first; ``serial``:
    loops inside all but the vectors.
    """
    if not args:
        return Loops()
    x, inner, outer = args[lead], (*args[:lead], *serial), args[lead + 1 :]
    new = script.rvars if is_rvar(x) else script.variables
    xo, xi, xl = new("xo", "xi", "xl")
    text = f"vectors of {lanes}, on all cores"
    if not outer:
        stage.split(x, xo, xi, LINE).split(xi, xi, xl, lanes)
        stage.reorder(xl, *inner, xi, xo).vectorize(xl).parallel(xo)
        return Loops(xi, lead, lanes, text)
    stage.split(x, xo, xl, lanes)
    stage.reorder(xl, *inner, xo, *outer).vectorize(xl)
    for loop in outer:
        stage.parallel(loop)
    return Loops(xo, lead, lanes, text)


def sum_at(script: Script, member: Member, reader: Recorded, loops: Loops, access: Access) -> None:
    """Add up a reduction where a vector of its reader is computed, which reads it so."""
    func = script.func(member.label, member.handle)
    func.compute_at(reader, loops.inner)
    name = reader.args()[loops.lead].name()
    own = zip(func.args(), access.indices, strict=True)
    along = next(a for a, i in own if i == Var(name))
    func.bound_extent(along, loops.lanes).vectorize(along)
    for number in range(len(member.stages) - 1):
        func.update(number).reorder(along, *func.rvars(number)).vectorize(along)


def rows(
    script: Script, member: Member, reader: Recorded | None, placement: Placement
) -> Loops | None:
    """Add up what lies side by side in memory, where ``reader`` has an element (None: where there
    is but one); None if it does not.
    """
    found = along_memory(member, placement)
    if found is None:
        return None
    func = script.func(member.label, member.handle)
    lanes = VECTOR // member.types[0].bytes
    ro, ri = script.rvars("ro", "ri")
    (u,) = script.variables("u")
    inner: Any = None
    if reader is None:
        func.compute_root()
    else:
        inner, *_ = args = reader.compute_root().args()
        for loop in args:
            reader.parallel(loop)
        func.compute_at(reader, inner)
    reduced = func.rvars(0)[found[0]]
    parts = func.update(0).split(reduced, ro, ri, lanes).rfactor(ri, u)
    if reader is None:
        parts.compute_root()
    else:
        parts.compute_at(reader, inner)
    parts.vectorize(u).update(0).reorder(u, *parts.rvars(0)).vectorize(u)
    where = "one core" if reader is None else "on all cores"
    return Loops(inner, text=f"rows added up in vectors of {lanes}, {where}")


def update(script: Script, func: Recorded, stage: Stage, member: Member) -> Loops:
    """An update of a Func that is stored: all that it may do at once, the rest in its own order."""
    own = dict(zip(member.args, func.args(), strict=True))
    free = [own[name] for name in stage.free if name is not None]
    serial = func.rvars(stage.number - 1) if stage.reduced else ()
    of = func.update(stage.number - 1)
    if not free:
        return Loops()
    first, *others = member.types
    # Neighbours wait for each other, or values of a tuple for each other's tests.
    if stage.free[0] is None or others:
        of.reorder(*serial, *free)
        for loop in free:
            of.parallel(loop)
        return Loops(text="on all cores")
    return _spread(script, of, free, 0, serial, VECTOR // first.bytes)
