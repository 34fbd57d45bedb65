"""Attention as users write it: where the scores are scaled, how sums and maxima are said, when
weights are divided, what is rounded where. What is one loop over the keys is right at ragged sizes,
as selected, simulated and emitted; what is not says why, and is right as well.
"""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from test_plain_attention import ORDERS
from verified import EMULATED

import halide_bridge as hb
from selector.diagnostics import ScheduleError
from selector.gpu.codegen.program import emit_kernels
from selector.ir.nodes import For, ForKind
from selector.ir.printer import print_expr
from selector.ir.traverse import walk_stmt
from selector.simulate import simulate
from selector.targets import find_target

pytestmark = EMULATED

DEPTH = 64
F16, F32 = hl.Float(16), hl.Float(32)
ONE_LOOP = "in the loop over keys that the product is in"
EIGHTH, TWO = 0.125 * math.log2(math.e), hl.f32(2)
Array = np.ndarray[Any, Any]
n, m, h, d = (hl.Var(name) for name in "nmhd")


def f32(e: Any) -> Any:
    return hl.cast(F32, e)


def f16(e: Any) -> Any:
    return hl.cast(F16, e)


def func(name: str, e: Any, *args: hl.Var) -> hl.Func:
    made = hl.Func(name)
    made[args or (n, m, h)] = e
    return made


class Parts:
    """Of Q, K and V, with all dimensions in one order."""

    def __init__(self) -> None:
        self.q, self.k, self.v = (hl.ImageParam(F16, 3, name) for name in "QKV")

    def keys(self) -> hl.RDom:
        return hl.RDom([(0, self.k.dim(1).extent())], "r")

    def scores(self, q: Any = None, k: Any = None) -> hl.Func:
        c, q, k = hl.RDom([(0, DEPTH)], "c"), q or self.q, k or self.k
        return self.summed("scores", (n, m, h), f32(q[c.x, m, h]) * f32(k[c.x, n, h]))

    def summed(self, name: str, args: tuple[hl.Var, ...], term: Any) -> hl.Func:
        made = hl.Func(name)
        made[args] = hl.f32(0)
        made[args] += term
        return made

    def scaled(self) -> hl.Func:
        return func("scaled", self.scores()[n, m, h] * hl.f32(0.125))

    def top(self, scores: hl.Func, start: float = -1e30, kind: Any = F32) -> hl.Func:
        made, r = hl.Func("top"), self.keys()
        made[m, h] = hl.cast(kind, hl.f32(start))
        made[m, h] = hl.max(made[m, h], scores[r.x, m, h])
        return made

    def total(self, weights: hl.Func) -> hl.Func:
        return self.summed("total", (m, h), weights[self.keys().x, m, h])

    def mixed(self, weights: hl.Func) -> hl.Func:
        r = self.keys()
        term = f32(weights[r.x, m, h]) * f32(self.v[d, r.x, h])
        return self.summed("mixed", (d, m, h), term)

    def divided(self, weight: Any) -> hl.Func:
        """What most end with, after they have a weight of float32."""
        weights = func("weights", weight)
        total, mixed = self.total(weights), self.mixed(func("rounded", f16(weights[n, m, h])))
        return self.output(mixed[d, m, h] / total[m, h])

    def output(self, value: Any) -> hl.Func:
        return func("output", f16(value), d, m, h)

    def usual(self) -> tuple[hl.Func, hl.Func, hl.Func]:
        """Weights, their total, and the largest scores, of scaled ones."""
        scaled = self.scaled()
        top = self.top(scaled)
        weights = func("weights", hl.exp(scaled[n, m, h] - top[m, h]))
        return weights, self.total(weights), top


def after(p: Parts, power: Callable[[Any, Any], Any]) -> hl.Func:
    """The scale comes after the largest score."""
    scores = p.scores()
    return p.divided(power(scores[n, m, h], p.top(scores)[m, h]))


def masked(p: Parts, start: float) -> hl.Func:
    scores = p.scores()
    seen = func("seen", hl.select(n <= m, scores[n, m, h], hl.f32(-math.inf)))
    top = p.top(seen, start)
    return p.divided(hl.exp((seen[n, m, h] - top[m, h]) / 8))


def largest(p: Parts) -> hl.Func:
    scaled, r = p.scaled(), p.keys()
    top = func("top", hl.maximum(r, scaled[r.x, m, h]), m, h)
    return p.divided(hl.exp(scaled[n, m, h] - top[m, h]))


def probabilities(p: Parts) -> hl.Func:
    weights, total, _ = p.usual()
    return p.output(p.mixed(func("p", f16(weights[n, m, h] / total[m, h])))[d, m, h])


def by_inverse(p: Parts) -> hl.Func:
    weights, total, _ = p.usual()
    inverse = func("inverse", 1 / total[m, h], m, h)
    share = func("share", weights[n, m, h] * inverse[m, h])
    return p.output(p.mixed(func("p", f16(share[n, m, h])))[d, m, h])


def by_logarithm(p: Parts) -> hl.Func:
    scaled = p.scaled()
    top = p.top(scaled)
    total = p.total(func("weights", hl.exp(scaled[n, m, h] - top[m, h])))
    whole = func("lse", top[m, h] + hl.log(total[m, h]), m, h)
    return p.output(p.mixed(func("p", f16(hl.exp(scaled[n, m, h] - whole[m, h]))))[d, m, h])


def by_binary_logarithm(p: Parts) -> hl.Func:
    scaled = func("scaled", p.scores()[n, m, h] * hl.f32(EIGHTH))
    top = p.top(scaled)
    total = p.total(func("weights", hl.pow(TWO, scaled[n, m, h] - top[m, h])))
    logarithm = hl.log(total[m, h]) * hl.f32(math.log2(math.e))
    power = hl.pow(TWO, scaled[n, m, h] - top[m, h] - logarithm)
    return p.output(p.mixed(func("p", f16(power)))[d, m, h])


def with_reciprocals(p: Parts) -> hl.Func:
    weights, total, _ = p.usual()
    inverse = func("inverse", 1 / total[m, h], m, h)
    mixed = p.mixed(func("rounded", f16(weights[n, m, h])))
    return p.output(mixed[d, m, h] * inverse[m, h])


def of_scaled(p: Parts, *, queries: bool) -> hl.Func:
    source = p.q if queries else p.k
    less = func("less", source[d, m, h] * hl.cast(F16, 0.125), d, m, h)
    scores = p.scores(*((less, None) if queries else (None, less)))
    return p.divided(hl.exp(scores[n, m, h] - p.top(scores)[m, h]))


def scaled_terms(p: Parts, product: Callable[[Any, Any], Any]) -> hl.Func:
    c = hl.RDom([(0, DEPTH)], "c")
    term = product(f32(p.q[c.x, m, h]), f32(p.k[c.x, n, h]))
    scores = p.summed("scores", (n, m, h), term)
    return p.divided(hl.exp(scores[n, m, h] - p.top(scores)[m, h]))


def rounded_scores(p: Parts) -> hl.Func:
    half = func("half", f16(p.scaled()[n, m, h]))
    scaled = func("scores_again", f32(half[n, m, h]))
    return p.divided(hl.exp(scaled[n, m, h] - p.top(scaled)[m, h]))


def total_of_rounded(p: Parts) -> hl.Func:
    weights, _, _ = p.usual()
    rounded = func("rounded", f16(weights[n, m, h]))
    total = p.total(func("wide", f32(rounded[n, m, h])))
    return p.output(p.mixed(rounded)[d, m, h] / total[m, h])


def channels_unknown(p: Parts) -> hl.Func:
    c = hl.RDom([(0, p.q.dim(0).extent())], "c")
    scores = hl.Func("scores")
    scores[n, m, h] += f32(p.q[c.x, m, h]) * f32(p.k[c.x, n, h]) / 8
    return p.divided(hl.exp(scores[n, m, h] - p.top(scores)[m, h]))


def channels_declared(p: Parts) -> hl.Func:
    p.q.dim(0).set_extent(DEPTH)
    return channels_unknown(p)


STYLES: dict[str, Callable[[Parts], hl.Func]] = {
    "a declared number of channels": channels_declared,
    "divided after the largest": lambda p: after(p, lambda s, t: hl.exp((s - t) / 8)),
    "multiplied after it": lambda p: after(p, lambda s, t: hl.exp(hl.f32(0.125) * (s - t))),
    "powers of two after it": lambda p: after(
        p, lambda s, t: hl.pow(TWO, (s - t) * hl.f32(EIGHTH))
    ),
    "each scaled": lambda p: after(
        p, lambda s, t: hl.pow(TWO, s * hl.f32(EIGHTH) - t * hl.f32(EIGHTH))
    ),
    "scaled after a mask": lambda p: masked(p, -1e30),
    "scaled after a mask, from the lowest number": lambda p: masked(p, -3.4e38),
    "hl.maximum": largest,
    "hl.maximum of a mask": lambda p: masked(p, -math.inf),
    "probabilities": probabilities,
    "probabilities by an inverse": by_inverse,
    "by the logarithm of the sum": by_logarithm,
    "by a logarithm of base 2": by_binary_logarithm,
    "times an inverse": with_reciprocals,
    "queries scaled in float16": lambda p: of_scaled(p, queries=True),
    "keys scaled in float16": lambda p: of_scaled(p, queries=False),
    "products scaled": lambda p: scaled_terms(p, lambda q, k: q * k * hl.f32(0.125)),
    "products divided": lambda p: scaled_terms(p, lambda q, k: q * k / 8),
    "queries scaled in products": lambda p: scaled_terms(p, lambda q, k: q * hl.f32(0.125) * k),
    "scores of float16": rounded_scores,
    "a total of rounded weights": total_of_rounded,
}


def arrays_of(heads: int, queries: int, keys: int) -> dict[str, Array]:
    random, rows = np.random.default_rng(3), {"Q": queries, "K": keys, "V": keys}
    return {
        name: random.standard_normal((heads, length, DEPTH)).astype(np.float16)
        for name, length in rows.items()
    }


def exact(arrays: dict[str, Array], *, causal: bool) -> Array:
    q, k, v = (arrays[name].astype(float) for name in "QKV")
    scores = q @ np.swapaxes(k, -1, -2) / 8
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ v / weights.sum(-1, keepdims=True)


def error(result: Any, truth: Array) -> float:
    return float(np.linalg.norm(np.asarray(result) - truth) / np.linalg.norm(truth))


def scheduled(output: hl.Func) -> hb.Schedule:
    long = (16, 2048, DEPTH)
    sizes = {"Q": long, "K": long, "output": long}
    return hb.autoschedule(output, target="sm_90a", sizes=sizes)


@pytest.mark.parametrize("name", STYLES)
def test_it_is_one_loop_over_keys_and_right(name: str) -> None:
    output = STYLES[name](Parts())
    schedule = scheduled(output)
    assert schedule.report.count(ONE_LOOP) == 3, schedule.report
    assert "not " not in schedule.report
    kernel = hb.compile(output, target="sm_90a")
    kernels, plan = emit_kernels(kernel.module, find_target("sm_90a"))
    for sizes in ((1, 1, 1), (2, 70, 83), (1, 130, 65)):
        arrays = arrays_of(*sizes)
        truth = exact(arrays, causal="mask" in name)
        found = [kernel.interpret(**arrays, sizes=truth.shape)]
        run = simulate(kernels, plan, arrays, truth.shape)
        assert run.faults == ()
        found += [*run.outputs.values(), check(kernel, **arrays, sizes=truth.shape)]
        for result in found:
            assert error(result, truth) < (1e-3 if name == "scores of float16" else 5e-4)


@pytest.mark.parametrize(
    "name", ["probabilities by an inverse", "by the logarithm of the sum", "products scaled"]
)
def test_what_is_written_down_gives_the_same_program(name: str) -> None:
    one, other = STYLES[name](Parts()), STYLES[name](Parts())
    exec(scheduled(one).source, {"hb": hb, "hl": hl, "output": other})
    assert hb.compile(one, target="sm_90a").source == hb.compile(other, target="sm_90a").source


def largest_half(p: Parts) -> hl.Func:
    half = func("half", f16(p.scaled()[n, m, h]))
    top = p.top(half, -65504, F16)
    return p.divided(hl.exp(f32(half[n, m, h]) - f32(top[m, h])))


def inline_sums(p: Parts) -> hl.Func:
    c = hl.RDom([(0, DEPTH)], "c")
    product = hl.sum(c, f32(p.q[c.x, m, h]) * f32(p.k[c.x, n, h]))
    scores = func("scores", product / 8)
    return p.divided(hl.exp(scores[n, m, h] - p.top(scores)[m, h]))


def bare_powers(p: Parts) -> hl.Func:
    return p.divided(hl.exp(p.scaled()[n, m, h]))


def other_weights(p: Parts) -> hl.Func:
    scaled = p.scaled()
    return p.divided(hl.fast_exp(scaled[n, m, h] - p.top(scaled)[m, h]))


def started(p: Parts) -> hl.Func:
    weights, total, _ = p.usual()
    r, mixed = p.keys(), hl.Func("mixed")
    rounded = func("rounded", f16(weights[n, m, h]))
    mixed[d, m, h] = hl.f32(1)
    mixed[d, m, h] += f32(rounded[r.x, m, h]) * f32(p.v[d, r.x, h])
    return p.output((mixed[d, m, h] - 1) / total[m, h])


def powers_of_more(p: Parts) -> hl.Func:
    """Divided weights that would be too large for float16 if they were not."""
    scaled = p.scaled()
    top = p.top(scaled)
    weights = func("weights", hl.exp(scaled[n, m, h] - top[m, h] + 80))
    total = p.total(weights)
    return p.output(p.mixed(func("p", f16(weights[n, m, h] / total[m, h])))[d, m, h])


def half_logarithm(p: Parts) -> hl.Func:
    """Less by half of the logarithm only, twice."""
    scaled = p.scaled()
    top = p.top(scaled)
    total = p.total(func("weights", hl.exp(scaled[n, m, h] - top[m, h])))
    less = hl.log(total[m, h]) / 2
    power = hl.exp(scaled[n, m, h] - top[m, h] - less - less)
    return p.output(p.mixed(func("p", f16(power)))[d, m, h])


def logarithm_of_more(p: Parts) -> hl.Func:
    scaled = p.scaled()
    top = p.top(scaled)
    total = p.total(func("weights", hl.exp(scaled[n, m, h] - top[m, h])))
    whole = func("lse", top[m, h] + hl.log(total[m, h]), m, h)
    power = hl.exp(scaled[n, m, h] + 5 - whole[m, h]) * hl.f32(math.exp(-5))
    return p.output(p.mixed(func("p", f16(power)))[d, m, h])


APART: dict[str, tuple[Callable[[Parts], hl.Func], str]] = {
    "a largest score of float16": (largest_half, "`top` is kept in float16"),
    "as many channels as there are": (channels_unknown, "how many terms `scores` adds up"),
    "hl.sum": (inline_sums, "the dimensions of `sum` are in another order"),
    "no largest score": (bare_powers, "no largest score of a row is taken off"),
    "other weights": (other_weights, "its weights are not hl.exp or hl.pow"),
    "a sum from one on": (started, "`mixed` does not start at 0"),
    "weights of more than one": (powers_of_more, "`p` is divided by `total` and rounded"),
    "less by a logarithm, of more than one": (
        logarithm_of_more,
        "`p` is divided by `total` and rounded",
    ),
    "halves of a logarithm": (half_logarithm, "`p` is divided by `total` and rounded"),
}


@pytest.mark.parametrize("name", APART)
def test_what_is_not_says_why_and_is_right(name: str) -> None:
    style, why = APART[name]
    output = style(Parts())
    schedule = scheduled(output)
    assert ONE_LOOP not in schedule.report
    assert f"  not one loop over keys: {why}" in schedule.report
    kernel = hb.compile(output, target="sm_90a")
    arrays = arrays_of(2, 33, 70)
    truth = exact(arrays, causal=False)
    assert error(kernel.interpret(**arrays, sizes=truth.shape), truth) < 1e-3


def test_a_product_beside_attention_has_nothing_said_of_loops() -> None:
    p = Parts()
    r = p.keys()
    term = f32(p.q[r.x, m, h]) * f32(p.k[d, r.x, h])
    output = p.output(p.summed("mixed", (d, m, h), term)[d, m, h])
    assert "loop over keys" not in scheduled(output).report


@dataclass(frozen=True)
class Rows:
    """``total[m] = sum of weight[n, m]``, and a sum of weights made of both."""

    weight: Callable[[Any, Any], Any]

    def build(self) -> tuple[hl.Func, hl.Func, hl.Func, hl.Func]:
        image = hl.ImageParam(F32, 2, "I")
        r = hl.RDom([(0, image.dim(0).extent())], "r")
        total, sums, out = hl.Func("total"), hl.Func("sums"), hl.Func("out")
        total[m] = hl.f32(0)
        total[m] += image[r.x, m]
        share = func("share", self.weight(image[n, m], total[m]), n, m)
        sums[m] = hl.f32(0)
        sums[m] += share[r.x, m] * image[r.x, m]
        out[m] = sums[m]
        return share, total, sums, out


QUOTIENTS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Array], Array]]] = {
    "a quotient": (lambda w, t: w / t, lambda w: w),
    "an inverse": (lambda w, t: (1 / t) * w, lambda w: w),
    "a logarithm": (lambda w, t: hl.exp(w - (2 + hl.log(t))), lambda w: np.exp(w - 2)),
    "nothing else": (lambda w, t: hl.exp(-hl.log(t)), np.ones_like),
    "of base 2": (
        lambda w, t: hl.pow(TWO, w - hl.log(t) * hl.f32(math.log2(math.e))),
        np.exp2,
    ),
}


@pytest.mark.parametrize("name", QUOTIENTS)
def test_a_sum_is_divided_in_place_of_its_terms(name: str) -> None:
    weight, left = QUOTIENTS[name]
    share, total, sums, out = Rows(weight).build()
    hb.divided_last(share, total, sums, out)
    rows = np.random.default_rng(1).uniform(0.5, 1, (5, 9)).astype(np.float32)
    found = hb.compile(out, target="sm_80", schedule="auto").interpret(I=rows, sizes=(5,))
    wide = rows.astype(float)
    assert error(found, (left(wide) * wide).sum(1) / wide.sum(1)) < 1e-6


@pytest.mark.parametrize(
    "weight",
    [
        lambda w, t: w * t,
        lambda w, t: t / w,
        lambda w, t: w / (t + 1),
        lambda w, t: w / t / t,
        lambda w, t: hl.exp(w + hl.log(t)),
        lambda w, t: hl.exp(w - 2 * hl.log(t)),
        lambda w, t: hl.pow(TWO, w - hl.log(t)),
        lambda w, t: hl.sqrt(w) - t,
    ],
)
def test_what_is_no_quotient_by_the_total_is_refused(weight: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(ScheduleError, match="`share` is not divided by `total`"):
        hb.divided_last(*Rows(weight).build())


def test_terms_without_a_number_are_refused() -> None:
    p = Parts()
    scores = p.scores()
    with pytest.raises(ScheduleError, match="`scores` are multiplied by nothing"):
        hb.multiplied_last(scores, func("reader", scores[n, m, h]))


def test_a_parameter_comes_last_as_well() -> None:
    """Of a product that nobody calls attention."""
    p, scale = Parts(), hl.Param(F32, "scale")
    c = hl.RDom([(0, DEPTH)], "c")
    term = scale * f32(p.q[c.x, m, h]) * (f32(p.k[c.x, n, h]) / 3)
    scores = p.summed("scores", (n, m, h), term)
    output = func("output", scores[n, m, h] + 1)
    report = hb.autoschedule(output, target="sm_90a", sizes=(16, 512, 512)).report
    assert "scores: on tensor units" in report
    kernel = hb.compile(output, target="sm_90a")
    arrays = arrays_of(2, 33, 70)
    q, k = arrays["Q"].astype(float), arrays["K"].astype(float)
    truth = q @ np.swapaxes(k, -1, -2) * 0.7 / 3 + 1
    found = kernel.interpret(Q=arrays["Q"], K=arrays["K"], scale=0.7, sizes=truth.shape)
    assert error(found, truth) < 1e-5


def test_a_loop_over_keys_ends_at_the_length_of_its_batch() -> None:
    kernel = hb.compile(ORDERS["lengths"].scheduled()[0], target="sm_90a")
    (loop,) = [
        s for s in walk_stmt(kernel.module.body) if isinstance(s, For) and s.kind is ForKind.SERIAL
    ]
    assert "L[output.s0.b.block_id" in print_expr(loop.extent)
