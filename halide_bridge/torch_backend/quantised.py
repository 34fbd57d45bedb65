"""Bytes that stand for floats: what a byte differs by from a zero point, times a scale. A product
of two such is one of bytes, in int32, and scales are applied to its sums.
"""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import halide

from halide_bridge.torch_backend.pointwise import elementwise
from halide_bridge.torch_backend.values import (
    Levels,
    Making,
    Value,
    axis,
    constant,
    rule,
    unsupported,
)

hl: Any = halide
BYTES = ("int8", "uint8")


@rule("quantized_decomposed.quantize_per_tensor")
def quantize_per_tensor(
    m: Making, x: Value, scale: float, zero: int, low: int, high: int, dtype: Any
) -> Value:
    """Ties go to the even number, as in torch; it multiplies by what one divided by the scale is in
    float64, rounded.
    """
    del dtype

    def nearest(a: Any) -> Any:
        found = hl.round(a * constant(1 / scale, "float32")) + constant(float(zero), "float32")
        return hl.i32(hl.clamp(found, hl.f32(low), hl.f32(high)))

    return elementwise(m, nearest, x, inner="float32")


@rule("quantized_decomposed.dequantize_per_tensor")
def dequantize_per_tensor(
    m: Making, x: Value, scale: float, zero: int, low: int, high: int, dtype: Any,
    *, out_dtype: Any = None,
) -> Value:  # fmt: skip
    del low, high, dtype, out_dtype
    factor = constant(scale, "float32")
    return _dequantised(m, Levels(x, lambda _: factor, lambda _: zero))


@rule("quantized_decomposed.dequantize_per_channel")
def dequantize_per_channel(
    m: Making, x: Value, scales: Value, zeros: Value | None, dim: int, low: int, high: int,
    dtype: Any, *, out_dtype: Any = None,
) -> Value:  # fmt: skip
    del low, high, dtype, out_dtype

    def zero(i: Any) -> Any:
        return 0 if zeros is None else zeros.at([i])

    return _dequantised(m, Levels(x, lambda i: hl.f32(scales.at([i])), zero, axis(dim, x.rank)))


def _dequantised(m: Making, levels: Levels) -> Value:
    def at(index: Sequence[Any]) -> Any:
        i = levels.of(index)
        return (hl.f32(levels.stored.at(index)) - hl.f32(levels.zero(i))) * levels.scale(i)

    found = Value(m.dtype, m.shape(), at)
    return replace(found, levels=levels) if levels.stored.dtype in BYTES else found


def scaled(sums: Any, left: Levels, right: Levels, index: Any) -> Any:
    """A sum of products as the float it stands for: ``left`` has one scale, ``right`` one for each
    ``index``.
    """
    if left.axis is not None:
        raise unsupported("scales along the sum, or of rows")
    return hl.f32(sums) * (left.scale(None) * right.scale(index))
