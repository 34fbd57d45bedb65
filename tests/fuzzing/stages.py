"""Stencils, reductions and pointwise work of any types: a program of the ``form`` "stages".

Funcs of Funcs of arrays, one or several outputs, or an output of several values. They stay on CUDA
cores: what is drawn are types and places, by the compiler's own schedule and by hand. ``parts``:
``inputs`` (by name type and kind), ``stages`` and ``outputs`` as data. A stage is ``(name, type,
place, reduction, expression)``; ``place`` is "inline", "root", "shared" or "register";
``reduction`` is () or (kind, how far along x and y).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from fuzzing import elements
from fuzzing.choices import base, index, some_size
from fuzzing.elements import EXACT, WRAP, Drawing, Expression, computed
from fuzzing.program import Axis, Program, Sum
from fuzzing.stage_text import ends, pipeline
from fuzzing.sums import beyond

__all__ = ["kinds", "pipeline", "result", "stages"]

Random = random.Random
Array = np.ndarray[Any, Any]
Kinds = dict[str, tuple[str, tuple[int, ...]]]
STORED = ("u8", "s8", "u16", "s16", "s16", "u32", "s32", "s64", "f16", "f32", "f64", "bool")
DRAWN = {"u8": 255, "s8": 128, "u16": 65535, "s16": 1 << 15, "bool": 1}  # sizes of what arrays hold
EDGES = ("repeat_edge", "mirror_image", "mirror_interior", "repeat_image", "constant_exterior")
REDUCTIONS = ("sum", "sum", "max", "min", "first", "both")


def _drawn(kind: str) -> int:
    """The largest size of an element of an array."""
    return DRAWN.get(kind, 3 if kind in elements.FLOATS else 1000)


def stages(r: Random) -> Program:
    dims = r.choice((1, 2, 2, 2, 3))
    sizes = (some_size(r, 32), r.randint(1, 40), r.randint(1, 4))[:dims]
    edges = r.choice((*EDGES, "", "", "", ""))
    reach = (-2, 3) if edges else (0, 4)
    inputs = {"A": r.choice(STORED)}
    inputs |= {name: r.choice(STORED) for name in ("B", "T", "K") if r.random() < 0.35}
    sources = {name: (kind, _drawn(kind)) for name, kind in inputs.items() if name != "K"}
    made: list[tuple[Any, ...]] = []
    outputs = r.choice((1, 1, 1, 2, 2, 3))
    for n in range(r.choice((0, 1, 1, 2))):
        stage, size = _stage(r, f"s{n}", inputs, sources, dims, reach, outputs > 1)
        made.append(stage)
        sources[stage[0]] = stage[1], size
    table = "T" if "T" in sources else ""
    draw = Drawing(r, sources, dims, reach, r.choice(((1,), (1,), (1, 2), (3,))), table=table)
    results = tuple(_result(r, draw, sources) for _ in range(outputs))
    schedule = r.choice(("drawn", "drawn", "auto", "sized"))
    form = (
        *_used(tuple(inputs.items()), edges, made, results),
        ("together", len(results) > 1 and r.random() < 0.5),
        ("tile", (r.choice((8, 16, 32, 20)), r.choice((1, 2, 4, 8)))),
        ("vector", r.choice((1, 1, 2, 4, 8, 16))),
    )
    p = base(("f16", "f32"), tuple(map(Axis, sizes)), (Sum(1, 1),), (index((1, "x")),),
             (index((1, "r.x")),), r)  # fmt: skip
    return replace(p, memory="", form="stages", parts=form, schedule=schedule, swapped=False,
                   result=results[0][1], values="small", instructions=(),
                   target=r.choice(("sm_80", "sm_90a")))  # fmt: skip


def _used(
    inputs: Sequence[tuple[str, str]], edges: str, made: Sequence[tuple[Any, ...]],
    results: tuple[Expression, ...],
) -> tuple[tuple[str, Any], ...]:  # fmt: skip
    """The parts of a program: arrays and stages of which something is read."""
    used = {load[2] for e in results for load in elements.loads(e)}
    kept: list[tuple[Any, ...]] = []
    for stage in reversed(made):
        if stage[0] in used:
            kept.insert(0, stage)
            used |= {load[2] for load in elements.loads(stage[4])}
    return (
        ("inputs", tuple((n, kind) for n, kind in inputs if n in used)),
        ("edges", edges if "A" in used else ""),
        ("stages", tuple(kept)),
        ("outputs", results),
    )


def simpler(p: Program) -> Iterator[Program]:
    """Programs of less: outputs, operations, terms of reductions, threads."""
    parts = dict(p.parts)
    outputs, made = parts["outputs"], parts["stages"]

    def with_(**changes: Any) -> Program:
        new = parts | changes
        used = _used(new["inputs"], new["edges"], new["stages"], new["outputs"])
        rest = (("together", new["together"] and len(new["outputs"]) > 1),
                ("tile", new["tile"]), ("vector", new["vector"]))  # fmt: skip
        return replace(p, parts=(*used, *rest), result=new["outputs"][0][1])

    yield from (with_(**{n: v}) for n, v in (("edges", ""), ("together", False), ("vector", 1),
                                             ("tile", (8, 1))))  # fmt: skip
    for n, e in enumerate(outputs):
        if len(outputs) > 1:
            yield with_(outputs=(*outputs[:n], *outputs[n + 1 :]))
        for less in elements.simpler(e):
            yield with_(outputs=(*outputs[:n], less, *outputs[n + 1 :]))
    for n, (name, kind, place, reduction, e) in enumerate(made):
        others = [("root", reduction, e)] if place != "root" else []
        others += [(place, reduction, x) for x in elements.simpler(e)]
        others += [(place, (reduction[0], *c), e) for c in _fewer(reduction[1:])]
        for other in others:
            yield with_(stages=(*made[:n], (name, kind, *other), *made[n + 1 :]))


def _fewer(counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for d, n in enumerate(counts):
        if n > 1:
            yield (*counts[:d], n // 2, *counts[d + 1 :])


def _stage(
    r: Random, name: str, inputs: Mapping[str, str], sources: dict[str, tuple[str, int]],
    dims: int, reach: tuple[int, int], several: bool,
) -> tuple[tuple[Any, ...], int]:  # fmt: skip
    reduces = r.random() < 0.6
    taps = {"K": (inputs["K"], _drawn(inputs["K"]))} if "K" in inputs and reduces else {}
    draw = Drawing(r, sources, dims, reach, (1, 1, 2), taps, "T" if "T" in sources else "")
    kind = r.choice([k for k in STORED if k != "bool" or not reduces])
    e, size = draw.of(kind, r.randint(0, 2))
    places = ("root",) if several else ("root", "shared", "shared", "register")
    if not reduces:
        return (name, kind, r.choice((*places, "inline")), (), e), size
    along = r.choice((1, 2, 3, 5, 9, 40 if name == "s0" else 4))
    counts = (along,) if dims == 1 else (along, r.choice((1, 1, 2, 3)))
    how = r.choice(REDUCTIONS)
    if how == "sum":
        size *= prod(counts)
        if kind not in WRAP and size > EXACT[kind]:
            how = "max"
    if how == "first":
        kind, size = "s32", prod(counts)
    return (name, kind, r.choice(places), (how, *counts), e), min(size, EXACT[kind])


def _result(r: Random, draw: Drawing, sources: Mapping[str, Any]) -> Expression:
    """Of a stage where there is one, as any type."""
    e, size = draw.of(r.choice(STORED), r.randint(0, 2))
    stage = next((n for n in reversed(list(sources)) if n.startswith("s")), "")
    if stage and not any(load[2] == stage for load in elements.loads(e)):
        kind, bound = sources[stage]
        e, size = ("load", kind, stage, (0,) * draw.dims, 1), bound
    return draw.converted(e, size, r.choice(STORED) if r.random() < 0.6 else e[1])[0]


# --------------------------------------------------------------------- numbers


def kinds(p: Program) -> Kinds:
    """Type and extents (dimension 0 first) of every array."""
    inputs, read = dict(dict(p.parts)["inputs"]), _read(p)
    found: Kinds = {}
    for name, kind in inputs.items():
        if name == "T":
            found[name] = kind, (elements.TABLE,)
        elif name == "K":
            found[name] = kind, _taps(p)
        else:
            found[name] = kind, tuple(max(1, n) for n in read[name])
    return found


def _taps(p: Program) -> tuple[int, ...]:
    """As many as the longest reductions have."""
    counts = [s[3][1:] for s in dict(p.parts)["stages"] if s[3]]
    dims = min(2, len(p.axes))
    return tuple(max((c[d] for c in counts), default=1) for d in range(dims))


def _read(p: Program) -> dict[str, list[int]]:
    """By source how far it is read along each dimension, from 0 on."""
    parts = dict(p.parts)
    far: dict[str, list[int]] = {n: [0] * len(p.axes) for n, _ in parts["inputs"]}
    for name, *_ in parts["stages"]:
        far[name] = [0] * len(p.axes)
    for e in parts["outputs"]:
        _reach(e, list(p.sizes), (), far)
    for name, _, _, reduction, e in reversed(parts["stages"]):
        _reach(e, far[name], reduction[1:], far)
    return far


def _reach(
    e: Expression, sizes: list[int], counts: tuple[int, ...], far: dict[str, list[int]]
) -> None:
    for load in elements.loads(e):
        if load[0] == "load":
            _, _, name, offsets, step = load
            for d, offset in enumerate(offsets):
                more = counts[d] - 1 if d < len(counts) else 0
                last = (sizes[d] - 1) * (step if d == 0 else 1) + offset + more
                far[name][d] = max(far[name][d], last + 1)


def result_kinds(p: Program) -> tuple[str, ...]:
    """The types of the outputs."""
    return tuple(e[1] for e in dict(p.parts)["outputs"])


def result_names(p: Program) -> tuple[str, ...]:
    parts = dict(p.parts)
    dot = "." if parts["together"] else ""
    return tuple(f"out{dot}{n}" for n in range(len(parts["outputs"])))


def result(p: Program, arrays: Mapping[str, Array]) -> tuple[Array, ...]:
    """The outputs as numbers, in NumPy's order of axes."""
    whole = [np.arange(n) for n in p.sizes]
    places = [
        a.reshape([-1 if d == len(whole) - 1 - i else 1 for d in range(len(whole))])
        for i, a in enumerate(whole)
    ]
    shape = p.sizes[::-1]
    found = (_value(p, e, arrays, places, ()) for e in dict(p.parts)["outputs"])
    return tuple(np.broadcast_to(v, shape) for v in found)


def _value(
    p: Program, e: Expression, arrays: Mapping[str, Array], places: list[Array],
    variables: tuple[int, ...],
) -> Array:  # fmt: skip
    parts = dict(p.parts)
    known = {stage[0]: stage for stage in parts["stages"]}

    def read(load: Expression) -> Array:
        if load[0] == "tap":
            return np.asarray(arrays[load[2]][variables[::-1]])
        _, _, name, offsets, step = load
        at = [
            place * (step if d == 0 else 1) + offsets[d]
            + (variables[d] if d < len(variables) else 0)
            for d, place in enumerate(places)
        ]  # fmt: skip
        if name in known:
            return _stage_value(p, known[name], arrays, at)
        return _element(arrays[name], at, parts["edges"] if name == "A" else "")

    return computed(e, read, arrays)


def _element(array: Array, at: list[Array], edges: str) -> Array:
    inside: Array = np.asarray(True)
    found: list[Array] = []
    for d, place in enumerate(at):
        extent = array.shape[-1 - d]
        inside = inside & (place >= 0) & (place < extent)
        found.append(_beyond(place, extent, edges) if edges else place)
    value = array[tuple(np.broadcast_arrays(*found[::-1]))]
    return np.where(inside, value, 1) if edges == "constant_exterior" else value


def _beyond(at: Array, extent: int, edges: str) -> Array:
    names = {"repeat_edge": "repeat", "mirror_image": "mirror", "mirror_interior": "reflect",
             "repeat_image": "wrap", "constant_exterior": "repeat"}  # fmt: skip
    return beyond(at, extent, names[edges])


def _stage_value(
    p: Program, stage: tuple[Any, ...], arrays: Mapping[str, Array], at: list[Array]
) -> Array:
    _, kind, _, reduction, e = stage
    if not reduction:
        return _value(p, e, arrays, at, ())
    how, *counts = reduction
    points = [v[::-1] for v in product(*(range(n) for n in counts[::-1]))]
    values = np.stack([
        np.broadcast_to(_value(p, e, arrays, at, v), np.broadcast_shapes(*(a.shape for a in at)))
        for v in points
    ])  # fmt: skip
    match how:
        case "sum":
            return elements.wrapped(values.sum(0), kind)
        case "max":
            return values.max(0)
        case "min":
            return values.min(0)
        case "first":
            return values.argmax(0)
        case _:
            best, first = values.max(0), values.argmax(0)
            first = np.where(best > ends(e[1])[0], first, 0)
            return elements.wrapped(best + first % 2, kind)
