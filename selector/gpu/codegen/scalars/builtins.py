"""Halide's intrinsics on scalars as legal expressions; what they mean: ``selector.ir.builtins``.

Each form gets the call and its arguments, legal, halves widened to float32, and makes an expression
of whatever type C's arithmetic has there. Functions that it calls are snippets of ``preamble`` or
the compiler's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Call,
    Cast,
    Compare,
    CompareOp,
    Expr,
    FloatImm,
    IntImm,
    Not,
    Select,
)
from selector.ir.simplify import literal
from selector.ir.types import FLOAT32, INT32, UINT32, Kind, Type, limits

Form = Callable[[Call, Sequence[Expr]], Expr]


def is_half(t: Type) -> bool:
    """Whether values of a type are only moved: what is computed of them is float32."""
    return t.is_float and t.bits == 16


def converted(e: Expr, t: Type) -> Expr:
    """A legal expression as a value of another type: one rounding, C's rules for integers."""
    if e.type == t:
        return e
    if is_half(e.type):
        return converted(Cast(FLOAT32, e), t)
    if is_half(t):
        return Cast(t, converted(e, FLOAT32))
    if t.is_bool:
        return Compare(CompareOp.NE, e, literal(0, e.type))
    return Cast(t, e)


def widened(e: Expr) -> Expr:
    """As C computes with it: integers of fewer than 32 bits are ints."""
    if not e.type.is_integer or e.type.bits >= 32:
        return e
    return IntImm(e.value, INT32) if isinstance(e, IntImm) else Cast(INT32, e)


def _infix(op: BinaryOp) -> Form:
    return lambda _, v: Binary(op, widened(v[0]), widened(v[1]))


def _same(name: str) -> Form:
    """A function whose result has the type of its first argument."""
    return lambda _, v: Call(v[0].type, name, tuple(v))


def _bitwise_not(call: Call, values: Sequence[Expr]) -> Expr:
    if call.type.is_bool:
        return Not(values[0])
    value = widened(values[0])
    return Call(value.type, "bitwise_not", (value,))


def unsigned(e: Expr) -> Expr:
    """An integer as an unsigned one of its own width, then of at least 32 bits."""
    own = converted(e, Type(Kind.UINT, max(8, e.type.bits)))
    return own if e.type.bits >= 32 else Cast(UINT32, own)


def count(name: str, value: Expr) -> Expr:
    """A function of the bits of an unsigned number."""
    return Call(INT32, name, (value,))


def _leading_zeros(_: Call, values: Sequence[Expr]) -> Expr:
    bits, value = values[0].type.bits, unsigned(values[0])
    if bits == 64:
        return count("__clzll", value)
    return Binary(BinaryOp.SUB, count("__clz", value), IntImm(32 - bits))


def unless_zero(value: Expr, found: Expr) -> Expr:
    """What is found of a number; of zero, how many bits it has."""
    test = Compare(CompareOp.EQ, value, literal(0, value.type))
    return Select(test, IntImm(value.type.bits), found)


def _trailing_zeros(_: Call, values: Sequence[Expr]) -> Expr:
    name = "__ffsll" if values[0].type.bits == 64 else "__ffs"
    found = Binary(BinaryOp.SUB, count(name, unsigned(values[0])), IntImm(1))
    return unless_zero(values[0], found)


def _population(_: Call, values: Sequence[Expr]) -> Expr:
    name = "__popcll" if values[0].type.bits == 64 else "__popc"
    return count(name, unsigned(values[0]))


def _saturating_cast(call: Call, values: Sequence[Expr]) -> Expr:
    """Floats go to integers of 32 and 64 bits by the machine's own conversion, which saturates."""
    source, target, value = call.args[0].type, call.type, values[0]
    if target.is_float:
        return value
    low, high = limits(target)
    if source.is_float:
        if target.bits <= 16:
            value = Binary(BinaryOp.MAX, value, FloatImm(low, value.type))
            value = Binary(BinaryOp.MIN, value, FloatImm(high, value.type))
        return converted(value, target)
    least, most = limits(source)
    value = widened(value)
    if least < low:
        value = Binary(BinaryOp.MAX, value, IntImm(low, value.type))
    if most > high:
        value = Binary(BinaryOp.MIN, value, IntImm(high, value.type))
    return value


def _difference(call: Call, values: Sequence[Expr]) -> Expr:
    a, b = values
    if call.type.is_float:
        return Call(a.type, "abs", (Binary(BinaryOp.SUB, a, b),))
    x, y = unsigned(a), unsigned(b)
    larger = Compare(CompareOp.GT, a, b)
    return Select(larger, Binary(BinaryOp.SUB, x, y), Binary(BinaryOp.SUB, y, x))


def _lerp(_: Call, values: Sequence[Expr]) -> Expr:
    a, b, weight = values
    weight = converted(weight, a.type)
    rest = Binary(BinaryOp.SUB, FloatImm(1.0, a.type), weight)
    return Binary(BinaryOp.ADD, Binary(BinaryOp.MUL, a, rest), Binary(BinaryOp.MUL, b, weight))


FORMS: dict[str, Form] = {
    "bitwise_and": _same("bitwise_and"),
    "bitwise_or": _same("bitwise_or"),
    "bitwise_xor": _same("bitwise_xor"),
    "bitwise_not": _bitwise_not,
    "shift_left": _same("shifted_left"),
    "shift_right": _same("shifted_right"),
    "reinterpret": lambda call, v: Call(call.type, "bits_as", tuple(v)),
    "absd": _difference,
    "saturating_cast": _saturating_cast,
    "count_leading_zeros": _leading_zeros,
    "count_trailing_zeros": _trailing_zeros,
    "popcount": _population,
    "div_round_to_zero": _infix(BinaryOp.DIV),
    "mod_round_to_zero": _infix(BinaryOp.MOD),
    "lerp": _lerp,
    "strict_float": lambda _, v: v[0],
    "unsafe_promise_clamped": lambda _, v: v[0],
}

RAW_ARGUMENTS = frozenset(("reinterpret", "strict_float", "unsafe_promise_clamped"))
"""Calls that take half-precision arguments as they are; others get them as float."""


def legal_builtin(call: Call, values: Sequence[Expr]) -> Expr | None:
    """The form of an intrinsic; None for any other call."""
    if call.name == "lerp" and not call.type.is_float:
        return None
    form = FORMS.get(call.name)
    return None if form is None else form(call, values)
