"""The 1-D convolution in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.conv1d.problem import Problem


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    """``sum_t K[t] * I[:, t : t + width]``; float64 inputs and result, shape (height, width)."""
    result = xp.zeros(problem.output.shape, dtype=xp.float64)
    for t in range(problem.taps):
        result += inputs["K"][t] * inputs["I"][:, t : t + problem.width]
    return result
