"""Upsampling in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.common.boundary import before, extended
from casestudies.upsample.problem import Problem


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    """Phase by phase: ``sum_(s,t) K[s * factor + py, t * factor + px] * I[s:, t:]`` at every
    ``factor``-th output; float64, shape (height, width).
    """
    taps, factor = problem.phase_taps, problem.factor
    back = before(problem.boundary, taps)
    rows, columns = (-(-extent // factor) for extent in problem.output.shape)
    image = extended(
        inputs["I"],
        range(-back, rows + taps - 1 - back),
        range(-back, columns + taps - 1 - back),
        problem.boundary,
        xp,
    )
    phases = xp.zeros((rows, factor, columns, factor), dtype=xp.float64)
    for s in range(taps):
        for t in range(taps):
            window = image[s : s + rows, None, t : t + columns, None]
            bank = inputs["K"][s * factor : (s + 1) * factor, t * factor : (t + 1) * factor]
            phases += window * bank[None, :, None, :]
    whole = phases.reshape(rows * factor, columns * factor)
    return whole[: problem.height, : problem.width]
