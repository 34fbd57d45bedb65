"""Attention: two products with a softmax between them, which one kernel computes online."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import halide

from halide_bridge.torch_backend.products import factor
from halide_bridge.torch_backend.values import STORED, Making, Value, domain, rule, unsupported

hl: Any = halide


@rule("selector.attention")
def attention(m: Making, q: Value, k: Value, v: Value, is_causal: bool, scale: float) -> Value:
    """(batch, heads, length, depth) each; as many heads of queries after each other have each of
    keys. Powers are of 2, as processors have them.
    """
    depth = q.shape[-1]
    if not isinstance(depth, int) or v.shape[-1] != depth:
        raise unsupported("channels of a head whose number is not known, or another for values")
    q, k, v = (m.operand(x, n) for x, n in ((q, "query"), (k, "key"), (v, "value")))
    scores, scaled, peak, weights, sums, rounded, mixed = (
        m.func(n) for n in ("scores", "scaled", "peak", "weights", "sums", "rounded", "mixed")
    )
    b, h, i, j = m.variables(4)
    share = 1 if _same(q.shape[1], k.shape[1]) else q.shape[1] // k.shape[1]
    of = h / share if share > 1 else h
    d, kind = hl.Var("d"), STORED[m.dtype]
    keys = k.open[2] if k.open else k.shape[2]  # a loop over few keys would not be one
    r, n = domain([depth], m.name("r")), domain([keys], m.name("n"))
    scores[j, i, h, b] = hl.f32(0)
    scores[j, i, h, b] += factor(q, [b, h, i, r]) * factor(k, [b, of, j, r])
    scaled[j, i, h, b] = scores[j, i, h, b] * hl.f32(scale * math.log2(math.e))
    low = hl.f32(-1e30)

    def seen(j: Any, value: Any) -> Any:
        return hl.select(j <= i, value, low) if is_causal else value

    peak[i, h, b] = low
    peak[i, h, b] = hl.max(peak[i, h, b], seen(n, scaled[n, i, h, b]))
    exponent = seen(j, scaled[j, i, h, b] - peak[i, h, b])  # a loop ends where all is masked
    weights[j, i, h, b] = hl.pow(hl.f32(2), exponent)
    sums[i, h, b] = hl.f32(0)
    sums[i, h, b] += weights[n, i, h, b]
    rounded[j, i, h, b] = hl.cast(kind, weights[j, i, h, b])
    mixed[d, i, h, b] = hl.f32(0)
    mixed[d, i, h, b] += hl.f32(rounded[n, i, h, b]) * factor(v, [b, of, n, d])

    def at(x: Sequence[Any]) -> Any:
        return mixed[x[3], x[2], x[1], x[0]] / sums[x[2], x[1], x[0]]

    return Value(m.dtype, m.shape(), at)


def _same(a: Any, b: Any) -> bool:
    return not isinstance(a, int) or not isinstance(b, int) or a == b
