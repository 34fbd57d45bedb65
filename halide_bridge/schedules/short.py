"""Short inner dimensions, the channels of a pixel or the elements of a small matrix: which of them
a thread has, and whether it computes them together.

What is declared of a dimension is a fact. What is only told of one decides what is fast: calls
where it holds have a way of their own, all others the one that there is without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod

from halide_bridge.schedules.recognise.costs import distinct
from halide_bridge.schedules.recognise.facts import SMALL, Body, Placement
from halide_bridge.schedules.recognise.program import Member, accesses
from halide_bridge.schedules.sizes import Guess
from selector.ir.nodes import Expr, IntImm, Var
from selector.ir.simplify import simplify
from selector.ir.traverse import substitute
from selector.lowering.written_out import MOST

ELEMENTS = 16  # of a thread, at most
SAVED = 4  # one part of so many is worth it

Extents = Sequence[int | None]


def told_short(member: Member, placement: Placement, known: Guess) -> Extents | None:
    """Extents of an output's dimensions, with those of inner ones that are told to be short, as far
    as a thread has room for their elements; None where facts say as much.
    """
    dims = range(len(member.args))
    facts = [placement.extent(member.name, d) for d in dims]
    if placement.program.outputs != (member.name,) or len(member.types) > 1 or len(dims) < 2:
        return None
    told, count = [*facts], 1
    for d in dims:
        extent = known.extent(member, d) if facts[d] is not None or known.tells(member, d) else None
        if extent is None or extent > SMALL or count * extent > ELEMENTS:
            return told if told != facts else None
        told[d], count = extent, count * extent
    return None  # no dimension is left for threads


def are_shared(values: Sequence[Expr], extents: Mapping[str, int]) -> bool:
    """Whether elements along short dimensions are less work together than each alone, and few
    enough to be written out. ``values``: of one element, by the names of those dimensions.
    """
    count = prod(extents.values())
    alone = sum(map(distinct, values))
    if not 1 < count <= ELEMENTS or alone * count > MOST * ELEMENTS:
        return False
    places = (
        dict(zip(extents, map(IntImm, at), strict=True))
        for at in product(*map(range, extents.values()))
    )
    each = [[simplify(substitute(v, at)) for v in values] for at in places]
    together = distinct(*(v for one in each for v in one))
    return together <= MOST and together * SAVED <= (SAVED - 1) * sum(distinct(*o) for o in each)


def values_of(member: Member, body: Body, sums: Sequence[tuple[Member, Body]]) -> tuple[Expr, ...]:
    """What a thread computes of an element, with the terms of ``sums`` that it reads there."""
    found = [*body.values]
    for m, own in sums:
        at = next((a.indices for v in body.values for a in accesses(v) if a.func == m.name), ())
        named = {n: i for n, i in zip(m.args, at, strict=False) if isinstance(i, Var)}
        found += [substitute(v, named) for v in own.values]
    return tuple(found)
