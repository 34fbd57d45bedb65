"""The 2-D convolution in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.common.boundary import before, extended
from casestudies.conv2d.problem import Problem


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    """``sum_(s,t) K[s, t] * I[s : s + height, t : t + width]``; float64, shape (height, width)."""
    taps, back = problem.taps, before(problem.boundary, problem.taps)
    rows, columns = (range(-back, n + taps - 1 - back) for n in problem.output.shape)
    image = extended(inputs["I"], rows, columns, problem.boundary, xp)
    result = xp.zeros(problem.output.shape, dtype=xp.float64)
    for s in range(taps):
        lines = image[s : s + problem.height]
        for t in range(taps):
            result += inputs["K"][s, t] * lines[:, t : t + problem.width]
    return result
