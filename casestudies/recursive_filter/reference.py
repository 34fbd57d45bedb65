"""The recursive filter in float64, as a parallel scan: a loop over samples would take minutes on a
GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.recursive_filter.design import impulse_response
from casestudies.recursive_filter.problem import Problem

BLOCK = 64


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    """Float64 result of shape (channels, samples)."""
    a, b = problem.a, problem.b
    response = impulse_response(a, b, BLOCK + 1).tolist()
    blocks = -(-problem.samples // BLOCK)
    x = xp.zeros((problem.channels, blocks * BLOCK))
    x[:, : problem.samples] = inputs["X"]
    lower = [[response[i - j] if i >= j else 0.0 for i in range(BLOCK)] for j in range(BLOCK)]
    y = x.reshape(problem.channels, blocks, BLOCK) @ xp.asarray(lower, dtype=xp.float64)
    step = [
        [response[BLOCK], b * response[BLOCK - 1]],
        [response[BLOCK - 1], b * response[BLOCK - 2]],
    ]
    state = states_after(y[:, :, [-1, -2]], xp.asarray(step, dtype=xp.float64))
    enters = xp.asarray([response[1:], [b * h for h in response[:BLOCK]]], dtype=xp.float64)
    y[:, 1:] += state[:, :-1] @ enters
    return y.reshape(problem.channels, -1)[:, : problem.samples]


def states_after(ends: Any, step: Any) -> Any:
    """States after each block from the blocks' own ends, (channels, blocks, 2): twice as many
    blocks are summed up in each round.
    """
    state, distance = ends.copy(), 1
    while distance < state.shape[1]:
        state[:, distance:] = state[:, distance:] + state[:, :-distance] @ step.T
        step, distance = step @ step, 2 * distance
    return state
