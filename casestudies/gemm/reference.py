"""The matrix product in float64 (exact for s8 operands: sums stay far under 2^53)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.gemm.problem import Problem


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    """``A @ B``; float64 inputs of shapes (m, k) and (k, n), result (m, n)."""
    return inputs["A"] @ inputs["B"]
