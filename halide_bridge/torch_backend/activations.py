"""Activations: operators of one element that networks have between their layers."""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import halide

from halide_bridge.torch_backend.pointwise import ERF, elementwise, erf, expm1, log1p, logistic
from halide_bridge.torch_backend.values import HALVES, Making, Value, constant, rule

hl: Any = halide


def _gelu_rounded(approximate: str) -> Callable[[Any], Any]:
    """``0.5 x (1 + tanh(u))`` is ``x / (1 + exp(-2 u))``; ``erf`` as there."""

    def tanh(a: Any) -> Any:
        scale = 2 * math.sqrt(2 / math.pi)
        return logistic(a, a * (hl.f32(scale) + a * a * hl.f32(0.044715 * scale)))

    def plain(a: Any) -> Any:
        square = hl.min(a * a, hl.f32(32))
        c = [2 * w * 0.5**n * math.sqrt(0.5) for n, w in enumerate(ERF)]
        odd = hl.f32(c[1]) + square * hl.f32(c[2])
        return logistic(a, a * (hl.f32(c[0]) + square * odd))

    return tanh if approximate == "tanh" else plain


@rule("gelu")
def gelu(m: Making, x: Value, approximate: str = "none") -> Value:
    if m.dtype in HALVES:
        return elementwise(m, _gelu_rounded(approximate), x)

    def tanh(a: Any) -> Any:
        cubic = a + hl.f32(0.044715) * a * a * a
        return a * hl.f32(0.5) * (1 + hl.tanh(hl.f32(math.sqrt(2 / math.pi)) * cubic))

    def plain(a: Any) -> Any:
        return a * hl.f32(0.5) * (1 + erf(m, a * hl.f32(math.sqrt(0.5))))

    return elementwise(m, tanh if approximate == "tanh" else plain, x)


@rule("gelu_backward")
def gelu_backward(m: Making, grad: Value, x: Value, approximate: str = "none") -> Value:
    def plain(g: Any, a: Any) -> Any:
        below = hl.f32(0.5) * (1 + erf(m, a * hl.f32(math.sqrt(0.5))))
        return g * (below + a * hl.exp(a * a * hl.f32(-0.5)) * hl.f32(1 / math.sqrt(2 * math.pi)))

    def tanh(g: Any, a: Any) -> Any:
        scale, cubic = hl.f32(math.sqrt(2 / math.pi)), hl.f32(0.044715)
        t = hl.tanh(scale * (a + cubic * a * a * a))
        slope = (1 - t * t) * scale * (1 + 3 * cubic * a * a)
        return g * (hl.f32(0.5) * (1 + t) + hl.f32(0.5) * a * slope)

    return elementwise(m, tanh if approximate == "tanh" else plain, grad, x)


@rule("threshold_backward")
def threshold_backward(m: Making, grad: Value, x: Value, threshold: float) -> Value:
    def at(g: Any, a: Any) -> Any:
        return hl.select(a <= constant(threshold, m.dtype), hl.cast(g.type(), 0), g)

    return elementwise(m, at, grad, x)


@rule("elu")
def elu(m: Making, x: Value, alpha: float = 1, scale: float = 1, inner: float = 1) -> Value:
    def at(a: Any) -> Any:
        below = hl.f32(alpha) * expm1(a * hl.f32(inner))
        return hl.f32(scale) * hl.select(a > 0, a, below)

    return elementwise(m, at, x)


@rule("leaky_relu")
def leaky_relu(m: Making, x: Value, slope: float = 0.01) -> Value:
    return elementwise(m, lambda a: hl.select(a > 0, a, a * constant(slope, m.dtype)), x)


@rule("hardsigmoid")
def hardsigmoid(m: Making, x: Value) -> Value:
    return elementwise(m, lambda a: hl.clamp(a + 3, 0, 6) / 6, x)


@rule("hardswish")
def hardswish(m: Making, x: Value) -> Value:
    return elementwise(m, lambda a: a * hl.clamp(a + 3, 0, 6) / 6, x)


@rule("softplus")
def softplus(m: Making, x: Value, beta: float = 1, threshold: float = 20) -> Value:
    def at(a: Any) -> Any:
        scaled = a * hl.f32(beta)
        soft = log1p(hl.exp(hl.min(scaled, hl.f32(threshold)))) / hl.f32(beta)
        return hl.select(scaled > hl.f32(threshold), a, soft)

    return elementwise(m, at, x)
