"""A small simplifier for readable index arithmetic: constants, neutral elements, trivial lets.

The constructors (``add``, ``mul``, ...) build a node from parts that are already simple;
``simplify`` applies them from the leaves up. Integers are assumed not to overflow where Halide
assumes it too (signed, 32 bits and more); everything else is exact. Floating-point arithmetic is
left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Cast,
    Compare,
    CompareOp,
    Expr,
    FloatImm,
    IntImm,
    Let,
    Not,
    Ramp,
    Select,
    Var,
)
from selector.ir.traverse import change_expr, map_expr, substitute, walk_expr
from selector.ir.types import Kind, Type

COMPARE: dict[CompareOp, Callable[[int, int], bool]] = {
    CompareOp.EQ: lambda a, b: a == b,
    CompareOp.NE: lambda a, b: a != b,
    CompareOp.LT: lambda a, b: a < b,
    CompareOp.LE: lambda a, b: a <= b,
    CompareOp.GT: lambda a, b: a > b,
    CompareOp.GE: lambda a, b: a >= b,
}


def wrap(value: int, t: Type) -> int:
    """The integer of ``t`` with the same low bits."""
    if t.is_bool:
        return int(value != 0)
    value &= (1 << t.bits) - 1
    return value - (1 << t.bits) if t.kind is Kind.INT and value >> (t.bits - 1) else value


def floor_div(a: int, b: int) -> int:
    """Halide's division: the remainder is never negative; a division by zero gives zero."""
    return 0 if b == 0 else a // b if b > 0 else -(a // -b)


def floor_mod(a: int, b: int) -> int:
    """Halide's remainder: in ``[0, |b|)``; a division by zero gives zero."""
    return 0 if b == 0 else a % abs(b)


FOLD: dict[BinaryOp, Callable[[int, int], int]] = {
    BinaryOp.ADD: lambda a, b: a + b,
    BinaryOp.SUB: lambda a, b: a - b,
    BinaryOp.MUL: lambda a, b: a * b,
    BinaryOp.DIV: floor_div,
    BinaryOp.MOD: floor_mod,
    BinaryOp.MIN: min,
    BinaryOp.MAX: max,
    BinaryOp.AND: lambda a, b: int(a != 0 and b != 0),
    BinaryOp.OR: lambda a, b: int(a != 0 or b != 0),
}


def constant(e: Expr) -> int | None:
    """The integer that every lane of ``e`` holds, if it is a literal or a broadcast of one."""
    while type(e) is Broadcast:
        e = e.value
    return e.value if type(e) is IntImm else None


def float_constant(e: Expr) -> float | None:
    """The same for a float."""
    e = in_every_lane(e)
    return e.value if type(e) is FloatImm else None


def in_every_lane(e: Expr) -> Expr:
    """What a vector is broadcast from; anything else as it is."""
    while type(e) is Broadcast:
        e = e.value
    return e


def literal(value: float, t: Type) -> Expr:
    """``value`` in every lane of a type."""
    of = t.element
    scalar = FloatImm(float(value), of) if t.is_float else IntImm(wrap(int(value), of), of)
    return scalar if t.lanes == 1 else Broadcast(scalar, t.lanes)


def binary(op: BinaryOp, a: Expr, b: Expr) -> Expr:
    """``a op b`` with constants folded and neutral elements dropped."""
    t = a.type
    if not t.is_integer:
        return Binary(op, a, b)
    x, y = constant(a), constant(b)
    if x is not None and y is not None:
        return literal(FOLD[op](x, y), t)
    match op:
        case BinaryOp.ADD:
            return _add(a, b, x, y)
        case BinaryOp.SUB:
            if y is not None:
                return a if y == 0 else _add(a, literal(-y, a.type), None, wrap(-y, a.type.element))
            return literal(0, a.type) if a == b else Binary(op, a, b)
        case BinaryOp.MUL:
            return _mul(a, b, x, y)
        case BinaryOp.DIV | BinaryOp.MOD:
            return _divide(op, a, b, x, y)
        case BinaryOp.MIN | BinaryOp.MAX:
            return a if a == b else Binary(op, a, b)
        case BinaryOp.AND | BinaryOp.OR:
            return _logic(op, a, b, x, y)


add = partial(binary, BinaryOp.ADD)
sub = partial(binary, BinaryOp.SUB)
mul = partial(binary, BinaryOp.MUL)
div = partial(binary, BinaryOp.DIV)
mod = partial(binary, BinaryOp.MOD)


def _add(a: Expr, b: Expr, x: int | None, y: int | None) -> Expr:
    if x is not None:
        a, b, x, y = b, a, y, x
    if y is None:
        return Binary(BinaryOp.ADD, a, b)
    if y == 0:
        return a
    match a:
        case Binary(BinaryOp.ADD, inner, c) if (z := constant(c)) is not None:
            return _add(inner, literal(z + y, a.type), None, wrap(z + y, a.type.element))
        case _:
            return Binary(BinaryOp.ADD, a, b)


def _mul(a: Expr, b: Expr, x: int | None, y: int | None) -> Expr:
    if x is not None:
        a, b, y = b, a, x
    if y == 0:
        return literal(0, a.type)
    if y == 1:
        return a
    match a:
        case Binary(BinaryOp.MUL, inner, c) if y is not None and (z := constant(c)) is not None:
            return mul(inner, literal(z * y, a.type))
        case _:
            return Binary(BinaryOp.MUL, a, b)


def _divide(op: BinaryOp, a: Expr, b: Expr, x: int | None, y: int | None) -> Expr:
    quotient = op is BinaryOp.DIV
    if x == 0 or y == 0:
        return literal(0, a.type)
    if y == 1:
        return a if quotient else literal(0, a.type)
    match a:
        case Binary(BinaryOp.MUL, inner, c) if y and (z := constant(c)) and no_overflow(a.type):
            if z % y == 0:
                return mul(inner, literal(z // y, a.type)) if quotient else literal(0, a.type)
        case Binary(BinaryOp.MOD, _, c) if y and (z := constant(c)) and 0 < z <= y:
            return literal(0, a.type) if quotient else a
        case _:
            pass
    return Binary(op, a, b)


def _logic(op: BinaryOp, a: Expr, b: Expr, x: int | None, y: int | None) -> Expr:
    for value, other in ((x, b), (y, a)):
        if value is not None:
            absorbs = (value != 0) == (op is BinaryOp.OR)
            return literal(value, a.type) if absorbs else other
    return a if a == b else Binary(op, a, b)


def no_overflow(t: Type) -> bool:
    """Whether Halide takes arithmetic of this type never to overflow."""
    return t.kind is Kind.INT and t.bits >= 32


def simplify(e: Expr) -> Expr:
    """The same value, written shorter."""
    e = map_expr(e, simplify)
    match e:
        case Binary(op, a, b):
            return binary(op, a, b)
        case Compare(op, a, b):
            x, y = constant(a), constant(b)
            if x is None or y is None:
                return e
            return literal(int(COMPARE[op](x, y)), e.type)
        case Not(value):
            x = constant(value)
            return e if x is None else literal(int(not x), e.type)
        case Select(condition, then, otherwise):
            x = constant(condition)
            return e if x is None else then if x else otherwise
        case Ramp(value, _, 1) | Broadcast(value, 1):
            return value
        case Cast(t, value):
            return value if t == value.type else e
        case Let(name, value, body):
            return simplify(substitute(body, {name: value})) if _trivial(value, body) else e
        case _:
            return e


def _trivial(value: Expr, body: Expr) -> bool:
    """Whether a let is worth undoing: a literal, or a variable that nothing in the body hides."""
    match value:
        case IntImm() | FloatImm():
            return True
        case Var(name, _):
            return name not in {e.name for e in walk_expr(body) if isinstance(e, Let)}
        case _:
            return False


def as_conjunction(e: Expr) -> Expr | None:
    """A comparison of indices with the less or the more of two, as one with both."""
    match e:
        case Compare(CompareOp.LE | CompareOp.LT as op, a, Binary(BinaryOp.MIN, b, c)) | Compare(
            CompareOp.GE | CompareOp.GT as op, a, Binary(BinaryOp.MAX, b, c)
        ) if a.type.is_integer:
            both = [Compare(op, a, x) for x in (b, c)]
        case Compare(CompareOp.LE | CompareOp.LT as op, Binary(BinaryOp.MAX, b, c), a) | Compare(
            CompareOp.GE | CompareOp.GT as op, Binary(BinaryOp.MIN, b, c), a
        ) if a.type.is_integer:
            both = [Compare(op, x, a) for x in (b, c)]
        case _:
            return None
    first, second = (change_expr(x, as_conjunction) for x in both)
    return Binary(BinaryOp.AND, first, second)
