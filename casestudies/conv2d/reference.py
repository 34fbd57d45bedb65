"""The 2-D convolution in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.conv2d.problem import Problem


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    """``sum_(s,t) K[s, t] * I[s : s + height, t : t + width]``; float64, shape (height, width)."""
    result = xp.zeros(problem.output.shape, dtype=xp.float64)
    for s in range(problem.taps):
        rows = inputs["I"][s : s + problem.height]
        for t in range(problem.taps):
            result += inputs["K"][s, t] * rows[:, t : t + problem.width]
    return result
