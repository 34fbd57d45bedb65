"""The plain algorithms, by the name of their case: a problem's output Func without a schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import halide as hl

from casestudies.attention.problem import SOFT_CAP
from casestudies.plain.common import BLOCK, EPSILON, RMS, SHIFT, SOFTMAX, THRESHOLD

F16, F32, I32 = hl.Float(16), hl.Float(32), hl.Int(32)
TYPES = {
    "f16": F16,
    "bf16": hl.BFloat(16),
    "f32": F32,
    "u8": hl.UInt(8),
    "s8": hl.Int(8),
    "s32": I32,
}
LOWEST = -3.0e38  # where a maximum begins
EDGES = {
    "repeat": hl.BoundaryConditions.repeat_edge,
    "mirror": hl.BoundaryConditions.mirror_image,
    "wrap": hl.BoundaryConditions.repeat_image,
}
b, c, f, i, j, n, t, x, y = map(hl.Var, "bcfijntxy")


def params(problem: Any) -> dict[str, hl.ImageParam]:
    return {s.name: hl.ImageParam(TYPES[s.element], len(s.shape), s.name) for s in problem.inputs}


def stored(value: hl.Expr, element: str) -> hl.Expr:
    """A sum in the type of the result; bytes are rounded and saturated."""
    if element == "u8":
        return hl.u8_sat(hl.round(value))
    return hl.cast(TYPES[element], value)


def edge(image: hl.ImageParam, boundary: str) -> hl.Func:
    if boundary == "zero":
        return hl.BoundaryConditions.constant_exterior(image, hl.cast(image.type(), 0))
    return EDGES[boundary](image)


def filter(problem: Any) -> hl.Func:  # noqa: A001 - the name of the case
    arrays, taps = params(problem), problem.taps
    source, weights, back = edge(arrays["I"], problem.boundary), arrays["K"], taps // 2
    output, total, across = hl.Func("output"), hl.Func("total"), hl.Func("across")
    args = {"one": (x, y), "three planar": (x, y, c)}.get(problem.planes, (c, x, y))

    def at(dx: Any, dy: Any) -> tuple[Any, ...]:
        moved = {"x": x + dx, "y": y + dy}
        return tuple(moved.get(v.name(), v) for v in args)

    kind = I32 if problem.types == "u8-u8" else F32
    if problem.separable:
        r, along = hl.RDom([(0, taps)], "r"), hl.Func("along")
        along[args] = hl.f32(0)
        along[args] += hl.f32(source[at(r - back, 0)]) * hl.f32(weights[r])
        across[args] = hl.cast(F16, along[args])
        total[args] = hl.f32(0)
        total[args] += hl.f32(across[at(0, r - back)]) * hl.f32(weights[r])
    else:
        r = hl.RDom([(0, taps), (0, taps)], "r")
        total[args] = hl.cast(kind, 0)
        window = source[at(r.x - back, r.y - back)]
        total[args] += hl.cast(kind, window) * hl.cast(kind, weights[r.x, r.y])
    if kind == I32:
        half, shift = 1 << SHIFT - 1, SHIFT
        output[args] = hl.u8_sat((total[args] + half) >> shift)
    else:
        output[args] = stored(total[args], problem.elements[1])
    if problem.planes == "three interleaved":
        output.bound(c, 0, 3)
    return output


def resize(problem: Any) -> hl.Func:
    a = params(problem)
    image, high, wide = a["I"], problem.down[1].shape[1], problem.across[1].shape[1]
    tall, middle, total, output = (hl.Func(n) for n in ("tall", "middle", "total", "output"))
    u, v = hl.RDom([(0, high)], "u"), hl.RDom([(0, wide)], "v")
    row = hl.clamp(a["SY"][y] + u, 0, image.dim(2).extent() - 1)
    tall[c, x, y] += hl.f32(image[c, x, row]) * hl.f32(a["WY"][u, y])
    middle[c, x, y] = hl.cast(F16, tall[c, x, y])
    column = hl.clamp(a["SX"][x] + v, 0, image.dim(1).extent() - 1)
    total[c, x, y] += hl.f32(middle[c, column, y]) * hl.f32(a["WX"][v, x])
    output[c, x, y] = stored(total[c, x, y], problem.output.element)
    output.bound(c, 0, 3)
    return output


def dct(problem: Any) -> hl.Func:
    a, tile, step = params(problem), problem.tile, problem.stride
    image, forward, inverse = a["I"], a["F"], a["G"]
    padded, rows, bins, columns, pixels = (
        hl.Func(n) for n in ("padded", "rows", "bins", "columns", "pixels")
    )
    rows16, cored, columns16 = (hl.Func(n) for n in ("rows16", "cored", "columns16"))
    output = hl.Func("output")
    k, z = hl.RDom([(0, tile)], "k"), hl.RDom([(0, 2 * tile)], "z")
    inside_x = hl.clamp(x, 0, image.dim(1).extent() - 1)
    inside_y = hl.clamp(y, 0, image.dim(2).extent() - 1)
    padded[x, y, c] = image[c, inside_x, inside_y]
    at = step * (i / tile) - step + k
    rows[i, y, c] += hl.f32(padded[at, y, c]) * hl.f32(forward[k, i % tile])
    rows16[i, y, c] = hl.cast(F16, rows[i, y, c])
    at = step * (j / tile) - step + k
    bins[i, j, c] += hl.f32(rows16[i, at, c]) * hl.f32(forward[k, j % tile])
    value = hl.cast(F16, bins[i, j, c])
    threshold = hl.cast(F16, hl.f32(THRESHOLD))
    cored[i, j, c] = hl.select(hl.abs(value) > threshold, value, hl.cast(F16, 0))
    at = tile * (y / step) + z
    columns[i, y, c] += hl.f32(cored[i, at, c]) * hl.f32(inverse[z, y % step])
    columns16[i, y, c] = hl.cast(F16, columns[i, y, c])
    at = tile * (x / step) + z
    pixels[x, y, c] += hl.f32(columns16[at, y, c]) * hl.f32(inverse[z, x % step])
    output[c, x, y] = hl.cast(F16, pixels[x, y, c])
    output.bound(c, 0, 3)
    return output


def rows(problem: Any) -> hl.Func:
    a, out = params(problem), hl.Func("output")
    kind, wide = TYPES[problem.output.element], a["X"].width()
    k, count = hl.RDom([(0, wide)], "k"), hl.f32(wide)
    peak, weight, total, mean, squares, sums = (
        hl.Func(n) for n in ("peak", "weight", "total", "mean", "squares", "sums")
    )
    if problem.function == SOFTMAX:
        peak[i] = hl.f32(-1e30)
        peak[i] = hl.max(peak[i], hl.f32(a["X"][k, i]))
        weight[j, i] = hl.exp(hl.f32(a["X"][j, i]) - peak[i])
        total[i] += weight[k, i]
        out[j, i] = hl.cast(kind, weight[j, i] / total[i])
        return out
    epsilon = hl.f32(EPSILON)
    if problem.function == RMS:
        squares[i] += hl.f32(a["X"][k, i]) * hl.f32(a["X"][k, i])
        scale = 1 / hl.sqrt(squares[i] / count + epsilon)
        out[j, i] = hl.cast(kind, hl.f32(a["X"][j, i]) * scale * hl.f32(a["W"][j]))
        return out
    sums[j, i] = hl.f32(a["X"][j, i]) + hl.f32(a["R"][j, i])
    total[i] += sums[k, i]
    mean[i] = total[i] / count
    squares[i] += (sums[k, i] - mean[i]) * (sums[k, i] - mean[i])
    normal = (sums[j, i] - mean[i]) / hl.sqrt(squares[i] / count + epsilon)
    out[j, i] = hl.cast(kind, normal * hl.f32(a["W"][j]) + hl.f32(a["B"][j]))
    return out


def scan(problem: Any) -> hl.Func:
    """Sections of f32; before the first sample there are zeros."""
    x = params(problem)["X"]
    kind, wide = TYPES[problem.output.element], x.width()
    signal, output = (
        hl.BoundaryConditions.constant_exterior(x, hl.cast(x.type(), 0)),
        hl.Func("output"),
    )
    for number, (above, below) in enumerate(problem.sections):
        section = hl.Func(f"section{number}")
        r = hl.RDom([(0, wide)], f"r{number}")
        taps = (hl.f32(w) * hl.f32(signal[t - k, n]) for k, w in enumerate(above))
        section[t, n] = sum(taps, hl.f32(0))
        earlier = (hl.f32(w) * section[r - 1 - k, n] for k, w in enumerate(below))
        section[r, n] = sum(earlier, section[r, n])
        signal = section
    output[t, n] = hl.cast(kind, signal[t, n])
    return output


def bank(problem: Any) -> hl.Func:
    a, total, output = params(problem), hl.Func("total"), hl.Func("output")
    if problem.points:
        k = hl.RDom([(0, problem.points)], "k")
        total[j, i] += hl.f32(a["X"][k, i]) * hl.f32(a["W"][j, k])
        output[j, i] = total[j, i]
    else:
        k, signal = hl.RDom([(0, problem.taps)], "k"), hl.Func("signal")
        signal[t, f] = a["X"][t]
        total[t, f] += hl.f32(signal[t + k, f]) * hl.f32(a["W"][k, f])
        output[t, f] = total[t, f]
    return output


def padded(image: hl.ImageParam, layout: str) -> hl.Func:
    """An image with zeros around it."""
    zero, every = hl.cast(image.type(), 0), (hl.Expr(), hl.Expr())
    sides = [(0, image.dim(d).extent()) for d in range(3)]
    if layout == "NHWC":
        return hl.BoundaryConditions.constant_exterior(image, zero, [every, *sides[1:], every])
    return hl.BoundaryConditions.constant_exterior(image, zero, [*sides[:2], every, every])


def depthwise(problem: Any) -> hl.Func:
    a, total, output = params(problem), hl.Func("total"), hl.Func("output")
    source, weights = padded(a["I"], problem.layout), a["K"]
    taps, step, group, back = problem.taps, problem.stride, problem.width_of_group, problem.border
    sides = [(0, taps), (0, taps), *[(0, group)] * (group > 1)]
    r = hl.RDom(sides, "r")
    k = r.z if group > 1 else 0
    channel = c / group * group + k if group > 1 else c
    across, down = step * x + r.x - back, step * y + r.y - back
    if problem.layout == "NHWC":
        args, tap = (c, x, y, n), weights[c, k, r.x, r.y]
        pixel = source[channel, across, down, n]
    else:
        args, tap = (x, y, c, n), weights[r.x, r.y, k, c]
        pixel = source[across, down, channel, n]
    total[args] += hl.f32(pixel) * hl.f32(tap)
    output[args] = hl.cast(F16, total[args])
    return output


def layer(problem: Any) -> hl.Func:
    if problem.flat:
        return _product(problem)
    a, total, output = params(problem), hl.Func("total"), hl.Func("output")
    source, weights, step = padded(a["I"], problem.layout), a["K"], problem.stride
    kind, taps, back = I32 if problem.bytes_ else F32, problem.taps, problem.border

    def place(v: hl.Var, k: Any) -> tuple[Any, Any]:
        """A pixel along an axis, and its tap."""
        if not problem.transposed:
            return step * v + problem.dilation * k - back, k
        last = taps // step - 1
        return (v + back) / step - last + k, (v + back) % step + step * (last - k)

    span = taps // step if problem.transposed else taps
    r = hl.RDom([(0, problem.channels), (0, span), (0, span)], "r")
    (across, u), (down, v) = place(x, r.y), place(y, r.z)
    inner, args = (c, x, y, n), (c, x, y, n)
    if problem.layout == "NCHW":  # channels are innermost where the sum is
        args = (x, y, c, n)
        image, filters = hl.Func("image"), hl.Func("filters")
        image[inner], filters[inner] = source[args], weights[args]
        source, weights = image, filters
    total[inner] = hl.cast(kind, 0)
    pixel, tap = source[r.x, across, down, n], weights[r.x, u, v, c]
    total[inner] += hl.cast(kind, pixel) * hl.cast(kind, tap)
    output[args] = _finished(problem, a, total[inner], args)
    return output


def _finished(problem: Any, a: Any, value: hl.Expr, args: Any) -> hl.Expr:
    if problem.bytes_:
        return hl.i8_sat(hl.round(hl.f32(value) * a["scale"][c]))
    value += a["bias"][c]
    if problem.residual:
        value += hl.f32(a["residual"][args])
    return hl.cast(F16, hl.max(value, 0.0))


def _product(problem: Any) -> hl.Func:
    """1 x 1 taps of channels that lie outside of pixels."""
    a, total, output = params(problem), hl.Func("total"), hl.Func("output")
    k, weights = hl.RDom([(0, problem.channels)], "k"), hl.Func("weights")
    weights[i, c, n] = a["K"][i, c]
    total[x, c, n] += hl.f32(a["I"][x, k, n]) * hl.f32(weights[k, c, n])
    output[x, c, n] = _finished(problem, a, total[x, c, n], (x, c, n))
    return output


def attention(problem: Any) -> hl.Func:
    """Keys ``j``, queries ``i``, heads ``n``, channels ``c``."""
    a = params(problem)

    def score(s: hl.Expr) -> hl.Expr:
        match problem.score:
            case "soft_cap":
                s = hl.tanh(s / SOFT_CAP) * SOFT_CAP
            case "slopes":
                s += a["slopes"][n] * hl.f32(j - i)
            case "bias":
                s += hl.f32(a["bias"][j, i, n])
            case _:
                pass
        if problem.causal:
            counts = (j <= i) & (j > i - problem.window) if problem.window else j <= i
            s = _seen(counts, s)
        return s

    return _attended(problem, a, (i, n), score, lambda mixed, total: mixed / total)


def lengths(problem: Any) -> hl.Func:
    """With sequences ``b``: neither keys nor queries behind the end of one count."""
    a = params(problem)
    counts = (j < a["lengths"][b]) & (i < a["lengths"][b])
    return _attended(problem, a, (i, n, b), partial(_seen, counts), _or_nothing)


def block_mask(problem: Any) -> hl.Func:
    a = params(problem)
    counts = a["mask"][j / BLOCK, i / BLOCK] != 0
    return _attended(problem, a, (i, n), partial(_seen, counts), _or_nothing)


def _seen(counts: hl.Expr, score: hl.Expr) -> hl.Expr:
    """Nothing of a key that does not count."""
    return hl.select(counts, score, hl.f32(-math.inf))


def _or_nothing(mixed: hl.Expr, total: hl.Expr) -> hl.Expr:
    """0 for a query without keys."""
    return hl.select(total == hl.f32(0), hl.f32(0), mixed / total)


def _attended(
    problem: Any,
    a: dict[str, hl.ImageParam],
    rows: tuple[hl.Var, ...],
    score: Callable[[hl.Expr], hl.Expr],
    mean: Callable[[hl.Expr, hl.Expr], hl.Expr],
) -> hl.Func:
    """Of the ``score`` of what is scaled, and the ``mean`` of a sum and its weights."""
    operand = TYPES[problem.operand]
    names = ["scores", "seen", "peak", "weight", "total", "rounded", "mixed", "output"]
    scores, seen, peak, weight, total, rounded, mixed, output = map(hl.Func, names)
    channel = hl.RDom([(0, problem.depth)], "channel")
    keys = hl.RDom([(0, a["K"].dim(1).extent())], "keys")
    heads = rows[1:]
    if problem.sharing > 1:
        heads = (n / problem.sharing,)
    scores[j, *rows] = hl.f32(0)
    scores[j, *rows] += hl.f32(a["Q"][channel, *rows]) * hl.f32(a["K"][channel, j, *heads])
    seen[j, *rows] = score(scores[j, *rows] * hl.f32(problem.factor))
    peak[rows] = hl.f32(LOWEST)
    peak[rows] = hl.max(peak[rows], seen[keys, *rows])
    weight[j, *rows] = hl.exp(seen[j, *rows] - peak[rows])
    total[rows] = hl.f32(0)
    total[rows] += weight[keys, *rows]
    rounded[j, *rows] = hl.cast(operand, weight[j, *rows])
    mixed[c, *rows] = hl.f32(0)
    mixed[c, *rows] += hl.f32(rounded[keys, *rows]) * hl.f32(a["V"][c, keys, *heads])
    output[c, *rows] = stored(mean(mixed[c, *rows], total[rows]), problem.types.split("-")[1])
    return output
