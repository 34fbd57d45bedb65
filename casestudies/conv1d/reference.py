"""The 1-D convolution in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.common.boundary import before, extended
from casestudies.conv1d.problem import Problem


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    """``sum_t K[t] * I[:, t : t + width]``; float64 inputs and result, shape (height, width)."""
    taps, back = problem.taps, before(problem.boundary, problem.taps)
    columns = range(-back, problem.width + taps - 1 - back)
    image = extended(inputs["I"], range(problem.height), columns, problem.boundary, xp)
    result = xp.zeros(problem.output.shape, dtype=xp.float64)
    for t in range(taps):
        result += inputs["K"][t] * image[:, t : t + problem.width]
    return result
