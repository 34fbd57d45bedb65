"""Halide's bitwise intrinsics and markers, which every program may hold: their meaning for the
interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from selector.diagnostics import InternalError
from selector.ir import arithmetic
from selector.ir.arithmetic import Array
from selector.ir.evaluator import register
from selector.ir.nodes import Call


def _shift(left: bool) -> Callable[[Call, Sequence[Array]], Array]:
    """A shift by a negative amount goes the other way; bits shifted out are lost, signs are
    kept."""

    def meaning(call: Call, values: Sequence[Array]) -> Array:
        value, amount = values
        by = amount.astype(np.int64) if left else -amount.astype(np.int64)
        bits, zero = call.type.bits, value.dtype.type(0)
        up = np.left_shift(value, np.clip(by, 0, bits - 1).astype(value.dtype))
        down = np.right_shift(value, np.clip(-by, 0, bits - 1).astype(value.dtype))
        if value.dtype.kind == "u":
            down = np.where(by <= -bits, zero, down)
        return np.where(by < 0, down, np.where(by >= bits, zero, up))

    return meaning


def _reinterpret(call: Call, values: Sequence[Array]) -> Array:
    return arithmetic.reinterpret(values[0], call.args[0].type, call.type)


def _absolute_difference(call: Call, values: Sequence[Array]) -> Array:
    a, b = values
    return np.where(a > b, a - b, b - a).astype(arithmetic.dtype_of(call.type))


def _saturating_cast(call: Call, values: Sequence[Array]) -> Array:
    """To the nearest value that the target has; floats are rounded towards zero first."""
    target = call.type.element
    if target.is_float:
        return arithmetic.cast(values[0], target)
    limits = np.iinfo(arithmetic.dtype_of(target))
    if values[0].dtype.kind == "f":
        wide = np.trunc(values[0].astype(np.float64))
        inside = np.clip(wide, float(limits.min), float(limits.max))
        below = inside < float(limits.max)  # the limit itself may round up
        return np.where(below, np.where(below, inside, 0).astype(limits.dtype), limits.max)
    low = np.maximum(values[0], max(limits.min, np.iinfo(values[0].dtype).min))
    return np.minimum(low, min(limits.max, np.iinfo(values[0].dtype).max)).astype(limits.dtype)


def _unsigned(value: Array) -> Array:
    return value.view(np.dtype(f"u{value.dtype.itemsize}"))


def _bit_length(value: Array) -> Array:
    bits = np.zeros(value.shape, np.int64)
    for shift in (32, 16, 8, 4, 2, 1):
        if shift < 8 * value.dtype.itemsize:
            high = value >> value.dtype.type(shift)
            bits, value = bits + shift * (high != 0), np.where(high != 0, high, value)
    return bits + (value != 0)


def _leading_zeros(call: Call, values: Sequence[Array]) -> Array:
    bits = _unsigned(values[0])
    return (8 * bits.dtype.itemsize - _bit_length(bits)).astype(arithmetic.dtype_of(call.type))


def _trailing_zeros(call: Call, values: Sequence[Array]) -> Array:
    bits = _unsigned(values[0])
    lowest = bits & (~bits + bits.dtype.type(1))
    found = np.where(bits == 0, 8 * bits.dtype.itemsize, _bit_length(lowest) - 1)
    return found.astype(arithmetic.dtype_of(call.type))


def _population(call: Call, values: Sequence[Array]) -> Array:
    return np.bitwise_count(_unsigned(values[0])).astype(arithmetic.dtype_of(call.type))


def _towards_zero(call: Call, values: Sequence[Array]) -> Array:
    a, b = values
    quotient = np.abs(a.astype(object)) // np.maximum(np.abs(b.astype(object)), 1)
    negative = (a < 0) != (b < 0)
    return np.where(negative, -quotient, quotient).astype(arithmetic.dtype_of(call.type))


def _remainder(call: Call, values: Sequence[Array]) -> Array:
    return (values[0] - _towards_zero(call, values) * values[1]).astype(values[0].dtype)


def _lerp(call: Call, values: Sequence[Array]) -> Array:
    if not call.type.is_float:
        raise InternalError(f"lerp of {call.type} has no meaning here, only that of floats has")
    zero, one, weight = values
    return arithmetic.cast(zero * (1 - weight) + one * weight, call.type.element)


def _nothing(call: Call, values: Sequence[Array]) -> Array:
    return np.zeros((1, call.type.lanes), arithmetic.dtype_of(call.type))


register("bitwise_and", lambda _, v: np.bitwise_and(v[0], v[1]))
register("bitwise_or", lambda _, v: np.bitwise_or(v[0], v[1]))
register("bitwise_xor", lambda _, v: np.bitwise_xor(v[0], v[1]))
register("bitwise_not", lambda _, v: np.bitwise_not(v[0]))
register("shift_left", _shift(left=True))
register("shift_right", _shift(left=False))
register("reinterpret", _reinterpret)
register("absd", _absolute_difference)
register("gpu_thread_barrier", _nothing)
register("saturating_cast", _saturating_cast)
register("count_leading_zeros", _leading_zeros)
register("count_trailing_zeros", _trailing_zeros)
register("popcount", _population)
register("div_round_to_zero", _towards_zero)
register("mod_round_to_zero", _remainder)
register("lerp", _lerp)
register("strict_float", lambda _, v: v[0])
