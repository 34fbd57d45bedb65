"""Inputs of a drawn program, and its result in float64, both in NumPy alone, without Halide.

Small values are integers whose sums every type on the way holds exactly, so that any element that
differs is wrong; real ones are compared by their norm.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fuzzing import forms
from fuzzing.chains import WEIGHTS
from fuzzing.program import NAMES, Index, Operand, Program, array_extents

Array = np.ndarray[Any, Any]
DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64,
    "s8": np.int8, "u8": np.uint8, "s16": np.int16, "u16": np.uint16, "s32": np.int32,
    "u32": np.uint32, "s64": np.int64, "bool": np.bool_, "e4m3": np.uint8, "e5m2": np.uint8,
}  # fmt: skip
NARROW = "s8", "u8", "s16", "u16"
INTEGERS = (*NARROW, "s32", "u32", "s64", "bool")
FORMATS = {"e4m3": (3, 7), "e5m2": (2, 15)}  # bits of the significand, bias of the exponent
# Unit roundoff that a result of the type may have, and what sums in it may lose.
PRECISION = {"f16": 1e-3, "bf16": 8e-3, "f32": 2e-6} | dict.fromkeys(INTEGERS, 0.0)
TF32 = 1e-3  # what operands lose that are rounded so
FP8 = 4e-3  # what sums of so many terms lose of which 13 bits are kept
SUMS = {"f16": 2e-2, "f32": 5e-6, "s32": 0.0}


def to_bits(values: Array) -> Array:
    """bfloat16 patterns, rounded to nearest even."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bits(bits: Array) -> Array:
    return (np.asarray(bits).astype(np.uint32) << 16).view(np.float32)


def from_bytes(stored: Array, kind: str) -> Array:
    """The values of bytes that are floats, by their formats' definition."""
    bits, bias = FORMATS[kind]
    stored = np.asarray(stored).astype(np.int64)
    exponent, low = stored >> bits & (1 << 7 - bits) - 1, stored & (1 << bits) - 1
    size = np.ldexp((low + (exponent > 0) * 2.0**bits), np.maximum(exponent, 1) - bias - bits)
    last = exponent == (1 << 7 - bits) - 1
    none = last & (low == 7) if kind == "e4m3" else last & (low > 0)
    size = np.where(last & (low == 0) & (kind == "e5m2"), np.inf, size)
    return np.where(stored >> 7, -1.0, 1.0) * np.where(none, np.nan, size)


def bytes_of(kind: str, values: str) -> list[int]:
    """Those that inputs are drawn from: of the numbers that any type is drawn from."""
    found = from_bytes(np.arange(256), kind)
    fits = np.isin(np.abs(found), (1, 2, 3)) if values == "small" else np.abs(found) <= 1
    return [int(byte) for byte in np.flatnonzero(fits)]


def numbers(values: Array, kind: str) -> Array:
    """float64 (integers: int64) of an array of a type."""
    if kind in FORMATS:
        return from_bytes(values, kind)
    values = from_bits(values) if kind == "bf16" else np.asarray(values)
    return values.astype(np.int64 if kind in INTEGERS else np.float64)


def rounded(values: Array, kind: str) -> Array:
    """Numbers as a type holds them, as numbers."""
    if kind == "bf16":
        return from_bits(to_bits(values)).astype(np.float64)
    with np.errstate(all="ignore"):
        return numbers(np.asarray(values).astype(DTYPES[kind]), kind)


def _draw(rng: np.random.Generator, shape: tuple[int, ...], kind: str, values: str) -> Array:
    if kind in NARROW:
        held = np.iinfo(DTYPES[kind])
        return rng.integers(held.min, held.max, shape, endpoint=True).astype(DTYPES[kind])
    if kind == "bool":
        return rng.random(shape) < 0.5
    if kind in FORMATS:
        return rng.choice(np.array(bytes_of(kind, values), np.uint8), shape)
    if kind in INTEGERS:
        low = 0 if kind == "u32" else -1000
        return rng.integers(low, 1000, shape, endpoint=True).astype(DTYPES[kind])
    if values == "small":
        found = rng.integers(1, 4, shape) * rng.choice(np.array([-1, 1]), shape)
        found = found.astype(np.float32)
    else:
        found = rng.uniform(-1, 1, shape).astype(np.float32)
    return to_bits(found) if kind == "bf16" else found.astype(DTYPES[kind])


def input_kinds(p: Program) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type and extents (dimension 0 first) of every array, as large as the algorithm needs."""
    if p.form:
        return forms.kinds(p)
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for o in p.operands:
        read = array_extents(p, o)
        _, also = found.get(o.name, ("", read))
        found[o.name] = o.stored, tuple(map(max, read, also))
    if p.second:
        found["C"] = found["B"]
    sizes = p.stored
    if p.start == "bias":
        found["start"] = (p.accumulator, sizes[:1])
    for e in p.epilogue:
        if e.startswith("bias"):
            found["bias"] = (p.accumulator, (max(sizes[0], sizes[-1]),))
        if e == "rest":
            found["rest"] = ("f16", sizes)
    return found


def grown(p: Program) -> tuple[int, ...]:
    """Extents of what is stored before a stencil."""
    return (p.sizes[0] + 1, *p.sizes[1:]) if p.after else p.sizes


def inputs(p: Program, needed: Mapping[str, tuple[int, ...]] = {}) -> dict[str, Array]:
    """Random arrays in NumPy's order of axes; ``needed``: extents that a compiled program asks for,
    where they are larger."""
    rng = np.random.default_rng(p.inputs)
    found: dict[str, Array] = {}
    for name, (kind, extents) in input_kinds(p).items():
        more = needed.get(name, extents)
        shape = tuple(max(a, b) for a, b in zip(extents, more, strict=True))
        found[name] = _lying(_draw(rng, shape[::-1], kind, p.values), p.pitch)
    return found


def _lying(array: Array, pitch: tuple[int, int]) -> Array:
    """The array, with so many elements before and behind each of its rows, which are no numbers."""
    if pitch == (0, 0):
        return array
    before, behind = pitch
    wide = np.full((*array.shape[:-1], before + array.shape[-1] + behind), 0, array.dtype)
    wide.view(np.uint8)[...] = 0xFF
    wide[..., before : before + array.shape[-1]] = array
    return wide[..., before : before + array.shape[-1]]


def scalars(p: Program) -> dict[str, int]:
    return {"alpha": 3} if p.factor == "param" else {}


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


def results(p: Program, arrays: Mapping[str, Array]) -> tuple[Array, ...]:
    """The outputs as numbers (float64, or int64), in NumPy's order of axes."""
    if p.form:
        kinds = {name: kind for name, (kind, _) in input_kinds(p).items()}
        return forms.results(p, {name: numbers(a, kinds[name]) for name, a in arrays.items()})
    return (_result(p, arrays),)


def result(p: Program, arrays: Mapping[str, Array]) -> Array:
    """The first of them."""
    return results(p, arrays)[0]


def _result(p: Program, arrays: Mapping[str, Array]) -> Array:
    sizes = p.stored
    outputs = _outputs(p)
    kinds = {name: kind for name, (kind, _) in input_kinds(p).items()}
    wide = {name: numbers(a, kinds[name]) for name, a in arrays.items()}
    total = _start(p, wide, sizes) + _sum(p, outputs, wide, sizes)
    if p.second:
        total = total + _sum(p, outputs, {**wide, "B": wide["C"]}, sizes)
    if p.second == "accumulator":
        total = total + _start(p, wide, sizes)
    total = _finish(p, total, outputs, wide)
    if p.saturated:
        total = np.clip(total, *(getattr(np.iinfo(DTYPES[p.result]), n) for n in ("min", "max")))
    total = rounded(total, p.result)
    if p.after:
        total = rounded(total[..., :-1] + 2 * total[..., 1:], p.result)
    return total


def _start(p: Program, wide: Mapping[str, Array], sizes: tuple[int, ...]) -> Array:
    """What an accumulator holds before the sum."""
    total = np.zeros(sizes[::-1], np.int64 if p.accumulator == "s32" else np.float64)
    match p.start:
        case "one":
            return total + 1
        case "bias":
            return total + wide["start"][: sizes[0]]
        case _:
            return total


def spread(p: Program, arrays: Mapping[str, Array]) -> float:
    """Root mean square over the outputs of the root of their products' squares: what the errors of
    rounded factors go with where the products themselves nearly cancel. 0 where sums are exact.
    """
    if p.form or tolerance(p)[0] == 0 or p.values == "small":
        return 0.0
    kinds = {name: kind for name, (kind, _) in input_kinds(p).items()}
    wide = {name: numbers(a, kinds[name]) for name, a in arrays.items()}
    squares = _sum(p, _outputs(p), wide, p.stored, 2)
    if p.second:
        squares = squares + _sum(p, _outputs(p), {**wide, "B": wide["C"]}, p.stored, 2)
    return float(np.sqrt(np.mean(squares)))


def _outputs(p: Program) -> dict[str, Array]:
    """The coordinates of the outputs, each along an axis of its own."""
    sizes = p.stored
    return {
        NAMES[i]: np.arange(n).reshape([-1 if j == i else 1 for j in range(len(sizes))][::-1])
        for i, n in enumerate(sizes)
    }


def _sum(
    p: Program,
    outputs: Mapping[str, Array],
    wide: Mapping[str, Array],
    sizes: tuple[int, ...],
    power: int = 1,
) -> Array:
    """The sum of the products, or of powers of them."""
    total = np.zeros(sizes[::-1], np.int64 if p.accumulator == "s32" else np.float64)
    of = {"": 1, "left": 2, "product": 2, "param": 3, "negative": -1}
    factor = outputs["x"] % 4 - 1 if p.factor == "place" else of[p.factor]
    for values in itertools.product(*(range(s.extent) for s in p.sums)):
        point = {**outputs, **{f"r.{NAMES[i]}": np.asarray(v) for i, v in enumerate(values)}}
        product = factor * _read(p.a, wide["A"], point) * _read(p.b, wide[p.b.name], point)
        for m in p.masks:
            product = np.where(_values(m.condition, point) >= 0, product, 0)
        total += product**power
    return total


def _finish(
    p: Program, value: Array, outputs: Mapping[str, Array], wide: Mapping[str, Array]
) -> Array:
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


def tolerance(p: Program) -> tuple[float, float]:
    """Relative Frobenius error, and largest error relative to the mean size, that are allowed."""
    if p.form == "online":  # weights are rounded to f16
        return WEIGHTS, 16 * WEIGHTS
    if p.form == "stages" or p.result in INTEGERS or p.accumulator == "s32":
        return 0.0, 0.0
    if p.values == "small" and p.accumulator == "f32":
        exact = PRECISION[p.result] if p.after else 1e-6
        return exact, 8 * exact
    allowed = (
        SUMS[p.accumulator]
        + PRECISION[p.result]
        + (
            # Halide's own run does not round to bfloat16.
            sum(PRECISION[o.type] for o in p.operands if o.produce)
        )
        + (TF32 if p.a.type == "f32" else 0)
        + (FP8 if "fp8" in p.instructions else 0)
    )
    return allowed, 16 * allowed


def all_differ(
    p: Program, expected: Sequence[Array], found: Sequence[Array], more: float = 0.0,
    size: float = 0.0,
) -> str:  # fmt: skip
    """What is wrong with the outputs (see ``differs``)."""
    said = [
        differs(p, one, other, more, size, kind)
        for one, other, kind in zip(expected, found, forms.result_kinds(p), strict=True)
    ]
    if len(said) == 1:
        return said[0]
    return ", ".join(f"output {n}: {text}" for n, text in enumerate(said) if text)


def differs(
    p: Program, expected: Array, found: Array, more: float = 0.0, size: float = 0.0, kind: str = ""
) -> str:
    """What is wrong with a result of type ``kind``, of which ``more`` is allowed than of others;
    empty if nothing is. Errors are relative to the size of what is expected, or to ``size`` if that
    is larger (``spread``).
    """
    found = numbers(np.asarray(found), kind or p.result).reshape(np.shape(found))
    if found.shape != expected.shape:
        return f"shape {found.shape}, not {expected.shape}"
    wide, expected = found.astype(np.float64), expected.astype(np.float64)
    bad = ~np.isfinite(wide) & np.isfinite(expected)
    if bad.any():
        return f"{int(bad.sum())} of {wide.size} are NaN or infinite, first {_first(bad)}"
    off = np.abs(wide - expected)
    off[~np.isfinite(expected)] = 0
    scale = float(np.sqrt(np.mean(np.where(np.isfinite(expected), expected, 0) ** 2)))
    scale = max(scale, size) or 1.0
    norm, largest = (part + more * times for part, times in zip(tolerance(p), (1, 16), strict=True))
    error, most = float(np.sqrt(np.mean(off**2))) / scale, float(off.max(initial=0)) / scale
    if error <= norm and most <= largest:
        return ""
    wrong = off > max(largest, 1e-6) * scale
    return f"error {error:.1e}, {int(wrong.sum())} of {wide.size} wrong, first {_first(wrong)}"


def _first(where: Array) -> list[int]:
    places = np.argwhere(where)
    return [int(i) for i in places[0]] if len(places) else []
