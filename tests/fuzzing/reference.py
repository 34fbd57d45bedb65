"""Inputs of a drawn program, and its result in float64, both in NumPy alone, without Halide.

Small values are integers whose sums every type on the way holds exactly, so that any element that
differs is wrong; real ones are compared by their norm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fuzzing import forms, sums
from fuzzing.chains import WEIGHTS
from fuzzing.formats import DTYPES, INTEGERS, drawn, numbers, rounded
from fuzzing.program import NAMES, ZERO_POINTS, Program, array_extents

Array = np.ndarray[Any, Any]
# Unit roundoff that a result of the type may have, and what sums in it may lose.
PRECISION = {"f16": 1e-3, "bf16": 8e-3, "f32": 2e-6} | dict.fromkeys(INTEGERS, 0.0)
TF32 = 1e-3  # what operands lose that are rounded so
FP8 = 4e-3  # what sums of so many terms lose of which 13 bits are kept
SUMS = {"f16": 2e-2, "f32": 5e-6, "s32": 0.0}


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
    if p.factor == "column":
        found["scale"] = (p.accumulator, sizes[:1])
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
        found[name] = _lying(drawn(rng, shape[::-1], kind, p.values), p.pitch)
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
    """Values of the parameters that are single numbers."""
    found = {"alpha": 3} if p.factor == "param" else {}
    found |= {f"zero_{name}": ZERO_POINTS[name] for name in p.zero_points}
    return found | {f"first_{NAMES[i]}": x.begin for i, x in enumerate(p.sums) if x.given}


def results(p: Program, arrays: Mapping[str, Array]) -> tuple[Array, ...]:
    """The outputs as numbers (float64, or int64), in NumPy's order of axes."""
    if p.form:
        kinds = {name: kind for name, (kind, _) in input_kinds(p).items()}
        return forms.results(p, {name: numbers(a, kinds[name]) for name, a in arrays.items()})
    return (_result(p, arrays),)


def result(p: Program, arrays: Mapping[str, Array]) -> Array:
    """The first of them."""
    return results(p, arrays)[0]


def _wide(p: Program, arrays: Mapping[str, Array]) -> dict[str, Array]:
    kinds = {name: kind for name, (kind, _) in input_kinds(p).items()}
    return {name: numbers(a, kinds[name]) for name, a in arrays.items()}


def _result(p: Program, arrays: Mapping[str, Array]) -> Array:
    total = sums.finished(p, _wide(p, arrays))
    if p.saturated:
        total = np.clip(total, *(getattr(np.iinfo(DTYPES[p.result]), n) for n in ("min", "max")))
    total = rounded(total, p.result)
    if p.after:
        total = rounded(total[..., :-1] + 2 * total[..., 1:], p.result)
    return total


def spread(p: Program, arrays: Mapping[str, Array]) -> float:
    """Root mean square over the outputs of the root of their products' squares: what the errors of
    rounded factors go with where the products themselves nearly cancel. 0 where sums are exact.
    """
    if p.form or tolerance(p)[0] == 0 or p.values == "small":
        return 0.0
    wide = _wide(p, arrays)
    squares = sums.product_sum(p, wide, 2)
    if p.second:
        squares = squares + sums.product_sum(p, {**wide, "B": wide["C"]}, 2)
    return float(np.sqrt(np.mean(squares)))


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
