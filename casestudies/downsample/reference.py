"""Downsampling in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.common.boundary import before, extended
from casestudies.downsample.problem import Problem


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    """``sum_(s,t) K[s, t] * I[s::factor, t::factor]``; float64, shape (height, width)."""
    taps, factor = problem.taps, problem.factor
    back = before(problem.boundary, taps, factor)
    rows, columns = (factor * (n - 1) + taps for n in problem.output.shape)
    image = extended(
        inputs["I"], range(-back, rows - back), range(-back, columns - back), problem.boundary, xp
    )
    result = xp.zeros(problem.output.shape, dtype=xp.float64)
    for s in range(taps):
        lines = image[s::factor][: problem.height]
        for t in range(taps):
            result += inputs["K"][s, t] * lines[:, t::factor][:, : problem.width]
    return result
