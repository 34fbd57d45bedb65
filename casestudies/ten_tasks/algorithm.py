"""The ten tasks of NineToothed's paper (section 5) as plain Halide.

There is no schedule here, and no size but those that an algorithm has (channels of a head, taps).
Arrays are f16, sums f32. Dimensions are those of torch's tensors, the last one first.
"""

from __future__ import annotations

import math

import halide as hl

F16, F32 = hl.Float(16), hl.Float(32)
b, c, d, h, i, j, n, x, y = map(hl.Var, "bcdhijnxy")


def f16(value: hl.Expr) -> hl.Expr:
    return hl.cast(F16, value)


def half(dimensions: int, name: str) -> hl.ImageParam:
    return hl.ImageParam(F16, dimensions, name)


def add() -> hl.Func:
    one, other, out = half(1, "input"), half(1, "other"), hl.Func("add")
    out[i] = one[i] + other[i]
    return out


def addmm() -> hl.Func:
    bias, a, w, out = half(2, "input"), half(2, "mat1"), half(2, "mat2"), hl.Func("addmm")
    beta, alpha = hl.Param(F32, "beta"), hl.Param(F32, "alpha")
    total, k = hl.Func("total"), hl.RDom([(0, a.width())], "k")
    total[j, i] += hl.f32(a[k, i]) * hl.f32(w[j, k])
    out[j, i] = f16(beta * hl.f32(bias[j, i]) + alpha * total[j, i])
    return out


def bmm() -> hl.Func:
    a, w, out = half(3, "input"), half(3, "mat2"), hl.Func("bmm")
    total, k = hl.Func("total"), hl.RDom([(0, a.width())], "k")
    total[j, i, b] += hl.f32(a[k, i, b]) * hl.f32(w[j, k, b])
    out[j, i, b] = f16(total[j, i, b])
    return out


def conv2d() -> hl.Func:
    """Over channels, which are innermost: (N, H, W, C) with weights (K, R, S, C)."""
    image, w, out = half(4, "input"), half(4, "filter"), hl.Func("conv2d")
    total, r = hl.Func("total"), hl.RDom([(0, w.width()), (0, 3), (0, 3)], "r")
    total[c, x, y, n] += hl.f32(image[r.x, x + r.y, y + r.z, n]) * hl.f32(w[r.x, r.y, r.z, c])
    out[c, x, y, n] = f16(total[c, x, y, n])
    return out


def mm() -> hl.Func:
    a, w, out = half(2, "input"), half(2, "mat2"), hl.Func("mm")
    total, k = hl.Func("total"), hl.RDom([(0, a.width())], "k")
    total[j, i] += hl.f32(a[k, i]) * hl.f32(w[j, k])
    out[j, i] = f16(total[j, i])
    return out


def rms_norm() -> hl.Func:
    a, out = half(2, "input"), hl.Func("rms_norm")
    squares, k = hl.Func("squares"), hl.RDom([(0, a.width())], "k")
    squares[i] += hl.f32(a[k, i]) * hl.f32(a[k, i])
    scale = 1 / hl.sqrt(squares[i] / hl.f32(a.width()) + hl.f32(1e-6))
    out[j, i] = f16(hl.f32(a[j, i]) * scale)
    return out


def rope(depth: int = 64) -> hl.Func:
    """(batch, length, heads, depth): the halves of each head are turned by the angles."""
    a, sin, cos, out = half(4, "input"), half(2, "sin"), half(2, "cos"), hl.Func("rope")
    first = d % (depth // 2)
    re, im = hl.f32(a[first, h, i, b]), hl.f32(a[first + depth // 2, h, i, b])
    s, t = hl.f32(sin[first, i]), hl.f32(cos[first, i])
    out[d, h, i, b] = f16(hl.select(d < depth // 2, re * t - im * s, re * s + im * t))
    out.bound(d, 0, depth)
    return out


def sdpa(depth: int = 64) -> hl.Func:
    """(batch, heads, length, depth); powers are of 2, as processors have them."""
    q, keys, values, out = half(4, "query"), half(4, "key"), half(4, "value"), hl.Func("sdpa")
    scores, weights, rounded = hl.Func("scores"), hl.Func("weights"), hl.Func("rounded")
    peak, sums, mixed = hl.Func("peak"), hl.Func("sums"), hl.Func("mixed")
    r, k = hl.RDom([(0, depth)], "r"), hl.RDom([(0, keys.dim(1).extent())], "k")
    scaled, factor = hl.Func("scaled"), depth**-0.5 * math.log2(math.e)
    scores[j, i, h, b] += hl.f32(q[r, i, h, b]) * hl.f32(keys[r, j, h, b])
    scaled[j, i, h, b] = scores[j, i, h, b] * hl.f32(factor)
    peak[i, h, b] = hl.f32(-1e30)
    peak[i, h, b] = hl.max(peak[i, h, b], scaled[k, i, h, b])
    weights[j, i, h, b] = hl.pow(hl.f32(2), scaled[j, i, h, b] - peak[i, h, b])
    sums[i, h, b] += weights[k, i, h, b]
    rounded[j, i, h, b] = f16(weights[j, i, h, b])
    mixed[d, i, h, b] += hl.f32(rounded[k, i, h, b]) * hl.f32(values[d, k, h, b])
    out[d, i, h, b] = f16(mixed[d, i, h, b] / sums[i, h, b])
    out.bound(d, 0, depth)
    return out


def silu() -> hl.Func:
    a, out = half(1, "input"), hl.Func("silu")
    value = hl.f32(a[i])
    out[i] = f16(value / (1 + hl.exp(-value)))
    return out


def softmax() -> hl.Func:
    a, out = half(2, "input"), hl.Func("softmax")
    peak, weight, sums = hl.Func("peak"), hl.Func("weight"), hl.Func("sums")
    k = hl.RDom([(0, a.width())], "k")
    peak[i] = hl.f32(-1e30)
    peak[i] = hl.max(peak[i], hl.f32(a[k, i]))
    weight[j, i] = hl.exp(hl.f32(a[j, i]) - peak[i])
    sums[i] += weight[k, i]
    out[j, i] = f16(weight[j, i] / sums[i])
    return out


TASKS = (add, addmm, bmm, conv2d, mm, rms_norm, rope, sdpa, silu, softmax)
