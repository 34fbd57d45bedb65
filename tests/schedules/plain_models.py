"""More plain pipelines, as users write them: rows and columns of matrices, and parts of models."""

from __future__ import annotations

import halide as hl
import numpy as np
from plain_chains import halves
from plain_pipelines import F16, F32, I32, Plain, bytes_, floats

b, d, h, n, i, j = (hl.Var(name) for name in "bdhnij")


def log_softmax() -> Plain:
    logits, out = hl.ImageParam(F16, 2, "logits"), hl.Func("out")
    r, top, total = hl.RDom([(0, logits.width())], "r"), hl.Func("top"), hl.Func("total")
    top[i] = hl.maximum(hl.f32(logits[r, i]))
    total[i] += hl.exp(hl.f32(logits[r, i]) - top[i])
    out[j, i] = hl.cast(F16, hl.f32(logits[j, i]) - top[i] - hl.log(total[i]))
    return Plain(out, [(logits, halves(9, 403) * np.float16(8))], (9, 403), 5e-3)


def softmax_of_halves() -> Plain:
    scores, out, r = hl.ImageParam(F16, 2, "scores"), hl.Func("out"), None
    r = hl.RDom([(0, scores.width())], "r")
    top, e, total = hl.Func("top"), hl.Func("e"), hl.Func("total")
    top[i] = hl.f32(-1e30)
    top[i] = hl.max(top[i], hl.f32(scores[r, i]))
    e[j, i] = hl.exp(hl.f32(scores[j, i]) - top[i])
    total[i] += e[r, i]
    out[j, i] = hl.cast(F16, e[j, i] / total[i])
    return Plain(out, [(scores, halves(9, 403) * np.float16(8))], (9, 403), 5e-3)


def norm_of_a_sum() -> Plain:
    """A residual, its norm over channels, and the sum itself for the next layer."""
    own, skipped = hl.ImageParam(F16, 2, "own"), hl.ImageParam(F16, 2, "skipped")
    scale, shift = hl.ImageParam(F16, 1, "scale"), hl.ImageParam(F16, 1, "shift")
    both, mean, variance, out = (hl.Func(s) for s in ("both", "mean", "variance", "normal"))
    k, wide = hl.RDom([(0, own.width())], "k"), hl.f32(own.width())
    both[j, i] = hl.f32(own[j, i]) + hl.f32(skipped[j, i])
    mean[i] += both[k, i] / wide
    away = both[k, i] - mean[i]
    variance[i] += away * away / wide
    normal = (both[j, i] - mean[i]) / hl.sqrt(variance[i] + hl.f32(1e-5))
    out[j, i] = hl.cast(F16, normal * hl.f32(scale[j]) + hl.f32(shift[j]))
    data = [(own, halves(7, 301)), (skipped, halves(7, 301, seed=1))]
    data += [(scale, halves(301, seed=2)), (shift, halves(301, seed=3))]
    return Plain(out, data, (7, 301), 5e-3)


def cross_entropy() -> Plain:
    logits, wanted = hl.ImageParam(F16, 2, "logits"), hl.ImageParam(I32, 1, "wanted")
    top, total, loss = hl.Func("top"), hl.Func("total"), hl.Func("loss")
    r = hl.RDom([(0, logits.width())], "r")
    top[i] = hl.maximum(hl.f32(logits[r, i]))
    total[i] += hl.exp(hl.f32(logits[r, i]) - top[i])
    right = hl.clamp(wanted[i], 0, logits.width() - 1)
    loss[i] = hl.log(total[i]) + top[i] - hl.f32(logits[right, i])
    data = [(logits, halves(13, 405)), (wanted, bytes_(13).astype(np.int32))]
    return Plain(loss, data, (13,), 1e-3)


def least_of_rows() -> Plain:
    table, out = hl.ImageParam(F32, 2, "table"), hl.Func("least")
    best, r = hl.Func("best"), hl.RDom([(0, table.width())], "r")
    best[i] = hl.argmin(table[r, i])
    out[i] = best[i][0]
    return Plain(out, [(table, floats(11, 333))], (11,))


def spread_of_columns() -> Plain:
    """Means and variances, as batches are normalised with."""
    table = hl.ImageParam(F32, 2, "table")
    sums, squares, mean, variance = (hl.Func(s) for s in ("sums", "squares", "mean", "variance"))
    r, count = hl.RDom([(0, table.height())], "r"), hl.f32(table.height())
    sums[j] += table[j, r]
    squares[j] += table[j, r] * table[j, r]
    mean[j] = sums[j] / count
    variance[j] = squares[j] / count - mean[j] * mean[j]
    sizes = {"mean": (77,), "variance": (77,)}
    return Plain([mean, variance], [(table, floats(90, 77))], sizes, 1e-4)


def running_sums() -> Plain:
    table, out = hl.ImageParam(F32, 2, "table"), hl.Func("run")
    r = hl.RDom([(1, table.width() - 1)], "r")
    out[j, i] = table[j, i]
    out[r, i] += out[r - 1, i]
    return Plain(out, [(table, floats(5, 301))], (5, 301), 1e-4)


def biased_gelu() -> Plain:
    value, bias, skipped = (hl.ImageParam(F16, k, s) for k, s in ((2, "v"), (1, "b"), (2, "s")))
    out, half = hl.Func("out"), hl.Func("half")
    v = hl.f32(value[j, i]) + hl.f32(bias[j])
    half[j, i] = hl.tanh(hl.f32(0.7978845608) * (v + hl.f32(0.044715) * v * v * v))
    out[j, i] = hl.cast(F16, v * hl.f32(0.5) * (1 + half[j, i]) + hl.f32(skipped[j, i]))
    data = [(value, halves(9, 203)), (bias, halves(203, seed=1)), (skipped, halves(9, 203, seed=2))]
    return Plain(out, data, (9, 203), 1e-3)


def gated() -> Plain:
    """SwiGLU: the halves of a row."""
    both, out = hl.ImageParam(F16, 2, "both"), hl.Func("out")
    gate, value = hl.f32(both[j, i]), hl.f32(both[j + both.width() / 2, i])
    out[j, i] = hl.cast(F16, gate / (1 + hl.exp(-gate)) * value)
    return Plain(out, [(both, halves(9, 410))], (9, 205), 1e-3)


def turned_heads() -> Plain:
    """Rotary positions: (batch, length, heads, 64)."""
    a, sin, cos = (
        hl.ImageParam(F16, 4, "a"),
        hl.ImageParam(F16, 2, "sin"),
        hl.ImageParam(F16, 2, "cos"),
    )
    out, low = hl.Func("out"), d % 32
    re, im = hl.f32(a[low, h, i, b]), hl.f32(a[low + 32, h, i, b])
    s, t = hl.f32(sin[low, i]), hl.f32(cos[low, i])
    out[d, h, i, b] = hl.cast(F16, hl.select(d < 32, re * t - im * s, re * s + im * t))
    out.bound(d, 0, 64)
    data = [(a, halves(2, 11, 3, 64)), (sin, halves(11, 32, seed=1)), (cos, halves(11, 32, seed=2))]
    return Plain(out, data, (2, 11, 3, 64), 1e-3)


def attention() -> Plain:
    """(batch, heads, length, 64)."""
    q, keys, values = (hl.ImageParam(F16, 4, name) for name in ("q", "keys", "values"))
    score, top, weight, total, mixed, out = (
        hl.Func(s) for s in ("score", "top", "weight", "total", "mixed", "out")
    )
    r, k = hl.RDom([(0, 64)], "r"), hl.RDom([(0, keys.dim(1).extent())], "k")
    score[j, i, h, b] += hl.f32(q[r, i, h, b]) * hl.f32(keys[r, j, h, b])
    top[i, h, b] = hl.maximum(score[k, i, h, b])
    weight[j, i, h, b] = hl.exp((score[j, i, h, b] - top[i, h, b]) / 8)
    total[i, h, b] += weight[k, i, h, b]
    mixed[d, i, h, b] += hl.f32(hl.cast(F16, weight[k, i, h, b])) * hl.f32(values[d, k, h, b])
    out[d, i, h, b] = hl.cast(F16, mixed[d, i, h, b] / total[i, h, b])
    out.bound(d, 0, 64)
    data = [(p, halves(1, 2, 45, 64, seed=s)) for s, p in enumerate((q, keys, values))]
    return Plain(out, data, (1, 2, 45, 64), 5e-3)


def mlp() -> Plain:
    """Two layers with biases, GELU between them; weights as torch has them."""
    tokens, up, down = (hl.ImageParam(F16, 2, name) for name in ("tokens", "up", "down"))
    b1, b2 = hl.ImageParam(F16, 1, "b1"), hl.ImageParam(F16, 1, "b2")
    first, hidden, second, out = (hl.Func(s) for s in ("first", "hidden", "second", "out"))
    k, m = hl.RDom([(0, tokens.width())], "k"), hl.RDom([(0, up.height())], "m")
    first[j, i] += hl.f32(tokens[k, i]) * hl.f32(up[k, j])
    v = first[j, i] + hl.f32(b1[j])
    bent = 1 + hl.tanh(hl.f32(0.7978845608) * (v + hl.f32(0.044715) * v * v * v))
    hidden[j, i] = hl.cast(F16, v * hl.f32(0.5) * bent)
    second[j, i] += hl.f32(hidden[m, i]) * hl.f32(down[m, j])
    out[j, i] = hl.cast(F16, second[j, i] + hl.f32(b2[j]))
    data = [(tokens, halves(37, 64)), (up, halves(96, 64, seed=1)), (down, halves(40, 96, seed=2))]
    data += [(b1, halves(96, seed=3)), (b2, halves(40, seed=4))]
    return Plain(out, data, (37, 40), 5e-3)


def quantised_layer() -> Plain:
    """Signed bytes, scaled by channel, rounded and saturated."""
    tokens, weights = hl.ImageParam(hl.Int(8), 2, "tokens"), hl.ImageParam(hl.Int(8), 2, "weights")
    scale, sums, out = hl.ImageParam(F32, 1, "scale"), hl.Func("sums"), hl.Func("out")
    k = hl.RDom([(0, tokens.width())], "k")
    sums[j, i] = 0
    sums[j, i] += hl.i32(tokens[k, i]) * hl.i32(weights[k, j])
    out[j, i] = hl.i8_sat(hl.round(hl.f32(sums[j, i]) * scale[j]))
    data = [(p, bytes_(s, 128, seed=s).astype(np.int8)) for p, s in ((tokens, 50), (weights, 64))]
    return Plain(out, [*data, (scale, floats(64) / 999)], (50, 64), 2)


def power_spectrum() -> Plain:
    """Of rows, by the matrices of the discrete transform."""
    signal, cos, sin = (hl.ImageParam(F16, 2, name) for name in ("signal", "cos", "sin"))
    re, im, out = hl.Func("re"), hl.Func("im"), hl.Func("power")
    k = hl.RDom([(0, signal.width())], "k")
    re[j, i] += hl.f32(signal[k, i]) * hl.f32(cos[j, k])
    im[j, i] += hl.f32(signal[k, i]) * hl.f32(sin[j, k])
    out[j, i] = re[j, i] * re[j, i] + im[j, i] * im[j, i]
    data = [(signal, halves(35, 64)), (cos, halves(64, 64, seed=1)), (sin, halves(64, 64, seed=2))]
    return Plain(out, data, (35, 64), 1e-3)


def k_means_step() -> Plain:
    """Which centre each point is nearest to, and the means of those."""
    points, centres = hl.ImageParam(F32, 2, "points"), hl.ImageParam(F32, 2, "centres")
    away, label, sums, count, out = (hl.Func(s) for s in ("away", "label", "sums", "count", "next"))
    r, k = hl.RDom([(0, 8)], "r"), hl.RDom([(0, centres.height())], "k")
    step = points[r, n] - centres[r, j]
    away[j, n] += step * step
    label[n] = hl.argmin(away[k, n])[0]
    p = hl.RDom([(0, points.height())], "p")
    mine = hl.clamp(label[p], 0, 15)
    sums[d, j] = hl.f32(0)
    sums[d, mine] += points[d, p]
    count[j] = 0
    count[mine] += 1
    out[d, j] = sums[d, j] / hl.f32(hl.max(count[j], 1))
    return Plain(out, [(points, floats(203, 8)), (centres, floats(16, 8, seed=5))], (16, 8), 1e-4)


MODELS = {
    make.__name__: make
    for make in (
        log_softmax, softmax_of_halves, norm_of_a_sum, cross_entropy, least_of_rows,
        spread_of_columns, running_sums, biased_gelu, gated, turned_heads, attention, mlp,
        quantised_layer, power_spectrum, k_means_step,
    )
}  # fmt: skip
