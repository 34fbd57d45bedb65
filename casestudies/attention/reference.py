"""Attention in float64, head by head: at benchmark size all scores would be 8.6 GB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.attention.problem import Problem


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    """``softmax(Q K' / sqrt(depth)) V``, with ``causal`` of the keys up to the query's place;
    float64, shape (heads, length, depth).
    """
    result = xp.empty(problem.output.shape, dtype=xp.float64)
    for head in range(problem.heads):
        q, k, v = (inputs[name][head] for name in "QKV")
        scores = q @ k.T / problem.depth**0.5
        if problem.causal:
            scores = xp.where(xp.tri(problem.length, dtype=bool), scores, -xp.inf)
        weights = xp.exp(scores - scores.max(axis=1, keepdims=True))
        result[head] = weights @ v / weights.sum(axis=1, keepdims=True)
    return result
