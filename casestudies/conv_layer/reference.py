"""The convolution layer in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.conv_layer.problem import Problem


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    """``max(bias + sum_(s,t) I[:, d*s:, d*t:, :] @ K[s, t] + residual, 0)``, every ``stride``-th
    row and pixel; float64, shape (batch, height, width, filters).
    """
    image = inputs["I"]
    if problem.padded:
        around = (problem.border,) * 2
        image = xp.pad(image, ((0, 0), around, around, (0, 0)))
    result = xp.zeros(problem.output.shape, dtype=xp.float64)
    result += inputs["bias"]
    taps, dilation = problem.taps, problem.dilation
    for s in range(taps):
        rows = image[:, dilation * s :: problem.stride][:, : problem.height]
        for t in range(taps):
            pixels = rows[:, :, dilation * t :: problem.stride][:, :, : problem.width]
            flat = pixels.reshape(-1, problem.channels) @ inputs["K"][s, t]
            result += flat.reshape(result.shape)
    if problem.residual:
        result += inputs["residual"]
    return xp.maximum(result, 0, out=result)
