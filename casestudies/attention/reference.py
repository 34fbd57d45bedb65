"""Attention in float64, head by head: at benchmark size all scores would be 8.6 GB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.attention.problem import SOFT_CAP, Problem


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    """``softmax(Q K' / sqrt(depth)) V``, with ``causal`` of the keys up to the query's place, of
    other scores if the problem says so; float64, shape (heads, length, depth).
    """
    result = xp.empty(problem.output.shape, dtype=xp.float64)
    for head in range(len(result)):
        q = inputs["Q"][head]
        k, v = (inputs[name][head * problem.packed // problem.sharing] for name in "KV")
        scores = scored(problem, q @ k.T * problem.factor, inputs, head, xp)
        if problem.causal:
            seen = xp.tri(problem.length, dtype=bool)
            if problem.window:
                seen &= ~xp.tri(problem.length, k=-problem.window, dtype=bool)
            scores = xp.where(seen, scores, -xp.inf)
        weights = xp.exp(scores - scores.max(axis=1, keepdims=True))
        result[head] = weights @ v / weights.sum(axis=1, keepdims=True)
    return result


def scored(problem: Problem, scores: Any, inputs: Mapping[str, Any], head: int, xp: Any) -> Any:
    """The scores of one head (queries x keys), as the variant has them."""
    match problem.score:
        case "soft_cap":
            return xp.tanh(scores / SOFT_CAP) * SOFT_CAP
        case "slopes":
            queries, keys = xp.arange(problem.length), xp.arange(problem.key_count)
            return scores + inputs["slopes"][head] * (keys[None, :] - queries[:, None])
        case "bias":
            return scores + inputs["bias"][head]
        case _:
            return scores
