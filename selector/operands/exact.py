"""Values in a narrower type, exactly: what an operand of a tensor unit may be computed as.

``narrow(e, t)`` is an expression of type t that, cast back, is ``e`` for every value of what it
reads. Casts are undone, or taken past what commutes with them; integers fit by their ranges. What
is rounded has no such form: a sum or a product of two floats. Zeros may lose their sign.
"""

from __future__ import annotations

from collections.abc import Mapping

from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Call,
    Cast,
    Expr,
    FloatImm,
    IntImm,
    Ramp,
    Select,
    Var,
)
from selector.ir.types import Kind, Type, limits

Range = tuple[int, int]
Ranges = Mapping[str, int]
"""How many values a variable has, from 0 on."""

_SIGNIFICANT = {Kind.FLOAT: {16: 11, 32: 24, 64: 53}, Kind.BFLOAT: {16: 8}}


def whole_numbers(t: Type) -> Range:
    """The integers around zero of which a type has all."""
    if t.is_float:
        most = 1 << _SIGNIFICANT[t.kind][t.bits]
        return -most, most
    return limits(t)


def inside(part: Range, whole: Range) -> bool:
    return whole[0] <= part[0] and part[1] <= whole[1]


def embeds(narrow_type: Type, wide: Type) -> bool:
    """Whether every value of a type is one of another."""
    if narrow_type == wide:
        return True
    if narrow_type.is_float:
        return wide.is_float and wide.bits > narrow_type.bits
    return inside(whole_numbers(narrow_type), whole_numbers(wide))


def bounds(e: Expr, ranges: Ranges) -> Range:
    """A range that an integer is in, whatever it reads."""
    known = whole_numbers(e.type)
    found = _bounds(e, ranges)
    return found if found is not None and inside(found, known) else known


def _bounds(e: Expr, ranges: Ranges) -> Range | None:
    match e:
        case IntImm(value, _):
            return value, value
        case Var(name) if name in ranges:
            return 0, ranges[name] - 1
        case Cast(_, value) if value.type.is_integer:
            return bounds(value, ranges)
        case Broadcast(value, _):
            return bounds(value, ranges)
        case Ramp(first, step, count):
            (low, high), (down, up) = bounds(first, ranges), bounds(step, ranges)
            return low + min(0, (count - 1) * down), high + max(0, (count - 1) * up)
        case Select(_, a, b):
            return _ends(*bounds(a, ranges), *bounds(b, ranges))
        case Binary(BinaryOp.MOD, _, IntImm(by, _)) if by > 0:
            return 0, by - 1
        case Binary(BinaryOp.DIV, a, IntImm(by, _)) if by > 0:
            low, high = bounds(a, ranges)
            return low // by, high // by
        case Binary(op, a, b):
            return combined(op, bounds(a, ranges), bounds(b, ranges))
        case _:
            return None


def vector_bounds(e: Expr) -> Range:
    """The same of a vector's lanes."""
    return bounds(e, {})


def _ends(*values: int) -> Range:
    return min(values), max(values)


def combined(op: BinaryOp, a: Range, b: Range) -> Range | None:
    match op:
        case BinaryOp.ADD:
            return a[0] + b[0], a[1] + b[1]
        case BinaryOp.SUB:
            return a[0] - b[1], a[1] - b[0]
        case BinaryOp.MUL:
            return _ends(*(x * y for x in a for y in b))
        case BinaryOp.MIN:
            return min(a[0], b[0]), min(a[1], b[1])
        case BinaryOp.MAX:
            return max(a[0], b[0]), max(a[1], b[1])
        case _:
            return None


def is_sign(e: Expr, ranges: Ranges) -> bool:
    """Whether a value is 1, 0 or -1, so that a product with it is exact in any type."""
    match e:
        case FloatImm(value, _):
            return value in (-1.0, 0.0, 1.0)
        case Cast(_, value) if value.type.is_integer:
            return is_sign(value, ranges)
        case Select(_, a, b):
            return is_sign(a, ranges) and is_sign(b, ranges)
        case _ if e.type.is_integer:
            return inside(bounds(e, ranges), (-1, 1))
        case _:
            return False


def narrow(e: Expr, t: Type, ranges: Ranges) -> Expr | None:
    """A scalar as a value of type ``t``; None if it may not be one."""
    if e.type == t:
        return e
    if e.type.is_integer and inside(bounds(e, ranges), whole_numbers(t)):
        return IntImm(e.value, t) if isinstance(e, IntImm) and t.is_integer else Cast(t, e)
    match e:
        case FloatImm(value, _) if t.is_float and FloatImm(value, t).value == value:
            return FloatImm(value, t)
        case Cast(wide, Cast(wider, value)) if embeds(value.type, wide) and embeds(
            value.type, wider
        ):
            return narrow(value, t, ranges)
        case Cast(wide, value) if embeds(value.type, wide) or (
            value.type.is_integer and inside(bounds(value, ranges), whole_numbers(wide))
        ):
            return narrow(value, t, ranges)
        case Select(condition, a, b):
            both = _both(a, b, t, ranges)
            return None if both is None else Select(condition, *both)
        case Binary(BinaryOp.MIN | BinaryOp.MAX as op, a, b):
            both = _both(a, b, t, ranges)
            return None if both is None else Binary(op, *both)
        case Binary(BinaryOp.SUB, FloatImm(0.0, _), b):
            both = _both(e.a, b, t, ranges)
            return None if both is None else Binary(BinaryOp.SUB, *both)
        case Binary(BinaryOp.MUL, a, b) if t.is_float and (
            is_sign(a, ranges) or is_sign(b, ranges)  # of integers, the least has no negative
        ):
            both = _both(a, b, t, ranges)
            return None if both is None else Binary(BinaryOp.MUL, *both)
        case Call(_, "abs", (a,)) if e.type == a.type and e.type.is_float:
            found = narrow(a, t, ranges)
            return None if found is None else Call(t, "abs", (found,))
        case _:
            return None


def _both(a: Expr, b: Expr, t: Type, ranges: Ranges) -> tuple[Expr, Expr] | None:
    x = narrow(a, t, ranges)
    y = None if x is None else narrow(b, t, ranges)
    return None if x is None or y is None else (x, y)
