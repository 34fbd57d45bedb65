"""Attention, in plain Halide: ``softmax(Q K' / sqrt(depth)) V`` for every head (paper section IV).

As it is defined: the largest score of a query, the sum of the weights ``exp(score - largest)``, the
sum of the weighted values, and their quotient. Every one of the three has scores of its own, so
that a schedule may compute them where they are used; ``hb.online`` makes one loop of the three. The
powers are powers of 2: the factor log2(e) is one with the scale of the scores. Weights are rounded
to f16 for the product only. Keys past the last do not count.

A variant gives the scores another update: a bias, a soft cap, ... (``scores``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import halide as hl

from halide_bridge.schedules import Attention, Joining
from selector.families.attention.tiling import JOINED_AT_ONCE

LOWEST = -3.0e38
HALIDE_TYPES = {"f16": hl.Float(16), "bf16": hl.BFloat(16), "f32": hl.Float(32)}

Score = Callable[[hl.Expr, hl.Expr, hl.Expr, hl.Expr], hl.Expr]
"""What becomes of a scaled score of key n, query m and head h."""


@dataclass(frozen=True, slots=True)
class Variant:
    """``score``, its ``parameters``, and the Funcs (of key, query and head) that it reads a run of
    keys of at a time: a schedule may stage them, like keys and values. The score is ``factor``
    times what ``score`` makes of it, which costs nothing.
    """

    score: Score
    parameters: tuple[hl.ImageParam, ...] = ()
    matrices: tuple[hl.Func, ...] = ()
    factor: float = 1


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of a softmax: of ``length`` those that query ``m`` has, in part number ``p``."""

    length: hl.Expr
    m: hl.Var
    p: hl.Var
    causal: bool
    part: int
    window: int

    def place(self, n: hl.Expr) -> hl.Expr:
        """Of a key among all."""
        return n + self.p * self.part if self.part else n

    def seen(self, n: hl.Expr, value: hl.Expr) -> hl.Expr:
        """The score of a key, the lowest of one that does not count."""
        n = self.place(n)
        counts = (n < self.length) & (n <= self.m) if self.causal else n < self.length
        counts = counts & (n > self.m - self.window) if self.window else counts
        return hl.select(counts, value, hl.f32(LOWEST))


def attend(
    depth: int,
    *,
    causal: bool = False,
    run: int = 128,
    scale: float | None = None,
    variant: Variant | None = None,
    types: str = "f16-f32",
    sharing: int = 1,
    window: int = 0,
    part: int = 0,
) -> Attention:
    """The unscheduled pipeline; ``depth`` (channels of a head) is a constant of the compiled
    kernels, the numbers of heads, queries and keys are not. ``causal``: query m has keys 0 ... m.
    ``run``: keys of an iteration, which the sums go over in whole numbers. ``scale`` of the scores:
    1/sqrt(depth) if None. ``types``, ``sharing`` and ``window``: see ``problem``. ``part``: keys of
    each softmax, of which there are several then, to be joined (0: one of all keys).
    """
    operand, result = (HALIDE_TYPES[t] for t in types.split("-"))
    query, key, value = (hl.ImageParam(operand, 3, name) for name in "QKV")
    n, m, d, h, p = (hl.Var(name) for name in "nmdhp")
    length = key.dim(1).extent()
    r = hl.RDom([(0, part or (length + run - 1) // run * run)], "r")
    heads = (h, p) if part else (h,)
    shared = h // sharing if sharing > 1 else h
    factor = 1 / math.sqrt(depth) if scale is None else scale
    names = "keys values peak total weight mixed output"
    f = {name: hl.Func(name) for name in names.split()}
    scores = tuple(hl.Func(f"scores_{name}") for name in ("peak", "total", "mixed"))

    keys = _Keys(length, m, p, causal=causal, part=part, window=window)
    for padded, source in (("keys", key), ("values", value)):
        inside = source[d, hl.min(n, length - 1), h]
        f[padded][d, n, h] = hl.select(n < length, inside, hl.cast(operand, 0))
    for func in scores:
        own = f["keys"], keys.place(n), shared
        _define_scores(func, (n, m, *heads), depth, query, own)
        if variant is not None:
            scaled = func[n, m, *heads] * hl.f32(factor)
            func[n, m, *heads] = variant.score(scaled, keys.place(n), m, h)

    rest = factor if variant is None else variant.factor
    mean, size = _define_sums(f, scores, keys, (m, *heads), shared, r.x, rest, operand)
    f["output"][d, m, *heads] = hl.Tuple([mean, size]) if part else hl.cast(result, mean)
    matrices = tuple((m, scores, 1) for m in variant.matrices) if variant else ()
    return Attention(
        scores=scores,
        query=query,
        key=key,
        value=value,
        depth=depth,
        updates=1 if variant is None else 2,
        matrices=matrices,
        joining=joined(f["output"], (length + part - 1) // part, result) if part else None,
        **f,
    )


def _define_scores(
    scores: hl.Func,
    at: tuple[hl.Var, ...],
    depth: int,
    query: hl.ImageParam,
    key: tuple[hl.Func, hl.Expr, hl.Expr],
) -> None:
    """Products of queries and keys; ``key``: of which, its number and its head."""
    keys, n, shared = key
    k = hl.RDom([(0, depth)], f"k_{scores.name()}")
    scores[at] = hl.f32(0.0)
    scores[at] += hl.f32(query[k.x, at[1], at[2]]) * hl.f32(keys[k.x, n, shared])


def _define_sums(
    f: dict[str, hl.Func],
    scores: tuple[hl.Func, ...],
    keys: _Keys,
    at: tuple[hl.Var, ...],
    shared: hl.Expr,
    key: hl.Expr,
    factor: float,
    operand: hl.Type,
) -> tuple[hl.Expr, hl.Expr]:
    """The sums over all keys, a ``key`` of them, for the query and the heads ``at``: the weighted
    mean, and the logarithm of what the weights add up to.
    """
    n, d = hl.Var("n"), hl.Var("d")

    def exponent(func: hl.Func, n: hl.Expr) -> hl.Expr:
        """The score of a key, in the logarithm of base 2."""
        return func[n, *at] * hl.f32(math.log2(math.e) * factor)

    def weight(func: hl.Func, n: hl.Expr) -> hl.Expr:
        """Exactly 0 for a key that does not count."""
        return hl.pow(hl.f32(2), keys.seen(n, exponent(func, n) - f["peak"][at]))

    peak, total = f["peak"][at], f["total"][at]
    f["peak"][at] = hl.f32(LOWEST)
    f["peak"][at] = hl.max(peak, keys.seen(key, exponent(scores[0], key)))
    f["total"][at] = hl.f32(0.0)
    f["total"][at] += weight(scores[1], key)
    f["weight"][n, *at] = hl.cast(operand, weight(scores[2], n))
    f["mixed"][d, *at] = hl.f32(0.0)
    value = hl.f32(f["values"][d, keys.place(key), shared])
    f["mixed"][d, *at] += hl.f32(f["weight"][key, *at]) * value
    mean = f["mixed"][d, *at] * (hl.f32(1) / total)
    return mean, size_of(mean, peak, total)


def size_of(mean: hl.Expr, peak: hl.Expr, total: hl.Expr) -> hl.Expr:
    """The logarithm of a part's weights; no number where the ``mean`` is none, so that it is an
    epilogue of the sums like that.
    """
    size = peak + hl.log(total) * hl.f32(math.log2(math.e))
    return hl.select(mean > hl.f32(LOWEST), size, mean)


def joined(parts: hl.Func, count: hl.Expr, result: hl.Type) -> Joining:
    """The means of so many ``parts`` of the keys as one: each counts as much as its weights add up
    to, whose logarithm (base 2) it has beside it.
    """
    d, m, h = (hl.Var(name) for name in "dmh")
    p, names = hl.Var("p"), ("near", "top", "sums", "joined")
    near, top, sums, joined = (hl.Func(name) for name in names)
    turns = (count + JOINED_AT_ONCE - 1) // JOINED_AT_ONCE * JOINED_AT_ONCE
    r, s = (hl.RDom([(0, turns)], f"p_{name}") for name in ("top", "sums"))
    last = hl.min(p, count - 1)  # none beyond it is computed
    near[d, m, h, p] = hl.Tuple([parts[d, m, h, last][0], parts[d, m, h, last][1]])
    top[d, m, h] = hl.f32(LOWEST)
    top[d, m, h] = hl.max(top[d, m, h], near[d, m, h, r.x][1])
    mean, size = near[d, m, h, s.x][0], near[d, m, h, s.x][1]
    size = hl.select(s.x < count, size, hl.f32(LOWEST))
    weight = hl.pow(hl.f32(2), size - top[d, m, h])
    sums[d, m, h] = hl.Tuple([hl.f32(0.0), hl.f32(0.0)])
    sums[d, m, h] = hl.Tuple([sums[d, m, h][0] + weight * mean, sums[d, m, h][1] + weight])
    joined[d, m, h] = hl.cast(result, sums[d, m, h][0] / sums[d, m, h][1])
    return Joining(joined, near, top, sums)


def plain(p: Attention) -> hl.Func:
    """Every sum of the definition computed before its use: Halide's default, for the CPU."""
    for f in (*p.scores, p.peak, p.total, p.weight, p.mixed):
        f.compute_root()
    return p.output


def matrix(source: hl.ImageParam) -> hl.Func:
    """Numbers of ``source`` (keys, queries, heads) for a score to read; 0 past the last key."""
    n, m, h = (hl.Var(name) for name in "nmh")
    length = source.dim(0).extent()
    padded = hl.Func(f"all_{source.name()}")
    inside = source[hl.min(n, length - 1), m, h]
    padded[n, m, h] = hl.select(n < length, inside, hl.cast(source.type(), 0))
    return padded
