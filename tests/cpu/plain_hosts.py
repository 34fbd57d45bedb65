"""Plain pipelines for a CPU: products for tile registers among other Funcs, at ragged sizes, with
what they give in float64.
"""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import halide as hl
import numpy as np

from selector.ir.bfloat16 import from_bits, to_bits

BF16, F32 = hl.BFloat(16), hl.Float(32)
n, m, b, x, y = (hl.Var(name) for name in "nmbxy")


@dataclass(frozen=True)
class Plain:
    """An output, its arguments by name and its truth. ``inside``: what the report says of it."""

    output: hl.Func
    arguments: dict[str, Any]
    truth: Any
    inside: tuple[str, ...]


PIPELINES: dict[str, Callable[[], Plain]] = {}


def plain(make: Callable[[], Plain]) -> Callable[[], Plain]:
    PIPELINES[make.__name__] = make
    return make


def halves(*shape: int, seed: int = 0) -> tuple[Any, Any]:
    """bfloat16 as a kernel takes it, and in float64."""
    bits = to_bits(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))
    return bits, from_bits(bits).astype(np.float64)


def floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def product(a: Any, b_: Any, k: Any, name: str = "sums") -> hl.Func:
    sums = hl.Func(name)
    sums[n, m] += hl.f32(a(k)) * hl.f32(b_(k))
    return sums


def operands(*names: str, dimensions: int = 2, kind: Any = BF16) -> list[hl.ImageParam]:
    return [hl.ImageParam(kind, dimensions, name) for name in names]


@plain
def layer() -> Plain:
    """Weights along the sum, a bias, relu."""
    (a, w), bias = operands("a", "w"), hl.ImageParam(F32, 1, "bias")
    k, out = hl.RDom([(0, a.width())], "k"), hl.Func("out")
    sums = product(lambda k: a[k, m], lambda k: w[k, n], k)
    out[n, m] = hl.max(sums[n, m] + bias[n], 0)
    (a_, a64), (w_, w64), bias_ = halves(37, 75), halves(53, 75, seed=1), floats(53)
    truth = np.maximum(a64 @ w64.T + bias_, 0)
    return Plain(out, {"a": a_, "w": w_, "bias": bias_}, truth, ("sums: in tile registers",))


@plain
def requantised() -> Plain:
    (a,), (w,) = operands("a", kind=hl.UInt(8)), operands("w", kind=hl.Int(8))
    scale, k = hl.ImageParam(F32, 1, "scale"), hl.RDom([(0, a.width())], "k")
    sums, out = hl.Func("sums"), hl.Func("out")
    sums[n, m] += hl.i32(a[k, m]) * hl.i32(w[n, k])
    out[n, m] = hl.i8(hl.clamp(hl.round(hl.f32(sums[n, m]) * scale[n]), -128, 127))
    random = np.random.default_rng(0)
    a_ = random.integers(0, 256, (45, 131)).astype(np.uint8)
    w_ = random.integers(-128, 128, (131, 77)).astype(np.int8)
    scale_ = (random.random(77) * 1e-3).astype(np.float32)
    whole = (a_.astype(np.int64) @ w_.astype(np.int64)).astype(np.float32)
    truth = np.clip(np.rint(whole * scale_), -128, 127)
    return Plain(out, {"a": a_, "w": w_, "scale": scale_}, truth, ("sums: in tile registers",))


@plain
def zero_points() -> Plain:
    """The same of bytes that stand for numbers below themselves."""
    a, w = (hl.ImageParam(hl.UInt(8), 2, name) for name in "aw")
    k, sums, out = hl.RDom([(0, a.width())], "k"), hl.Func("sums"), hl.Func("out")
    sums[n, m] += (hl.i32(a[k, m]) - 128) * (hl.i32(w[n, k]) - 3)
    out[n, m] = sums[n, m]
    random = np.random.default_rng(0)
    a_, w_ = (random.integers(0, 256, s).astype(np.uint8) for s in ((33, 70), (70, 40)))
    truth = (a_.astype(np.int64) - 128) @ (w_.astype(np.int64) - 3)
    return Plain(out, {"a": a_, "w": w_}, truth, ("sums: in tile registers",))


@plain
def batched() -> Plain:
    a, w = operands("a", "w", dimensions=3)
    k, sums, out = hl.RDom([(0, a.width())], "k"), hl.Func("sums"), hl.Func("out")
    sums[n, m, b] += hl.f32(a[k, m, b]) * hl.f32(w[n, k, b])
    out[n, m, b] = 2 * sums[n, m, b]
    (a_, a64), (w_, w64) = halves(5, 33, 47), halves(5, 47, 65, seed=1)
    return Plain(out, {"a": a_, "w": w_}, 2 * (a64 @ w64), ("sums: in tile registers",))


@plain
def turned_rows() -> Plain:
    """The rows of A do not go along the sum, and the output is the sum, from a bias on."""
    (a, w), bias = operands("a", "w"), hl.ImageParam(F32, 1, "bias")
    k, out = hl.RDom([(0, a.height())], "k"), hl.Func("out")
    out[n, m] = bias[n]
    out[n, m] += hl.f32(a[m, k]) * hl.f32(w[n, k])
    (a_, a64), (w_, w64), bias_ = halves(132, 70), halves(132, 50, seed=1), floats(50)
    arguments = {"a": a_, "w": w_, "bias": bias_}
    return Plain(out, arguments, a64.T @ w64 + bias_, ("out: in tile registers",))


@plain
def normalised() -> Plain:
    """Operands that are computed, sums that two read, rows added up, and what reads all."""
    a, w = operands("a", "w")
    r, k = hl.RDom([(0, w.width())], "r"), hl.RDom([(0, a.width())], "k")
    positive, total, out = hl.Func("positive"), hl.Func("total"), hl.Func("out")
    positive[x, y] = hl.cast(BF16, hl.max(hl.f32(a[x, y]), 0))
    sums = product(lambda k: positive[k, m], lambda k: w[n, k], k)
    total[m] += sums[r, m] * sums[r, m]
    out[n, m] = sums[n, m] / hl.sqrt(total[m] + 1)
    (a_, a64), (w_, w64) = halves(37, 75), halves(75, 90, seed=1)
    p = np.maximum(a64, 0) @ w64
    truth = p / np.sqrt((p * p).sum(1, keepdims=True) + 1)
    said = (
        "positive: in loops of its own, vectors of 32, on all cores",
        "sums: in tile registers",
        "total: in loops of its own, rows added up in vectors of 16, on all cores",
        "not in tile registers: its factors are of float32",
        "out: in loops of its own, vectors of 16, on all cores",
    )
    return Plain(out, {"a": a_, "w": w_}, truth, said)


@plain
def two_layers() -> Plain:
    """A sum of columns at vectors, a running sum, and a second product of rounded results."""
    a, w, v = operands("a", "w", "v")
    k, l_ = hl.RDom([(0, a.width())], "k"), hl.RDom([(0, w.width())], "l")
    hidden, means, scan, out = (hl.Func(name) for name in ("hidden", "means", "scan", "out"))
    first = product(lambda k: a[k, m], lambda k: w[n, k], k, "first")
    hidden[n, m] = hl.cast(BF16, hl.max(first[n, m], 0))
    second = product(lambda k: hidden[k, m], lambda k: v[n, k], l_, "second")
    rows = hl.RDom([(0, a.height())], "rows")
    means[n] += second[n, rows]
    scan[n, m] = second[n, m] - means[n] / a.height()
    steps = hl.RDom([(1, a.height() - 1)], "steps")
    scan[n, steps] = scan[n, steps] + scan[n, steps - 1]
    out[n, m] = scan[n, m]
    (a_, a64), (w_, w64), (v_, v64) = halves(21, 33), halves(33, 40, seed=1), halves(40, 35, seed=2)
    hidden64 = from_bits(to_bits(np.maximum(a64 @ w64, 0).astype(np.float32))).astype(np.float64)
    sums = hidden64 @ v64
    said = ("first: in tile registers", "second: in tile registers", "scan: in loops of its own")
    arguments = {"a": a_, "w": w_, "v": v_}
    return Plain(out, arguments, np.cumsum(sums - sums.mean(0), 0), said)


@plain
def product_of_floats() -> Plain:
    a, w = operands("a", "w", kind=F32)
    k, sums, out = hl.RDom([(0, a.width())], "k"), hl.Func("sums"), hl.Func("out")
    sums[n, m] += a[k, m] * w[n, k]
    out[n, m] = sums[n, m]
    a_, w_ = floats(33, 47), floats(47, 65, seed=1)
    said = (
        "not in tile registers: its factors are of float32, and tile registers multiply bfloat16",
        "loops as Halide's autoscheduler Adams2019 has them",
    )
    return Plain(out, {"a": a_, "w": w_}, a_.astype(np.float64) @ w_, said)


@plain
def unsharp() -> Plain:
    """Stencils in a row, with a boundary condition."""
    photo = hl.ImageParam(F32, 2, "photo")
    edge = hl.BoundaryConditions.repeat_edge(photo)
    rows, blur, sharp = hl.Func("rows"), hl.Func("blur"), hl.Func("sharp")
    rows[x, y] = (edge[x - 1, y] + 2 * edge[x, y] + edge[x + 1, y]) / 4
    blur[x, y] = (rows[x, y - 1] + 2 * rows[x, y] + rows[x, y + 1]) / 4
    sharp[x, y] = 2 * photo[x, y] - blur[x, y]
    p = floats(33, 70)
    wide = np.pad(p.astype(np.float64), 1, mode="edge")
    across = (wide[:, :-2] + 2 * wide[:, 1:-1] + wide[:, 2:]) / 4
    truth = 2 * p - (across[:-2] + 2 * across[1:-1] + across[2:]) / 4
    return Plain(sharp, {"photo": p}, truth, ("loops as Halide's autoscheduler Adams2019",))


@plain
def nearest() -> Plain:
    """The best of a row, of which vectors have no form in C: plain loops."""
    a, r = hl.ImageParam(F32, 2, "a"), hl.RDom([(0, 40)], "r")
    out = hl.Func("out")
    out[y] = hl.argmin(a[r, y])[0]
    a_ = floats(33, 40)
    said = ("argmin: in loops of its own, on all cores", "loops not by Halide's autoscheduler")
    return Plain(out, {"a": a_}, a_.argmin(1), said)


@plain
def planes() -> Plain:
    """Three loops that cores share at once, of a filter with few channels, innermost."""
    image, c, z = hl.ImageParam(hl.UInt(8), 4, "image"), hl.Var("c"), hl.Var("z")
    rows, out = hl.Func("rows"), hl.Func("out")
    rows[c, x, y, z] = hl.u16(image[c, x, y, z]) + image[c, x + 1, y, z]
    out[c, x, y, z] = hl.u8((rows[c, x, y, z] + rows[c, x, y + 1, z]) / 4)
    out.bound(c, 0, 3)
    i = np.random.default_rng(0).integers(0, 256, (3, 12, 40, 3)).astype(np.uint8)
    across = i[:, :, :-1].astype(int) + i[:, :, 1:]
    return Plain(out, {"image": i}, (across[:, :-1] + across[:, 1:]) // 4, ("out: in loops",))
