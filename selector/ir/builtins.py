"""Halide's bitwise intrinsics and markers, which every program may hold: their meaning for the
interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

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
