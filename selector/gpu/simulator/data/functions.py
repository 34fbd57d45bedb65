"""The device functions that legal expressions call, on arrays: what ``cuda.snippets`` says in C,
and the compiler's own.

Half precision is moved as it is, bfloat16 as its bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from selector.gpu.ir.values import panel_index, strip_column
from selector.gpu.simulator.data.values import BOOLEAN
from selector.ir.bfloat16 import from_bits, to_bits
from selector.ir.tf32 import to_tf32

Function = Callable[..., Any]
_F32 = np.float32


def from_bf16(x: Any) -> Any:
    return from_bits(x)[()]


def to_bf16(x: Any) -> Any:
    """Rounded to the nearest, to even ones between two; all that are not numbers are one."""
    bits = to_bits(x).reshape(np.shape(x))
    return np.where(np.isnan(x), np.uint16(0x7FFF), bits)[()]


def to_integer(x: Any, element: np.dtype[Any]) -> Any:
    """Of floats: towards zero, saturated (PTX ISA: cvt.rzi)."""
    info = np.iinfo(element)
    whole = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=2e38, neginf=-2e38))
    low, high = whole <= info.min, whole >= info.max
    found = np.where(low | high, 0, whole).astype(element)
    return np.where(low, info.min, np.where(high, info.max, found)).astype(element)[()]


# ------------------------------------------------------------------ integers


def quotient(a: Any, b: Any) -> Any:
    """C's: towards zero."""
    if a.dtype.kind == "f":
        return a / b
    if a.dtype.kind == "u":
        return a // b
    found = np.abs(a) // np.abs(b)
    return np.where((a < 0) != (b < 0), -found, found).astype(a.dtype)[()]


def remainder(a: Any, b: Any) -> Any:
    """Of that."""
    return np.fmod(a, b)


def floor_div(a: Any, b: Any) -> Any:
    """Halide's: the remainder is never negative, and by zero gives zero."""
    rest = floor_mod(a, b)
    safe = np.where(b == 0, 1, b).astype(a.dtype)
    return np.where(b == 0, 0, (a - rest) // safe).astype(a.dtype)[()]


def floor_mod(a: Any, b: Any) -> Any:
    size = np.abs(np.where(b == 0, 1, b)).astype(a.dtype)
    return np.where(b == 0, 0, a % size).astype(a.dtype)[()]


def shifted_right(a: Any, by: Any) -> Any:
    """Halide's: by a negative amount the other way."""
    bits = 8 * a.dtype.itemsize
    wide = by.astype(np.int64)
    right = np.where(wide >= bits, bits - 1, np.where(wide < 0, 0, wide))
    left = np.where(-wide >= bits, bits - 1, np.where(wide > 0, 0, -wide))
    down = np.where((wide >= bits) & (a >= 0), 0, a >> right.astype(a.dtype))
    up = np.where(-wide >= bits, 0, a << left.astype(a.dtype))
    return np.where(wide >= 0, down, up).astype(a.dtype)[()]


def shifted_left(a: Any, by: Any) -> Any:
    return shifted_right(a, -by.astype(np.int64))


def _of_bits(f: Function) -> Function:
    """Of two integers, the second as one of the first one's type."""

    def of_both(a: Any, b: Any) -> Any:
        return f(a, b.astype(a.dtype))

    return of_both


def _population(a: Any) -> Any:
    return np.bitwise_count(a).astype(np.int32)


def _leading_zeros(a: Any) -> Any:
    bits = 8 * a.dtype.itemsize
    spread = a
    for step in (1, 2, 4, 8, 16, 32)[: bits.bit_length() - 1]:
        spread = spread | (spread >> a.dtype.type(step))
    return np.int32(bits) - _population(spread)


def _first_set(a: Any) -> Any:
    """The place of the lowest bit, from 1; of 0 it is 0."""
    lowest = a & (~a + a.dtype.type(1))
    found = 8 * a.dtype.itemsize - _leading_zeros(lowest)
    return np.where(a == 0, 0, found).astype(np.int32)[()]


# ------------------------------------------------------------------ pairs of halves


def _bits(a: Any) -> Any:
    return np.asarray(a).view(np.uint16).astype(np.uint32)


def pack16(a: Any, b: Any) -> Any:
    return (_bits(a) | (_bits(b) << np.uint32(16)))[()]


def _to_tf32(v: Any) -> Any:
    return to_tf32(v, even=True).reshape(np.shape(v))[()]


def pack32(a: Any) -> Any:
    return np.asarray(a).view(np.uint32)[()]


def pack8(*parts: Any) -> Any:
    found = np.uint32(0)
    for i, part in enumerate(parts):
        found = found | ((part.astype(np.uint32) & np.uint32(255)) << np.uint32(8 * i))
    return found


def half_of(pair: Any, i: Any) -> Any:
    bits = pair >> (np.uint32(16) * i.astype(np.uint32)) & np.uint32(0xFFFF)
    return np.asarray(bits.astype(np.uint16)).view(np.float16)[()]


def round_pair(a: Any, b: Any) -> Any:
    return pack16(a.astype(np.float16), b.astype(np.float16))


def _round_pair_bf16(a: Any, b: Any) -> Any:
    return pack16(to_bf16(a), to_bf16(b))


def _halves(pair: Any) -> tuple[Any, Any]:
    return half_of(pair, np.uint32(0)), half_of(pair, np.uint32(1))


def _in_pairs(f: Function) -> Function:
    def both(a: Any, b: Any) -> Any:
        parts = (
            f(x.astype(_F32), y.astype(_F32)) for x, y in zip(_halves(a), _halves(b), strict=True)
        )
        return round_pair(*parts)

    return both


def _compared(f: Function) -> Function:
    def both(a: Any, b: Any) -> Any:
        low, high = (f(x, y) for x, y in zip(_halves(a), _halves(b), strict=True))
        return np.where(low, np.uint32(0xFFFF), np.uint32(0)) | np.where(
            high, np.uint32(0xFFFF0000), np.uint32(0)
        )

    return both


def bits_as(element: np.dtype[Any]) -> Function:
    def read(x: Any) -> Any:
        if element == BOOLEAN:
            return np.asarray(x).view(np.uint8).astype(bool)[()]
        return np.asarray(x).view(element)[()]

    return read


def _rounded(f: Function) -> Function:
    """A function that works in float64."""
    return lambda *x: np.asarray(f(*(a.astype(np.float64) for a in x))).astype(x[0].dtype)[()]


def _inverse(x: Any) -> Any:
    return 1 / x


def _inverse_root(x: Any) -> Any:
    return 1 / np.sqrt(x)


def _root_times(x: Any, n: Any) -> Any:
    return np.power(x.astype(np.float64), float(n) + 0.5).astype(x.dtype)[()]


def _pair_abs(a: Any) -> Any:
    return a & np.uint32(0x7FFF7FFF)


def _pair_select(mask: Any, a: Any, b: Any) -> Any:
    return (mask & a) | (~mask & b)


_MATH: dict[str, Function] = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "log10": np.log10,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "pow": np.power, "atan2": np.arctan2,
    "sqrt": np.sqrt, "rsqrt": _inverse_root, "floor": np.floor, "ceil": np.ceil,
    "rint": np.rint, "trunc": np.trunc, "fabs": np.abs, "round": np.rint,
    "fmod": np.fmod, "fmin": np.fmin, "fmax": np.fmax, "cbrt": np.cbrt,
}  # fmt: skip

FUNCTIONS: dict[str, Function] = {
    **{name: _rounded(f) for name, f in _MATH.items()},
    **{f"{name}f": _rounded(f) for name, f in _MATH.items()},
    **{f"pair_{name}": _in_pairs(f) for name, f in (
        ("add", np.add), ("sub", np.subtract), ("mul", np.multiply),
        ("min", np.fmin), ("max", np.fmax),
    )},
    **{f"pair_{name}": _compared(f) for name, f in (
        ("eq", np.equal), ("lt", np.less), ("le", np.less_equal),
        ("gt", np.greater), ("ge", np.greater_equal),
    )},
    "pair_abs": _pair_abs,
    "pair_select": _pair_select,
    "half_of": half_of,
    "round_pair": round_pair,
    "round_pair_bf16": _round_pair_bf16,
    "pack16": pack16,
    "pack_shorts": pack16,
    "pack32": pack32,
    "pack8": pack8,
    "to_tf32": _to_tf32,
    "abs": np.abs,
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
    "__frcp_rn": _rounded(_inverse),
    "__frsqrt_rn": _rounded(_inverse_root),
    "exp2_rounded": _rounded(np.exp2),
    "exp_rounded": _rounded(np.exp),
    "pow_rounded": _rounded(np.power),
    "root_times": _root_times,
    "divided_rounded": _rounded(np.divide),
    "tanh_approximate": _rounded(np.tanh),
    "floor_div": floor_div,
    "floor_mod": floor_mod,
    "floor_mod_near": floor_mod,
    "shifted_left": shifted_left,
    "shifted_right": shifted_right,
    "bitwise_and": _of_bits(np.bitwise_and),
    "bitwise_or": _of_bits(np.bitwise_or),
    "bitwise_xor": _of_bits(np.bitwise_xor),
    "bitwise_not": np.bitwise_not,
    "shift_right": _of_bits(np.right_shift),
    "__popc": _population, "__popcll": _population,
    "__clz": _leading_zeros, "__clzll": _leading_zeros,
    "__ffs": _first_set, "__ffsll": _first_set,
    "panel_index": panel_index,
    "strip_column": strip_column,
    "__int_as_float": bits_as(np.dtype("f4")),
    "anew": np.positive,
    "byte_float": np.float32,
}  # fmt: skip
"""By their names; the arguments have the types that expressions say."""
