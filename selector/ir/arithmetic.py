"""What operators mean in NumPy, element by element, by the type of the IR.

A ``bfloat16`` value is a float32 that is rounded after every operation; an ``e4m3`` or ``e5m2``
value, of which nothing is computed, a float32; a ``uint1`` is a NumPy bool; integers wrap around.
Division follows Halide: the remainder is never negative and a division by zero gives zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from selector.ir.bfloat16 import round_values
from selector.ir.nodes import BinaryOp, CompareOp, ReduceOp
from selector.ir.types import Kind, Type

Array = NDArray[Any]

_LETTER = {Kind.INT: "i", Kind.UINT: "u", Kind.FLOAT: "f", Kind.HANDLE: "u"}
POISON_BYTE = 0xA5  # what an integer that nobody wrote is made of; floats are NaN

_COMPARE = {
    CompareOp.EQ: np.equal,
    CompareOp.NE: np.not_equal,
    CompareOp.LT: np.less,
    CompareOp.LE: np.less_equal,
    CompareOp.GT: np.greater,
    CompareOp.GE: np.greater_equal,
}
_BINARY = {
    BinaryOp.ADD: np.add,
    BinaryOp.SUB: np.subtract,
    BinaryOp.MUL: np.multiply,
    BinaryOp.DIV: np.divide,
    BinaryOp.MOD: np.mod,
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
    BinaryOp.AND: np.logical_and,
    BinaryOp.OR: np.logical_or,
}
_REDUCE = {op: _BINARY[op.joins] for op in ReduceOp}


def dtype_of(t: Type) -> np.dtype[Any]:
    """The NumPy type that holds values of a scalar type."""
    if t.is_bool:
        return np.dtype(np.bool_)
    letter = _LETTER.get(t.kind)
    return np.dtype("f4") if letter is None else np.dtype(f"{letter}{t.bytes}")


def storage_dtype(t: Type) -> np.dtype[Any]:
    """The NumPy type of a parameter's elements in memory: bfloat16 is its bit pattern."""
    return np.dtype("u2") if t.kind is Kind.BFLOAT else dtype_of(t)


def poisoned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array nobody wrote: NaN, or a large pattern of bits."""
    if dtype.kind == "f":
        return np.full(shape, np.nan, dtype)
    if dtype.kind == "b":
        return np.ones(shape, dtype)
    array = np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8)[:] = POISON_BYTE
    return array


def rounded(value: Array, t: Type) -> Array:
    """A fresh result as a value of type ``t``."""
    if t.kind is Kind.BFLOAT:
        return round_values(value)
    dtype = dtype_of(t)
    return value if value.dtype == dtype else value.astype(dtype)


def binary(op: BinaryOp, a: Array, b: Array, t: Type) -> Array:
    """``a op b`` for operands and a result of element type ``t``."""
    if op in (BinaryOp.DIV, BinaryOp.MOD) and t.is_integer:
        return _divide(op is BinaryOp.DIV, a, b)
    return rounded(_BINARY[op](a, b), t)


def _divide(quotient: bool, a: Array, b: Array) -> Array:
    divisor = np.where(b == 0, b.dtype.type(1), b)
    remainder = np.mod(a, divisor)  # of the divisor's sign, while Halide's is never negative
    other = remainder < 0
    with np.errstate(over="ignore"):  # of the least value by -1, which stays what it is
        quotients = a // divisor + other
    result = quotients if quotient else np.where(other, remainder - divisor, remainder)
    return np.where(b == 0, result.dtype.type(0), result)


def compare(op: CompareOp, a: Array, b: Array) -> Array:
    return _COMPARE[op](a, b)


def cast(value: Array, t: Type) -> Array:
    """Conversion to ``t``: floats to integers towards zero, integers wrap, anything to ``uint1`` is
    ``!= 0``."""
    if t.is_bool:
        return value != 0
    return rounded(value, t)


def reduce(op: ReduceOp, value: Array, lanes: int, t: Type) -> Array:
    """Each run of adjacent entries of the last axis to one of ``lanes``, in the operand's type."""
    runs = value.reshape(*value.shape[:-1], lanes, -1)
    ufunc = _REDUCE[op]
    if op in (ReduceOp.AND, ReduceOp.OR):
        return rounded(ufunc.reduce(runs, axis=-1), t)
    if t.is_bool:
        return rounded(
            (np.logical_and if op is ReduceOp.MIN else np.logical_or).reduce(runs, axis=-1), t
        )
    return rounded(ufunc.reduce(runs, axis=-1, dtype=runs.dtype), t)


def reinterpret(value: Array, source: Type, target: Type) -> Array:
    """The same bits as a value of another type of the same width."""
    from selector.ir.bfloat16 import from_bits, to_bits

    raw = to_bits(value) if source.kind is Kind.BFLOAT else np.ascontiguousarray(value)
    if target.kind is Kind.BFLOAT:
        return from_bits(raw.view(np.uint16))
    return raw.view(dtype_of(target))
