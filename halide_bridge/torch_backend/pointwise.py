"""Operators that give one element for one."""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import halide

from halide_bridge.torch_backend.values import (
    FLOATS,
    HALVES,
    Making,
    Value,
    cast,
    computed,
    constant,
    expr,
    loaded,
    rule,
    stored,
)

hl: Any = halide
Operand = Any  # a Value or a number


def elementwise(m: Making, f: Callable[..., Any], *operands: Operand, inner: str = "") -> Value:
    """``f`` of elements, all of the type ``inner`` (by default the result's)."""
    dtype = inner or m.dtype

    def at(index: Sequence[Any]) -> Any:
        return cast(computed(m.dtype), f(*(_element(m, o, index, dtype) for o in operands)))

    return Value(m.dtype, m.shape(), at)


def _element(m: Making, operand: Operand, index: Sequence[Any], dtype: str) -> Any:
    if not isinstance(operand, Value):
        return constant(operand, dtype)
    return converted(operand.broadcast(index, m.shape()), operand.dtype, dtype)


def converted(value: Any, source: str, dtype: str) -> Any:
    """An element of a dtype in the type that another is computed in."""
    value = expr(value)
    if dtype == "bool":
        return value if source == "bool" else value != hl.cast(value.type(), 0)
    if source == "bool":
        one = hl.cast(computed(dtype), 1)
        return hl.select(value, one, hl.cast(computed(dtype), 0))
    return cast(computed(dtype), value)


def common(*operands: Operand) -> str:
    """What operands are compared in."""
    kinds = [o.dtype if isinstance(o, Value) else _kind(o) for o in operands]
    floats = [k for k in kinds if k in FLOATS]
    if floats:
        return "float64" if "float64" in floats else "float32"
    return "bool" if set(kinds) == {"bool"} else "int32"


def _kind(number: Any) -> str:
    if isinstance(number, bool):
        return "bool"
    return "float32" if isinstance(number, float) else "int32"


def _unary(name: str, f: Callable[[Any], Any], floating: bool = True) -> None:
    rule(name)(lambda m, x: _of_one(m, f, x, floating))


def _of_one(m: Making, f: Callable[[Any], Any], x: Value, floating: bool = True) -> Value:
    inner = m.dtype if m.dtype in FLOATS or not floating else "float32"
    return elementwise(m, f, x, inner=inner)


def inverse_root(x: Any) -> Any:
    """1 / sqrt(x): of a float32 one instruction, at most 2 units in the last place off, as torch's
    own ``rsqrt`` is.
    """
    return hl.fast_inverse_sqrt(x) if x.type() == hl.Float(32) else 1 / hl.sqrt(x)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + hl.exp(-x))


ERF = (1.1281433794564215, 0.10408118612531318, -0.0017864748671420627)


def logistic(x: Any, exponent: Any) -> Any:
    """``x / (1 + exp(-exponent))``, in which exponential and quotient need be no better than the 16
    bits that the result has: a processor has instructions for these.
    """
    return x / (1 + hl.exp(-exponent))


def erf(m: Making, x: Any) -> Any:
    """Where the region's results are rounded to 16 bits as ``tanh`` of an odd polynomial (fitted
    here: an absolute error of 3.7e-5), which reads ``x`` five times: an epilogue has its text once
    for each register. Else by Abramowitz and Stegun 7.1.26: 1.5e-7.
    """
    if m.rounded:
        square = hl.min(x * x, hl.f32(16))
        odd = hl.f32(ERF[1]) + square * hl.f32(ERF[2])
        return hl.tanh(x * (hl.f32(ERF[0]) + square * odd))
    size = hl.abs(x)
    t = 1 / (1 + hl.f32(0.3275911) * size)
    fit = hl.f32(1.061405429)
    for c in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        fit = fit * t + hl.f32(c)
    found = 1 - fit * t * hl.exp(-size * size)
    return hl.select(x < 0, -found, found)


def expm1(x: Any) -> Any:
    """By its series where ``exp(x) - 1`` would cancel."""
    series = x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5))))
    return hl.select(hl.abs(x) < hl.f32(0.1), series, hl.exp(x) - 1)


def log1p(x: Any) -> Any:
    series = hl.f32(-1 / 6)
    for n in range(5, 0, -1):
        series = series * x + hl.f32((-1) ** (n + 1) / n)
    series = series * x
    return hl.select(hl.abs(x) < hl.f32(0.02), series, hl.log(1 + x))


def _sign(x: Any) -> Any:
    zero = hl.cast(x.type(), 0)
    return hl.select(x > zero, 1, hl.select(x < zero, -1, 0))


@rule("erf")
def erf_(m: Making, x: Value) -> Value:
    return elementwise(m, lambda a: erf(m, a), x)


for _name, _function in {
    "ceil": hl.ceil,
    "cos": hl.cos,
    "exp": hl.exp,
    "exp2": lambda x: hl.exp(x * hl.f32(math.log(2))),
    "expm1": expm1,
    "floor": hl.floor,
    "log": hl.log,
    "log1p": log1p,
    "log2": lambda x: hl.log(x) * hl.f32(1 / math.log(2)),
    "round": hl.round,
    "rsqrt": inverse_root,
    "sigmoid": _sigmoid,
    "silu": lambda x: logistic(x, x),
    "sin": hl.sin,
    "tan": lambda x: hl.sin(x) / hl.cos(x),
    "tanh": hl.tanh,
    "trunc": hl.trunc,
}.items():
    _unary(_name, _function)
for _name, _function in {
    "abs": hl.abs,
    "neg": lambda x: -x,
    "relu": lambda x: hl.select(x < hl.cast(x.type(), 0), hl.cast(x.type(), 0), x),  # keeps NaN
    "sign": _sign,
    "square": lambda x: x * x,
}.items():
    _unary(_name, _function, floating=False)


def _binary(name: str, f: Callable[[Any, Any], Any]) -> None:
    def made(m: Making, x: Operand, y: Operand) -> Value:
        return elementwise(m, f, x, y)

    rule(name)(made)


for _name, _function in {
    "mul": lambda x, y: x & y if x.type() == hl.Bool() else x * y,
    "maximum": hl.max,
    "minimum": hl.min,
    "fmod": lambda x, y: x - y * hl.trunc(x / y),
}.items():
    _binary(_name, _function)


@rule("add", "sub")
def add(m: Making, x: Operand, y: Operand, alpha: float = 1) -> Value:
    sign = -alpha if m.op.startswith("aten.sub") else alpha
    if sign == 1:
        return elementwise(m, lambda a, b: a + b, x, y)
    if sign == -1:
        return elementwise(m, lambda a, b: a - b, x, y)
    return elementwise(m, lambda a, b: a + b * constant(sign, m.dtype), x, y)


@rule("rsub")
def rsub(m: Making, x: Operand, y: Operand, alpha: float = 1) -> Value:
    return elementwise(m, lambda a, b: b - a * constant(alpha, m.dtype), x, y)


@rule("div")
def div(m: Making, x: Operand, y: Operand, rounding_mode: str | None = None) -> Value:
    if m.dtype not in FLOATS:
        if rounding_mode == "floor":
            return elementwise(m, lambda a, b: a / b, x, y)  # Halide's rounds down
        exact = {"trunc": hl.trunc, None: lambda v: v}[rounding_mode]
        return elementwise(m, lambda a, b: exact(a / b), x, y, inner="float64")
    rounded = {"floor": hl.floor, "trunc": hl.trunc, None: lambda v: v}[rounding_mode]
    return elementwise(m, lambda a, b: rounded(a / b), x, y)


@rule("remainder")
def remainder(m: Making, x: Operand, y: Operand) -> Value:
    if m.dtype in FLOATS:
        return elementwise(m, lambda a, b: a - b * hl.floor(a / b), x, y)
    return elementwise(m, lambda a, b: a - b * (a / b), x, y)


@rule("sqrt")
def root(m: Making, x: Value) -> Value:
    found = _of_one(m, hl.sqrt, x)
    # What is rounded before it is divided by keeps that rounding.
    return replace(found, square=x) if x.dtype == m.dtype == "float32" else found


@rule("reciprocal")
def reciprocal(m: Making, x: Value) -> Value:
    if x.square is not None:
        return _of_one(m, inverse_root, x.square)
    return _of_one(m, lambda y: 1 / y, x)


@rule("pow")
def power(m: Making, x: Operand, y: Operand) -> Value:
    if isinstance(y, Value) or y not in (-2, -1, -0.5, 0.5, 1, 2, 3, 4):
        return elementwise(m, hl.pow, x, y)
    small: dict[float, Callable[[Any], Any]] = {
        -2: lambda a: 1 / (a * a),
        -1: lambda a: 1 / a,
        -0.5: inverse_root,
        0.5: hl.sqrt,
        1: lambda a: a,
        2: lambda a: a * a,
        3: lambda a: a * a * a,
        4: lambda a: (a * a) * (a * a),
    }
    return elementwise(m, small[y], x)


def _comparison(name: str, f: Callable[[Any, Any], Any]) -> None:
    def made(m: Making, x: Operand, y: Operand) -> Value:
        inner = common(x, y)
        return elementwise(m, f, x, y, inner="int32" if inner == "bool" else inner)

    rule(name)(made)


for _name, _function in {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: (x < y) | (x == y),  # Halide's `<=` is `not >`, which NaN is, too
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: (y < x) | (x == y),
}.items():
    _comparison(_name, _function)


@rule("logical_and", "bitwise_and")
def both(m: Making, x: Operand, y: Operand) -> Value:
    return elementwise(m, lambda a, b: a & b, x, y)


@rule("logical_or", "bitwise_or")
def either(m: Making, x: Operand, y: Operand) -> Value:
    return elementwise(m, lambda a, b: a | b, x, y)


@rule("logical_not", "bitwise_not")
def opposite(m: Making, x: Value) -> Value:
    return elementwise(m, lambda a: ~a, x)


@rule("isnan")
def isnan(m: Making, x: Value) -> Value:
    return elementwise(m, hl.is_nan, x, inner=common(x))


@rule("where")
def where(m: Making, condition: Value, x: Operand, y: Operand) -> Value:
    def at(index: Sequence[Any]) -> Any:
        chosen = converted(condition.broadcast(index, m.shape()), condition.dtype, "bool")
        return hl.select(chosen, _element(m, x, index, m.dtype), _element(m, y, index, m.dtype))

    return Value(m.dtype, m.shape(), at)


@rule("clamp", "hardtanh")
def clamp(m: Making, x: Value, low: Operand = None, high: Operand = None) -> Value:
    if m.op.startswith("aten.hardtanh"):
        low, high = (-1.0 if low is None else low), (1.0 if high is None else high)

    def at(a: Any, *limits: Any) -> Any:
        rest = list(limits)
        if low is not None:
            a = hl.max(a, rest.pop(0))
        return a if high is None else hl.min(a, rest.pop(0))

    return elementwise(m, at, x, *(v for v in (low, high) if v is not None))


@rule("clamp_min")
def clamp_min(m: Making, x: Value, low: Operand) -> Value:
    return elementwise(m, hl.max, x, low)


@rule("clamp_max")
def clamp_max(m: Making, x: Value, high: Operand) -> Value:
    return elementwise(m, hl.min, x, high)


@rule("_to_copy", "prims.convert_element_type")
def convert(m: Making, x: Value, dtype: Any = None) -> Value:
    """To another type; a narrower one rounds here."""
    del dtype
    if m.dtype in HALVES and x.dtype != m.dtype:
        return elementwise(
            m, lambda a: loaded(stored(a, m.dtype), m.dtype), x,
            inner="float32" if x.dtype in FLOATS else x.dtype,
        )  # fmt: skip
    if m.dtype not in (*FLOATS, "bool") and x.dtype in FLOATS:
        return elementwise(m, lambda a: hl.i32(hl.trunc(a)), x, inner="float32")
    return elementwise(m, lambda a: a, x)


@rule("fill")
def fill(m: Making, x: Value, number: float) -> Value:
    del x
    return Value(m.dtype, m.shape(), lambda _: constant(number, m.dtype))
