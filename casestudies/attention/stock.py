"""The baseline of attention, for stock Halide: three stages that go through memory.

Stock Halide takes no sums along with a maximum, so that this is what it does best (paper section
IV). The first takes the scores of a run of keys at a time and leaves the logarithm of the
sum of their exponentials, the second joins the runs of a query, the third takes the weights
``exp(score - logarithm)`` as f16 to the values. Exponentials are rounded to f16 in the sum as well,
like the weights that it normalizes. Scores are computed in both the first and the third stage: they
cost less than the bytes of an array of queries x keys. Keys and values past the last are 0, and do
not count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import halide as hl

from casestudies.attention.algorithm import LOWEST, Variant
from casestudies.attention.problem import Problem
from casestudies.attention.scores import variant
from casestudies.common.stock import fix_sizes
from selector.diagnostics import UserError

RUN = 64  # keys that share a partial sum
OTHERS = ("types", "sharing", "keys", "window")  # fields of problems that it does not know
GAIN = 4096.0  # of the weights, for f16: most of them are near 1 / length


@dataclass(frozen=True, slots=True)
class Stages:
    """The Funcs that a schedule talks about, by stage; ``n`` counts keys, ``m`` queries, ``d``
    channels, ``h`` heads, ``t`` runs of keys.
    """

    depth: int
    query: hl.ImageParam
    key: hl.ImageParam
    value: hl.ImageParam
    keys: hl.Func
    values: hl.Func
    scores: hl.Func
    peak: hl.Func
    mass: hl.Func
    part: hl.Func
    top: hl.Func
    total: hl.Func
    shift: hl.Func
    again: hl.Func
    weight: hl.Func
    mixed: hl.Func
    output: hl.Func
    n: hl.Var
    m: hl.Var
    d: hl.Var
    h: hl.Var
    t: hl.Var
    c: hl.RDom
    j: hl.RDom
    r: hl.RDom


def attend(
    depth: int, *, causal: bool = False, scale: float | None = None, other: Variant | None = None
) -> Stages:
    """The unscheduled pipeline; ``depth`` (channels of a head) is a constant of the compiled
    kernels, the numbers of heads, queries and keys are not. The rest is as the algorithm has it.
    """
    query, key, value = (hl.ImageParam(hl.Float(16), 3, name) for name in "QKV")
    n, m, d, h, t = (hl.Var(name) for name in "nmdht")
    length = key.dim(1).extent()
    runs = (length + RUN - 1) // RUN
    c, j = hl.RDom([(0, RUN)], "c"), hl.RDom([(0, runs)], "j")
    r = hl.RDom([(0, runs * RUN)], "r")
    names = "keys values scores peak mass part top total shift again weight mixed output"
    f = {name: hl.Func(name) for name in names.split()}
    factor = 1 / math.sqrt(depth) if scale is None else scale

    for padded, source in (("keys", key), ("values", value)):
        inside = source[d, hl.min(n, length - 1), h]
        f[padded][d, n, h] = hl.select(n < length, inside, hl.cast(hl.Float(16), 0))
    for name in ("scores", "again"):
        k = hl.RDom([(0, depth)], f"k_{name}")
        f[name][n, m, h] = hl.f32(0.0)
        f[name][n, m, h] += hl.f32(query[k.x, m, h]) * hl.f32(f["keys"][k.x, n, h])

    def score(func: hl.Func, n: hl.Expr) -> hl.Expr:
        scaled = func[n, m, h] * hl.f32(factor)
        return scaled if other is None else other.score(scaled, n, m, h) * hl.f32(other.factor)

    place = t * RUN + c.x
    counts = (place < length) & (place <= m) if causal else place < length
    seen = hl.select(counts, score(f["scores"], place), hl.f32(LOWEST))
    f["peak"][m, t, h] = hl.f32(LOWEST)
    f["peak"][m, t, h] = hl.max(f["peak"][m, t, h], seen)
    f["mass"][m, t, h] = hl.f32(0.0)
    f["mass"][m, t, h] += hl.f32(hl.cast(hl.Float(16), hl.exp(seen - f["peak"][m, t, h])))
    f["part"][m, t, h] = f["peak"][m, t, h] + hl.log(f["mass"][m, t, h])

    f["top"][m, h] = hl.f32(LOWEST)
    f["top"][m, h] = hl.max(f["top"][m, h], f["part"][m, j.x, h])
    f["total"][m, h] = hl.f32(0.0)
    f["total"][m, h] += hl.exp(f["part"][m, j.x, h] - f["top"][m, h])
    most = math.log(GAIN)
    f["shift"][m, h] = hl.f32(most) - f["top"][m, h] - hl.log(f["total"][m, h])

    exponent = score(f["again"], n) + f["shift"][m, h]
    if causal:
        exponent = hl.select(n <= m, exponent, hl.f32(LOWEST))
    f["weight"][n, m, h] = hl.cast(hl.Float(16), hl.exp(hl.min(exponent, hl.f32(most))))
    f["mixed"][d, m, h] = hl.f32(0.0)
    f["mixed"][d, m, h] += hl.f32(f["weight"][r.x, m, h]) * hl.f32(f["values"][d, r.x, h])
    f["output"][d, m, h] = f["mixed"][d, m, h] * hl.f32(1 / GAIN)
    return Stages(depth, query, key, value, **f, n=n, m=m, d=d, h=h, t=t, c=c, j=j, r=r)


def cuda(problem: Problem) -> hl.Func:
    """Best effort without tensor instructions, for stock Halide; returns the output.

    A thread has one query: its scores of some keys, or its sums of all channels, in registers. Keys
    and values are the same for all threads of a block and come as vectors. The baseline is compiled
    for the one size of ``problem``, which gives stock Halide its best chance.
    """
    usual = Problem(problem.heads, problem.length, problem.depth)
    if any(getattr(problem, f) != getattr(usual, f) for f in OTHERS):
        raise UserError(f"the baseline of stock Halide is not for {problem.name}")
    other = variant(problem.score)
    p = attend(problem.depth, causal=problem.causal, scale=problem.scale, other=other)
    parameters = (p.query, p.key, p.value, *(other.parameters if other else ()))
    fix_sizes(parameters, p.output, problem)
    mo, mi = hl.Var("mo"), hl.Var("mi")
    guard = hl.TailStrategy.GuardWithIf
    p.part.compute_root().split(p.m, mo, mi, 128, guard).reorder(mi, mo, p.t, p.h)
    p.part.gpu_blocks(mo, p.t, p.h).gpu_threads(mi)
    for sums in (p.peak, p.mass):
        sums.compute_at(p.part, mi)
        sums.update().unroll(p.c.x)
    thread_scores(p, p.scores, p.part, mi, RUN)

    p.shift.compute_root().split(p.m, mo, mi, 128, guard).gpu_blocks(mo, p.h).gpu_threads(mi)
    p.top.compute_at(p.shift, mi)
    p.total.compute_at(p.shift, mi)

    p.output.bound(p.d, 0, p.depth).split(p.m, mo, mi, 128, guard).reorder(p.d, mi, mo, p.h)
    p.output.gpu_blocks(mo, p.h).gpu_threads(mi).vectorize(p.d, 4).unroll(p.d)
    p.mixed.compute_at(p.output, mi).unroll(p.d)
    ro, ri = hl.RVar("ro"), hl.RVar("ri")
    update = p.mixed.update().split(p.r.x, ro, ri, 8).reorder(p.d, ri, ro)
    update.unroll(p.d).unroll(ri)
    p.weight.compute_at(p.mixed, ro).unroll(p.n)
    thread_scores(p, p.again, p.mixed, ro, 8)
    values = p.values.in_(p.mixed)
    values.compute_at(p.mixed, ri).vectorize(values.args()[0], 8).unroll(values.args()[0])
    return p.output


def thread_scores(
    p: Stages, scores: hl.Func, consumer: hl.Func, loop: hl.Var | hl.RVar, keys: int
) -> None:
    """A thread's scores of some keys, eight channels at a time."""
    scores.compute_at(consumer, loop).bound_extent(p.n, keys).unroll(p.n)
    ko, ki = hl.RVar("ko"), hl.RVar("ki")
    (channel,) = scores.rvars(0)
    scores.update().split(channel, ko, ki, 8).reorder(ki, p.n, ko).unroll(ki).unroll(p.n)
    query, key = p.query.in_(scores), p.keys.in_(scores)
    query.compute_at(scores, ko).bound_extent(query.args()[0], 8).vectorize(query.args()[0])
    key.compute_at(scores, p.n).bound_extent(p.d, 8).vectorize(p.d)
