"""Random inputs, poisoned outputs, and the error of a result. Works on NumPy and CuPy arrays alike
(``xp``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.common.case import Arrays, ArraySpec, Case, Problem


def encode(values: Any, element: str, xp: Any) -> Any:
    """Float values as an array of ``element``; bf16 rounds to nearest, ties to even."""
    match element:
        case "bf16":
            bits = xp.ascontiguousarray(values, dtype=xp.float32).view(xp.uint32)
            rounded = bits + (0x7FFF + ((bits >> 16) & 1)).astype(xp.uint32)
            return (rounded >> 16).astype(xp.uint16)
        case "s8":
            return xp.clip(xp.rint(values * 48), -128, 127).astype(xp.int8)
        case "u8":
            return xp.clip(xp.rint(values * 48 + 128), 0, 255).astype(xp.uint8)
        case "s32":
            return xp.rint(values * 48).astype(xp.int32)
        case "f16":
            return values.astype(xp.float16)
        case "f32":
            return values.astype(xp.float32)
        case _:
            raise AssertionError(f"no inputs of {element}")


def decode(array: Any, element: str, xp: Any) -> Any:
    """An array of ``element`` as float64."""
    if element == "bf16":
        array = (array.astype(xp.uint32) << 16).view(xp.float32)
    return array.astype(xp.float64)


def random_inputs(problem: Problem, seed: int, xp: Any) -> Arrays:
    """Normally distributed inputs (integers: standard deviation 48), the same for the same seed and
    ``xp``.
    """
    if xp.__name__ == "numpy":
        generator = xp.random.default_rng(seed)
    else:
        generator = xp.random.Generator(xp.random.XORWOW(seed))
    return {
        spec.name: encode(generator.standard_normal(spec.shape, dtype=xp.float32), spec.element, xp)
        for spec in problem.inputs
    }


def case_inputs(case: Case, problem: Problem, seed: int, xp: Any) -> Arrays:
    """Random inputs as the case wants them."""
    return (case.random or random_inputs)(problem, seed, xp)


def decoded(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Arrays:
    return {spec.name: decode(inputs[spec.name], spec.element, xp) for spec in problem.inputs}


def poisoned(spec: ArraySpec, xp: Any) -> Any:
    """An output array in which every element that stays unwritten shows: NaN, or a whole number
    that is no likely result.
    """
    dtype = xp.dtype(spec.dtype)
    if spec.element == "bf16":
        return xp.full(spec.shape, 0x7FC0, dtype=dtype)
    whole = -(2**30) + 7 if dtype.itemsize > 1 else 0x55
    return xp.full(spec.shape, xp.nan if dtype.kind == "f" else whole, dtype=dtype)


def relative_error(result: Any, reference: Any, xp: Any) -> float:
    """Relative Frobenius error; infinite if anything is NaN or infinite, so that it never passes.
    A result of uint16 is bf16.
    """
    values = decode(result, "bf16" if result.dtype == xp.uint16 else "", xp)
    difference = xp.linalg.norm((values - reference).ravel())
    error = float(difference) / max(float(xp.linalg.norm(reference.ravel())), 1e-300)
    return error if error == error else float("inf")
