"""The product in float64 (exact for bytes: sums stay far under 2^53)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.amx_matmul.problem import Problem


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    """``A @ B``; float64 inputs in the problem's layout, result (m, n)."""
    b = inputs["B"]
    if problem.layout == "vnni":
        b = b.swapaxes(1, 2).reshape(problem.k, problem.n)
    return inputs["A"] @ b
