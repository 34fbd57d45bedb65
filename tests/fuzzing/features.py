"""What a program has, for the table of features and outcomes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fuzzing.program import NAMES, Operand, Program


def features(p: Program) -> Iterator[str]:
    """Names of all that it has."""
    yield f"family {p.family}"
    yield f"memory {p.memory}"
    yield f"target {p.target}"
    yield f"types {p.a.type} x {p.b.type} -> {p.accumulator}"
    yield f"result {p.result}"
    yield from _part_features(p)
    yield f"schedule {p.schedule}"
    yield f"sums computed for a {p.at}"
    for o in p.operands:
        yield from _operand_features(o)
    for mask in p.masks:
        yield f"mask {mask.kind}{', likely' if mask.likely else ''}"
        yield f"mask of indices {mask.type}"
    for name in p.epilogue:
        yield f"epilogue {name}"
    terms = [t for o in p.operands for i in o.index for t in i.terms]
    for name, on in (
        ("stride", any(abs(t.factor) > 1 and t.var in NAMES and not t.mod for t in terms)),
        ("dilation", any(abs(t.factor) > 1 and t.var not in NAMES for t in p.a.index[0].terms)),
        ("reversed", any(t.factor < 0 for t in terms)),
        ("phases", any(t.mod > 0 or t.div > 1 for t in terms)),
        ("ragged sizes", any(a.size % a.block for a in p.axes)),
        ("sums in steps", any(0 < s.vector < s.extent and s.vector > 1 for s in p.sums)),
        ("several sums", len(p.sums) > 1),
        ("sums of odd depth", math.prod(s.vector for s in p.sums) % 8 != 0),
        ("dynamic depth", any(s.dynamic for s in p.sums)),
        ("segments", any(a.segments > 1 for a in p.axes)),
        (f"start {p.start}", p.start != "zero"),
        (f"factor {p.factor}", bool(p.factor)),
        (f"stencil after, {p.after}", bool(p.after)),
        (f"second {p.second}", bool(p.second)),
        ("masks on both factors", len(p.masks) > 1),
        (f"tail {p.tail}", bool(p.tail)),
        ("instructions restricted", bool(p.instructions)),
        ("rows apart in memory", p.pitch != (0, 0)),
        ("directive from_zero", p.from_zero),
        ("result saturated", p.saturated),
        ("one array twice", p.a.name == p.b.name),
        (f"sum and {p.beside}", bool(p.beside)),
        ("products subtracted", p.minus),
        (f"zero points {p.zero_points}", bool(p.zero_points)),
        ("sum is the output", p.alone),
        ("extents declared", p.declared),
        ("sums from elsewhere", any(s.begin for s in p.sums)),
        ("sums from where a parameter says", any(s.given for s in p.sums)),
    ):
        if on:
            yield name
    for name in p.updates:
        yield f"update {name}"
    for name, _ in p.directives:
        yield f"directive {name}"


def _part_features(p: Program) -> Iterator[str]:
    """Of a form; of expressions their types."""
    for name, value in p.parts:
        match name:
            case "inputs":
                yield from sorted({f"array of {kind}" for _, kind in value})
            case "outputs":
                yield f"{p.form}, outputs {len(value)}"
                yield from sorted({f"output of {e[1]}" for e in value})
            case "stages" if p.form == "stages":
                for _, kind, place, reduction, _ in value:
                    yield f"stage of {kind}"
                    yield f"stage, {place}, {reduction[0] if reduction else 'no reduction'}"
            case _:
                yield f"{p.form}, {name} {value}".rstrip()


def _operand_features(o: Operand) -> Iterator[str]:
    role = f"operand {o.name}"
    if o.edges:
        yield f"{role} edges {o.edges}"
    if o.produce:
        yield f"{role} produced {o.produce}{', in the sum' if o.inline else ''}"
    if o.staging is None:
        yield f"{role} not staged"
        return
    s = o.staging
    yield f"{role} staged at {s.at}"
    yield f"staging idiom {s.idiom}"
    bounds = {0: "without bounds", -1: "with bounds that are too small"}
    yield f"staging {bounds.get(s.rounding, f'rounded to {s.rounding}')}"
    for name, on in (
        (f"staging, {s.stages} copies in flight", s.stages > 1),
        ("staging where Halide decides", not s.shared),
        ("staging turned", s.turned),
        ("staging with align_storage", s.align > 0),
    ):
        if on:
            yield name
    if o.before is not None:
        apart = {1: "not ahead", s.stages: "as far ahead"}.get(o.before.stages, "further ahead")
        yield f"staged twice at {s.at}, {s.stages} copies in flight, what it is made of {apart}"
