"""Making a failure small: simpler programs are tried as long as the outcome stays of its class."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fuzzing import stages
from fuzzing.program import NAMES, Axis, Index, Operand, Program, Sum, Term, array_extents
from fuzzing.writing import pipeline_text

if TYPE_CHECKING:
    from fuzzing.outcome import Outcome

Attempt = Callable[[Program], "Outcome"]


def shrink(p: Program, outcome: Outcome, attempt: Attempt, seconds: float = 60.0) -> Program:
    """The simplest program found within the time whose outcome is of the same class."""
    end = time.monotonic() + seconds
    tried = {p.digest}
    again = True
    while again:
        again = False
        for candidate in sorted(simpler(p), key=cost):
            if time.monotonic() > end:
                return p
            if candidate.digest in tried or cost(candidate) >= cost(p) or not sound(candidate):
                continue
            tried.add(candidate.digest)
            if outcome.same_class(attempt(candidate)):
                p, again = candidate, True
                break
    return p


def cost(p: Program) -> float:
    """What a reader has to go through: lines, then numbers."""
    text = pipeline_text(p) if sound(p) else ""
    numbers = sum(p.sizes) + sum(s.extent for s in p.sums) + sum(a.block for a in p.axes) / 16
    odd = p.values != "small", p.target != "sm_80", p.a.type != "f16", p.margin > 0
    return 100 * text.count("\n") + len(text) + numbers / 10 + sum(odd)


def sound(p: Program) -> bool:
    """Whether nothing is read before the beginning of an array, and variables are there."""
    known = {*NAMES[: len(p.axes)], *(f"r.{NAMES[i]}" for i in range(len(p.sums)))}
    indices = [*(i for o in p.operands for i in o.index), *(m.condition for m in p.masks)]
    if any(t.var not in known for i in indices for t in i.terms):
        return False
    try:
        return all(array_extents(p, o) for o in p.operands)
    except AssertionError:
        return False


DEFAULTS: dict[str, Any] = {
    "masks": (), "epilogue": (), "after": "", "second": "", "factor": "", "start": "zero",
    "tail": "", "directives": (), "instructions": (), "margin": 0, "values": "small",
    "swapped": False, "at": "unit", "target": "sm_80",
    "pitch": (0, 0), "from_zero": False, "saturated": False,
    "updates": (), "beside": "", "minus": False, "zero_points": "", "alone": False,
    "declared": False,
}  # fmt: skip


def simpler(p: Program) -> Iterator[Program]:
    """Programs that lack something of this one, or have less of it."""
    if p.form == "stages":
        yield from stages.simpler(p)
    for name, value in DEFAULTS.items():
        if getattr(p, name) != value and not (name == "target" and p.memory != "wmma"):
            yield replace(p, **{name: value})
    for name in ("directives", "epilogue", "updates"):
        found = getattr(p, name)
        for i in range(len(found) if len(found) > 1 else 0):
            yield replace(p, **{name: found[:i] + found[i + 1 :]})
    yield from _typed(p)
    for i, axis in enumerate(p.axes):
        yield from (replace(p, axes=(*p.axes[:i], a, *p.axes[i + 1 :])) for a in _axes(axis))
    for i, s in enumerate(p.sums):
        yield from (replace(p, sums=(*p.sums[:i], x, *p.sums[i + 1 :])) for x in _sums(s))
    if len(p.sums) > 1:
        yield _without_last(p)
    for name in ("a", "b"):
        yield from (replace(p, **{name: o}) for o in _operands(getattr(p, name)))


def _typed(p: Program) -> Iterator[Program]:
    if p.result != p.accumulator:
        yield replace(p, result=p.accumulator)
    if (p.a.type, p.accumulator) != ("f16", "f32") and p.memory != "amx":
        a, b = replace(p.a, type="f16"), replace(p.b, type="f16")
        yield replace(p, a=a, b=b, accumulator="f32", result="f32")


def _axes(a: Axis) -> Iterator[Axis]:
    for size in (1, a.vector, a.block, a.block + 1, a.size // 2):
        if 0 < size < a.size:
            yield replace(a, size=size)
    for name in ("unroll", "warps", "segments"):
        if getattr(a, name) > 1:
            smaller = replace(a, **{name: 1})
            yield smaller
            yield replace(smaller, size=smaller.block)
            if getattr(a, name) > 2:
                yield replace(a, **{name: 2})
    if a.vector > 8:
        smaller = replace(a, vector=a.vector // 2)
        yield smaller
        yield replace(smaller, size=smaller.block)
    if a.bounded:
        yield replace(a, bounded=False)


def _sums(s: Sum) -> Iterator[Sum]:
    whole = s.vector == s.extent
    for extent in (1, 2, 3, s.extent // 2, s.extent - 1):
        if 0 < extent < s.extent:
            yield replace(s, extent=extent, vector=extent if whole else min(s.vector, extent))
    if 1 < s.vector < s.extent or s.step:
        yield replace(s, vector=s.extent, step=0)
        yield replace(s, step=0)
    if s.dynamic:
        yield replace(s, dynamic=False)
    if s.begin:
        yield replace(s, begin=0, given=False)
        yield replace(s, given=False)
    if s.outer != "serial":
        yield replace(s, outer="serial")


def _without_last(p: Program) -> Program:
    """Without the last variable of the sum, and the dimensions that it alone runs along."""
    gone = f"r.{NAMES[len(p.sums) - 1]}"

    def cut(o: Operand) -> Operand:
        kept = [Index(tuple(t for t in i.terms if t.var != gone), i.offset) for i in o.index]
        left = tuple(
            k for k, i in zip(kept, o.index, strict=True)
            if k.terms or not any(t.var == gone for t in i.terms)
        )  # fmt: skip
        return replace(o, index=left or kept[:1])

    masks = tuple(m for m in p.masks if all(t.var != gone for t in m.condition.terms))
    return replace(p, sums=p.sums[:-1], a=cut(p.a), b=cut(p.b), masks=masks)


def _operands(o: Operand) -> Iterator[Operand]:
    for field in ("staging", "before"):
        s = getattr(o, field)
        if s is None:
            continue
        yield replace(o, before=None, **({"staging": None} if field == "staging" else {}))
        for name, values in (
            ("idiom", ("plain", "inner", "vectors")), ("rounding", (0, 1, 8)), ("stages", (1, 2)),
            ("shared", (True,)), ("turned", (False,)), ("align", (0,)), ("at", ("block", "part")),
        ):  # fmt: skip
            for value in values:
                if getattr(s, name) != value:
                    yield replace(o, **{field: replace(s, **{name: value})})
    if o.edges:
        yield replace(
            o, edges="", index=tuple(replace(i, offset=max(0, i.offset)) for i in o.index)
        )
        yield replace(o, edges="zero")
    if o.produce:
        yield replace(o, produce="", before=None, inline=False)
        if o.inline:
            yield replace(o, inline=False)
    for d, i in enumerate(o.index):
        for other in _indices(i):
            yield replace(o, index=(*o.index[:d], other, *o.index[d + 1 :]))


def _indices(i: Index) -> Iterator[Index]:
    if i.offset:
        yield replace(i, offset=0)
    for n, t in enumerate(i.terms):
        for other in (Term(1, t.var), Term(t.factor, t.var), Term(2, t.var)):
            if other != t:
                offset = 0 if t.factor < 0 else i.offset
                yield Index((*i.terms[:n], other, *i.terms[n + 1 :]), offset)
