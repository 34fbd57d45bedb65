"""The matrix product in float64 (exact for s8 operands: sums stay far under 2^53)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.gemm.problem import Problem


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    """``f(A @ B)``, result (m, n), or several such; float64 inputs in the problem's shapes."""
    a, b = (
        inputs[name].swapaxes(-2, -1) if side == "t" else inputs[name]
        for name, side in zip("AB", problem.layout, strict=True)
    )
    value = a @ b
    if "scale" in problem.epilogue:
        value = value * inputs["scale"]
    if problem.output.element == "s8":
        value = xp.clip(xp.rint(value), -128, 127)
    if "bias" in problem.epilogue:
        value = value + inputs["bias"]
    return xp.maximum(value, 0) if "relu" in problem.epilogue else value
