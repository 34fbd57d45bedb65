"""Sums that are more than one update of a Func: what stands around the products of a drawn program
so that the compiler makes Funcs of their own of them (``hb.sums_apart``), or counts them from 0.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from fuzzing.choices import index
from fuzzing.program import NAMES, Mask, Program

Random = random.Random
UPDATES = ("relu", "relu", "double", "column", "row", "running")


def moved(r: Random, p: Program) -> Program:
    """Variables of sums begin elsewhere than at 0, where a parameter says or a number."""
    sums = tuple(
        replace(s, begin=r.choice((-2, -1, 1, 3, 8)), given=r.random() < 0.2)
        if r.random() < 0.5 and not s.dynamic else s
        for s in p.sums
    )  # fmt: skip
    return replace(p, sums=sums)


def of_outputs(r: Random, p: Program) -> Program:
    """Some outputs have no products: a condition that the sum's variables have no say in."""
    axis = NAMES[len(p.axes) - 1]
    terms = ((1, axis), (-1, "x")) if len(p.axes) > 1 and r.random() < 0.7 else ((1, "x"),)
    offset = r.randint(-2, 2) if len(terms) > 1 else -r.randint(1, max(1, p.sizes[0] // 2))
    mask = Mask("where", index(*terms, offset=offset), closed=r.random() < 0.3)
    return replace(p, masks=(*p.masks, mask))


def declared(r: Random, p: Program) -> Program:
    """Of phases Halide needs all taps, however few outputs there are."""
    phased = any(t.mod for o in p.operands for i in o.index for t in i.terms)
    return p if phased else replace(p, declared=True)


def of_bytes(r: Random, p: Program) -> Program:
    """Zero points, which only integers have."""
    if p.accumulator != "s32" or any(m.kind in ("left", "right") for m in p.masks):
        return p
    names = ("A", "B", "AB", "A") if p.a.name != p.b.name else ("A",)
    return replace(p, zero_points=r.choice(names))


def subtracted(r: Random, p: Program) -> Program:
    return replace(p, minus=True)


def scaled(r: Random, p: Program) -> Program:
    """A scale for each column, inside of the sum."""
    return p if p.factor or p.accumulator != "f32" else replace(p, factor="column")


def several(r: Random, p: Program) -> Program:
    """More updates, also with a second sum among them."""
    names = r.sample(UPDATES, r.choice((1, 1, 2, 3)))
    names = [n for n in dict.fromkeys(names) if n != "running" or _may_run(p)]
    if p.second == "update" or (not p.second and _may_be_second(p) and r.random() < 0.35):
        p = replace(p, second="update")
        names.insert(r.randint(0, len(names)), "second")
    return replace(p, updates=tuple(names))


def values(r: Random, p: Program) -> Program:
    """Another value beside the sum: another one, or an extremum."""
    if p.second or p.a.inline:
        return p
    if r.random() < 0.5 and _may_be_second(p):
        return replace(p, second="value")
    return replace(p, beside="largest")


def alone(r: Random, p: Program) -> Program:
    """The sum is the output, with nothing behind it."""
    if p.pair or p.after or p.second == "accumulator":
        return p
    return replace(p, alone=True, epilogue=(), result=p.accumulator, saturated=False)


def _may_run(p: Program) -> bool:
    """Whether sums of sums are numbers of the type."""
    return p.sizes[-1] > 1 and p.accumulator != "f16" and not p.after


def _may_be_second(p: Program) -> bool:
    return p.a.name != p.b.name and not p.b.produce


ANYWHERE = ((moved, 0.12),)
UNSCHEDULED = (
    (of_outputs, 0.08), (subtracted, 0.1), (several, 0.2), (values, 0.12), (of_bytes, 0.3),
    (scaled, 0.08), (alone, 0.25), (declared, 0.15),
)  # fmt: skip


def around_sums(r: Random, p: Program) -> Program:
    """Now and then what any schedule has; where there is none, what the compiler's own has, too."""
    p = _changed(r, p, ANYWHERE)
    return p if p.schedule == "drawn" else unscheduled(r, p)


def unscheduled(r: Random, p: Program) -> Program:
    """Now and then what a schedule by hand does not have."""
    return _changed(r, p, UNSCHEDULED)


def _changed(
    r: Random, p: Program, changes: Sequence[tuple[Callable[[Random, Program], Program], float]]
) -> Program:
    for change, chance in changes:
        if r.random() < chance and not p.form:
            p = change(r, p)
    return p
