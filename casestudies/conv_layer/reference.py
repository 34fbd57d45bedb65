"""The convolution layer in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.conv_layer.problem import Problem
from casestudies.conv_layer.tiles import TAPS


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    """``max(bias + sum_(s,t) I[:, s:, t:, :] @ K[s, t], 0)``, every ``stride``-th row and pixel;
    float64, shape (batch, height, width, filters).
    """
    result = xp.zeros(problem.output.shape, dtype=xp.float64)
    result += inputs["bias"]
    for s in range(TAPS):
        rows = inputs["I"][:, s :: problem.stride][:, : problem.height]
        for t in range(TAPS):
            pixels = rows[:, :, t :: problem.stride][:, :, : problem.width]
            result += pixels @ inputs["K"][s, t]
    return xp.maximum(result, 0, out=result)
