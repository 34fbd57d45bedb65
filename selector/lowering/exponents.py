"""What a power of an online sum goes down from, as one form: ``x - c * m`` of a maximum m.

    exp((x - m) * c)               exp(x * c - m * c)
    exp(c * x - (m * c + y))   =>  exp(c * x - y - m * c)

with a positive number c, behind masks or not, and as it was where it is ``x - m`` already. What is
multiplied stays finite as m is: a multiple of a maximum that may begin so low that it would not be
is held above ``online_forms.LOWEST``, of which all powers are 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from selector.dataclass import dataclass
from selector.ir.contents import bits_of, kinds_of, loaded
from selector.ir.nodes import Binary, BinaryOp, Call, Expr, Load, Select, Stmt
from selector.ir.simplify import float_constant
from selector.ir.traverse import map_expr, map_stmt
from selector.lowering.online_forms import constantly, times

_CHANGED = bits_of(Call, Select)
_SIGNS = {BinaryOp.ADD: 1.0, BinaryOp.SUB: -1.0}


def with_multiples(s: Stmt, maximum: str, floors: Mapping[str, float]) -> Stmt:
    """The statement with the exponents of its powers in that form, and masks around products with
    positive numbers, not inside.
    """

    def power(e: Expr) -> Expr:
        if not kinds_of(e) & _CHANGED:
            return e
        match map_expr(e, power):
            case Call(_, "exp_f32" | "pow_f32", (*base, x)) as inner if maximum in loaded(x):
                return replace(inner, args=(*base, _exponent(x, maximum, floors)))
            case Binary(BinaryOp.MUL, Select() as masked, b) if (float_constant(b) or 0) > 0:
                return _scaled(masked, float_constant(b) or 1.0)
            case inner:
                return inner

    return map_stmt(s, lambda b: with_multiples(b, maximum, floors), power)


def _exponent(e: Expr, maximum: str, floors: Mapping[str, float]) -> Expr:
    match e:
        case Select(c, value, low) if float_constant(low) is not None:
            return Select(c, _exponent(value, maximum, floors), low)
        case Binary(BinaryOp.SUB, x, Load(_, name)) if name == maximum and name not in loaded(x):
            return e
        case _:
            pass
    found = _sum_of(e, maximum)
    if found is None or found.rest is None or found.factor >= 0:
        return e
    scaled = times(found.load, -found.factor, floors.get(maximum, 0.0))
    return Binary(BinaryOp.SUB, found.rest, scaled)


@dataclass(frozen=True, slots=True)
class _Sum:
    """``rest + factor * load``, of the maximum."""

    rest: Expr | None
    factor: float
    load: Load


def _sum_of(e: Expr, maximum: str) -> _Sum | None:
    """An expression so; None for what is none, or has the maximum of several rows in a lane."""
    match e:
        case Load(_, buffer) if buffer == maximum:
            return _Sum(None, 1.0, e)
        case Binary(BinaryOp.MUL, a, b) if (factor := float_constant(b)) is not None:
            inner = _sum_of(a, maximum)
            rest = inner and inner.rest and _scaled(inner.rest, factor)
            return inner and replace(inner, rest=rest, factor=inner.factor * factor)
        case Binary(BinaryOp.MUL, a, b) if float_constant(a) is not None:
            return _sum_of(Binary(BinaryOp.MUL, b, a), maximum)
        case Binary(BinaryOp.ADD | BinaryOp.SUB as op, a, b) if maximum not in loaded(b):
            inner = _sum_of(a, maximum)
            return inner and replace(inner, rest=_added(op, inner.rest, b))
        case Binary(BinaryOp.ADD | BinaryOp.SUB as op, a, b) if maximum not in loaded(a):
            inner = _sum_of(b, maximum)
            if inner is None:
                return None
            rest = a if inner.rest is None else Binary(op, a, inner.rest)
            return replace(inner, rest=rest, factor=inner.factor * _SIGNS[op])
        case _:
            return None


def _added(op: BinaryOp, a: Expr | None, b: Expr) -> Expr:
    if a is not None:
        return Binary(op, a, b)
    return b if op is BinaryOp.ADD else _scaled(b, -1.0)


def _scaled(e: Expr, factor: float) -> Expr:
    """So many times an expression; masks stay outside."""
    match e:
        case Select(c, a, b) if factor > 0 and (_is_number(a) or _is_number(b)):
            return Select(c, _scaled(a, factor), _scaled(b, factor))
        case Binary(BinaryOp.MUL, a, b) if (number := float_constant(b)) is not None:
            return Binary(BinaryOp.MUL, a, constantly(number * factor, b))
        case _:
            number = float_constant(e)
            if number is not None:
                return constantly(number * factor, e)
            return Binary(BinaryOp.MUL, e, constantly(factor, e))


def _is_number(e: Expr) -> bool:
    return float_constant(e) is not None
