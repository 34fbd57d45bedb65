"""Sums of products in float64, or in integers: what a program without a ``form`` computes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fuzzing.formats import FORMATS, numbers, rounded
from fuzzing.program import LOWEST, NAMES, ZERO_POINTS, Index, Operand, Program

Array = np.ndarray[Any, Any]


def _values(index: Index, point: Mapping[str, Array]) -> Array:
    total: Array = np.asarray(index.offset)
    for t in index.terms:
        value = point[t.var] // t.div
        total = total + t.factor * (value % t.mod if t.mod else value)
    return total


def beyond(at: Array, extent: int, edges: str) -> Array:
    """Where an index is read inside of an array that goes on as ``edges`` says."""
    if edges == "wrap":
        return at % extent
    if edges == "mirror":
        at = at % (2 * extent)
        return np.where(at < extent, at, 2 * extent - 1 - at)
    if edges == "reflect" and extent > 1:
        at = at % (2 * extent - 2)
        return np.minimum(at, 2 * extent - 2 - at)
    return np.clip(at, 0, extent - 1)


def _read(o: Operand, array: Array, point: Mapping[str, Array]) -> Array:
    """Elements of an operand at a point of the sum, for all outputs."""
    return made(o, *(_elements(o, array, point, n) for n in range(o.reach + 1)))


def _elements(o: Operand, array: Array, point: Mapping[str, Array], further: int) -> Array:
    """Those of its array, so much further along dimension 0."""
    places: list[Array] = []
    inside: Array = np.asarray(True)
    for d, index in enumerate(o.index):
        at = _values(index, point) + (further if d == 0 else 0)
        extent = array.shape[-1 - d]
        if o.edges:
            inside = inside & (at >= 0) & (at < extent)
            at = beyond(at, extent, o.edges)
        places.append(at)
    found = array[tuple(np.broadcast_arrays(*places[::-1]))]
    if o.edges in ("zero", "three"):
        three = numbers(np.asarray(3), o.stored) if o.stored in FORMATS else 3
        found = np.where(inside, found, 0 if o.edges == "zero" else three)
    return found


def made(o: Operand, found: Array, *neighbours: Array) -> Array:
    """What an operand makes of elements of its array."""
    if o.produce == "pair":
        found = found * 2 + neighbours[0]
    if o.produce == "scale":
        found = found * 0.5 + 1
    if o.produce == "relu":
        found = np.maximum(found, 0)
    return rounded(found, o.type) if o.produce else found


def finished(p: Program, wide: Mapping[str, Array]) -> Array:
    """What is made of the sums of a program, of arrays as numbers."""
    start, first = _start(p, wide), product_sum(p, wide)
    second = product_sum(p, {**wide, "B": wide["C"]}) if p.second else np.asarray(0)
    sign = -1 if p.minus else 1
    total = start + sign * first
    updates = p.updates if "second" in p.updates or p.second != "update" else ("second", *p.updates)
    for name in updates:
        total = _updated(name, total, second)
    match p.second:
        case "accumulator":
            total = total + start + sign * second
        case "value":
            total = total - second
        case _:
            pass
    if p.beside:
        total = total - _largest(p, wide)
    return _finish(p, total, wide)


def _updated(name: str, total: Array, second: Array) -> Array:
    """A sum after another update."""
    total = total.copy()
    match name:
        case "second":
            total += second
        case "relu":
            total = np.maximum(total, 0)
        case "double":
            total *= 2
        case "column":
            total[..., 0] += 1
        case "row":
            total[0] = 3
        case "running":
            total = np.cumsum(total, axis=0)
        case _:
            raise AssertionError(name)
    return total


def _start(p: Program, wide: Mapping[str, Array]) -> Array:
    """What an accumulator holds before the sum."""
    total = np.zeros(p.stored[::-1], np.int64 if p.accumulator == "s32" else np.float64)
    match p.start:
        case "one":
            return total + 1
        case "bias":
            return total + wide["start"][: p.stored[0]]
        case _:
            return total


def _outputs(p: Program) -> dict[str, Array]:
    """The coordinates of the outputs, each along an axis of its own."""
    sizes = p.stored
    return {
        NAMES[i]: np.arange(n).reshape([-1 if j == i else 1 for j in range(len(sizes))][::-1])
        for i, n in enumerate(sizes)
    }


def _points(p: Program) -> Iterator[dict[str, Array]]:
    """The terms of the sums, for all outputs."""
    outputs = _outputs(p)
    for values in itertools.product(*(range(s.extent) for s in p.sums)):
        yield {**outputs, **{f"r.{NAMES[i]}": np.asarray(v) for i, v in enumerate(values)}}


def product_sum(p: Program, wide: Mapping[str, Array], power: int = 1) -> Array:
    """The sum of the products, or of powers of them."""
    total = np.zeros(p.stored[::-1], np.int64 if p.accumulator == "s32" else np.float64)
    of = {"": 1, "left": 2, "product": 2, "param": 3, "negative": -1}
    zero = {name: ZERO_POINTS[name] for name in p.zero_points}
    for point in _points(p):
        match p.factor:
            case "place":
                factor = point["x"] % 4 - 1
            case "column":
                factor = wide["scale"][point["x"]]
            case _:
                factor = np.asarray(of[p.factor])
        a, b = _read(p.a, wide["A"], point), _read(p.b, wide[p.b.name], point)
        product = factor * (a - zero.get(p.a.name, 0)) * (b - zero.get(p.b.name, 0))
        for m in p.masks:
            product = np.where(_values(m.condition, point) >= 0, product, 0)
        total += product**power
    return total


def _largest(p: Program, wide: Mapping[str, Array]) -> Array:
    """The largest element of A among the terms of each sum."""
    found = np.full(p.stored[::-1], LOWEST, np.int64 if p.accumulator == "s32" else np.float64)
    for point in _points(p):
        element = _read(p.a, wide["A"], point)
        for m in p.masks:
            if m.kind == "where":
                element = np.where(_values(m.condition, point) >= 0, element, LOWEST)
        found = np.maximum(found, element)
    return found


def _finish(p: Program, value: Array, wide: Mapping[str, Array]) -> Array:
    outputs = _outputs(p)
    for name in p.epilogue:
        match name:
            case "relu":
                value = np.maximum(value, 0)
            case "bias":
                value = value + wide["bias"][outputs[NAMES[0]]]
            case "bias of rows":
                value = value + wide["bias"][outputs[NAMES[len(p.axes) - 1]]]
            case "scale":
                value = value * 2
            case "rest":
                places = [outputs[NAMES[i]] for i in range(len(p.axes))][::-1]
                value = value + wide["rest"][tuple(places)].astype(value.dtype)
            case "parity":
                odd = sum(outputs.values()) % 2
                value = np.where(odd == 0, value, -value)
            case "clamp":
                value = np.clip(value, -50, 50)
            case _:
                raise AssertionError(name)
    return value
