"""The forms of statements that ``online`` knows: maxima, sums, constants, without lets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import e as base
from math import inf, isfinite, log2

import numpy as np

from selector.ir.contents import bits_of, holds, kinds_of, loaded, without_lets
from selector.ir.nodes import (
    Atomic,
    Binary,
    BinaryOp,
    Block,
    Broadcast,
    Call,
    Cast,
    Compare,
    CompareOp,
    Expr,
    FloatImm,
    IntImm,
    LetStmt,
    Load,
    Not,
    ReduceOp,
    Select,
    Stmt,
    Store,
    VectorReduce,
)
from selector.ir.simplify import float_constant, in_every_lane
from selector.ir.traverse import map_expr, map_stmt, substitute_stmt
from selector.lowering.normalize import is_one_store
from selector.lowering.predicates import conjunction
from selector.lowering.structure import stored_names


def grows(s: Store, name: str) -> bool:
    """Whether a statement is ``m[q] = max(m[q], x)``."""
    match s:
        case Store(_, index, Binary(BinaryOp.MAX, a, b), None):
            mine = [isinstance(x, Load) and x.buffer == name and x.index == index for x in (a, b)]
            other = b if mine[0] else a
            return any(mine) and name not in loaded(other)
        case _:
            return False


def terms_of(s: Store) -> Expr | None:
    """What ``s[i] = s[i] + terms`` adds."""
    match s.value:
        case Binary(BinaryOp.ADD, Load(_, name, index, None), terms) | Binary(
            BinaryOp.ADD, terms, Load(_, name, index, None)
        ) if name == s.buffer and index == s.index:
            if isinstance(terms, VectorReduce) and terms.op is not ReduceOp.ADD:
                return None
            return terms
        case _:
            return None


def is_finite(e: Expr) -> bool:
    """Whether a value is a finite constant."""
    constant = _constant(e)
    return constant is not None and isfinite(constant)


def from_finite(s: Stmt, maximum: str) -> Stmt:
    """A maximum that starts at -inf starts at the lowest number: what is found among numbers is the
    same, and of nothing but -inf all powers are 0 then, and were no numbers.
    """
    match s:
        case Store(buffer, _, value) if buffer == maximum and _constant(value) == -inf:
            return replace(s, value=constantly(float(np.finfo(np.float32).min), value))
        case _:
            return map_stmt(s, lambda b: from_finite(b, maximum), lambda e: e)


def is_zero(e: Expr) -> bool:
    """Whether a value is the constant 0."""
    return _constant(e) == 0


def _constant(e: Expr) -> float | None:
    e = in_every_lane(e)
    return e.value if isinstance(e, FloatImm | IntImm) else None


LOWEST = -3e38  # of which every power is 0
_LOWEST = float(np.float32(LOWEST))
_MASKED = bits_of(Select, Call)
LOG2_E = log2(base)
ZERO = -1000  # powers of 2 and more with an exponent of that or less are 0 in float32


def with_masked_exponents(s: Stmt, floors: Mapping[str, float]) -> Stmt:
    """``exp(select(c, x, lowest))`` for ``select(c, exp(x), 0)``, rounded or not, and ``c`` such
    that a mask's constant is what it takes where it does not hold; and
    ``exp(select(c, x - m, lowest))`` for ``exp(select(c, x, low) - m)`` where m is never so low
    that this is more than 0. ``floors``: numbers that no element of a buffer is below.
    """

    def masked(e: Expr) -> Expr:
        if not kinds_of(e) & _MASKED:
            return e
        match e:
            case Select(c, low, value) if (
                _is_constant(low) and not _is_constant(value) and (other := _negated(c)) is not None
            ):
                return masked(Select(other, value, low))
            case Select(c, value, low) if float_constant(low) == 0:
                inside = _below(c, masked(value))
                return map_expr(e, masked) if inside is None else inside
            case Call(kind, "exp_f32", (x,)):
                return Call(kind, "exp_f32", (_parted(masked(x), floors),))
            case Call(kind, "pow_f32", (base, x)) if (float_constant(base) or 0) >= 2:
                return Call(kind, "pow_f32", (base, _parted(masked(x), floors)))
            case _:
                return map_expr(e, masked)

    return map_stmt(s, lambda b: with_masked_exponents(b, floors), masked)


def _is_constant(e: Expr) -> bool:
    return float_constant(e) is not None


def _negated(c: Expr) -> Expr | None:
    """That none of some integers is less than another, or as small, for a condition that one is, or
    that something is not so; else None.
    """
    match c:
        case Not(value):
            return value
        case Compare(CompareOp.LT, a, b) if not a.type.is_float:
            return Compare(CompareOp.LE, b, a)
        case Compare(CompareOp.LE, a, b) if not a.type.is_float:
            return Compare(CompareOp.LT, b, a)
        case Binary(BinaryOp.OR, a, b):
            left, right = _negated(a), _negated(b)
            return None if left is None or right is None else conjunction(left, right)
        case _:
            return None


def _parted(exponent: Expr, floors: Mapping[str, float]) -> Expr:
    """``select(c, x - m, lowest)`` for ``select(c, x, low) - m``, if powers of the latter are 0;
    behind other masks, too.
    """
    match exponent:
        case Select(c, value, low) if _is_constant(low):
            return Select(c, _parted(value, floors), low)
        case Binary(BinaryOp.SUB, Select(c, x, low), m):
            floor, value = _floor(m, floors), float_constant(low)
            if value is not None and floor is not None and value - floor <= ZERO:
                return Select(c, _parted(Binary(BinaryOp.SUB, x, m), floors), _lowest(x))
            return exponent
        case _:
            return exponent


def _below(c: Expr, e: Expr) -> Expr | None:
    """The exponential with its exponent behind a mask; None for what is no such."""
    match e:
        case Cast(kind, value) if kind.is_float and value.type.is_float:
            inside = _below(c, value)
            return None if inside is None else Cast(kind, inside)
        case Call(kind, "exp_f32", (x,)):
            return Call(kind, "exp_f32", (Select(c, x, _lowest(x)),))
        case Call(kind, "pow_f32", (base, x)) if (float_constant(base) or 0) > 1:
            return Call(kind, "pow_f32", (base, Select(c, x, _lowest(x))))
        case _:
            return None


def with_powers_of_two(s: Stmt, floors: Mapping[str, float]) -> Stmt:
    """``2^(c*x - M)`` for ``exp(x - m)``, m of a buffer with no element below a number (``floors``)
    and M = c*m: what is multiplied is a constant in x, and a number of a row in m. It is finite
    like m, and every m becomes the same M, so that what is taken with one and rescaled by the next
    stays exact.
    """

    def power(e: Expr) -> Expr:
        if not holds(e, Call):
            return e
        match map_expr(e, power):
            case Call(kind, "exp_f32", (exponent,)) if _goes_down(exponent, floors):
                two = Broadcast(FloatImm(2.0, kind.element), kind.lanes)
                return Call(kind, "pow_f32", (two, _times(exponent, floors)))
            case inner:
                return inner

    return map_stmt(s, lambda b: with_powers_of_two(b, floors), power)


def _goes_down(exponent: Expr, floors: Mapping[str, float]) -> bool:
    """Whether an exponent is ``x - m``, behind masks or not."""
    match exponent:
        case Select(_, value, low) if _is_constant(low):
            return _goes_down(value, floors)
        case Binary(BinaryOp.SUB, _, m):
            return _floor(m, floors) is not None
        case _:
            return False


def _floor(m: Expr, floors: Mapping[str, float]) -> float | None:
    """What a number of a buffer with floors, or a multiple of it, is never below."""
    found = multiple(m)
    if found is None or found[1].buffer not in floors:
        return None
    return max(found[0] * floors[found[1].buffer], LOWEST)


def _times(e: Expr, floors: Mapping[str, float]) -> Expr:
    """A value times log2(e)."""
    match e:
        case Select(c, value, low) if (number := float_constant(low)) is not None:
            least = max(number * LOG2_E, min(number, LOWEST))  # finite as before
            return Select(c, _times(value, floors), constantly(least, low))
        case Binary(BinaryOp.SUB | BinaryOp.ADD as op, a, b):
            return Binary(op, _times(a, floors), _times(b, floors))
        case _ if (found := multiple(e)) is not None and found[1].buffer in floors:
            factor, load = found
            return times(_vector(load, e), factor * LOG2_E, floors[load.buffer])
        case Binary(BinaryOp.MUL, a, b) if (factor := float_constant(b)) is not None:
            return Binary(BinaryOp.MUL, a, constantly(factor * LOG2_E, b))
        case Binary(BinaryOp.MUL, a, b) if float_constant(a) is not None:
            return _times(Binary(BinaryOp.MUL, b, a), floors)
        case _:
            return Binary(BinaryOp.MUL, e, constantly(LOG2_E, e))


def multiple(m: Expr) -> tuple[float, Load] | None:
    """The positive number and the load that an expression is the product of (``times``)."""
    match in_every_lane(m):
        case Load() as load:
            return 1.0, load
        case Binary(BinaryOp.MAX, a, low) if float_constant(low) == _LOWEST:
            return multiple(a)
        case Binary(BinaryOp.MUL, a, b) if (factor := float_constant(b)) is not None:
            found = multiple(a)
            return None if found is None or factor <= 0 else (found[0] * factor, found[1])
        case _:
            return None


def times(m: Expr, factor: float, floor: float) -> Expr:
    """So many times a number that is never below ``floor``: finite like that."""
    if factor == 1:
        return m
    found = Binary(BinaryOp.MUL, m, constantly(factor, m))
    finite = factor * floor >= LOWEST
    return found if finite else Binary(BinaryOp.MAX, found, constantly(LOWEST, m))


def constantly(value: float, like: Expr) -> Expr:
    return Broadcast(FloatImm(float(np.float32(value)), like.type.element), like.type.lanes)


def _vector(load: Load, like: Expr) -> Expr:
    """In as many lanes as another value has."""
    same = load.type.lanes == like.type.lanes
    return load if same else Broadcast(load, like.type.lanes)


def _lowest(like: Expr) -> Expr:
    return constantly(LOWEST, like)


def plain(s: Stmt) -> Stmt:
    """Lets of what loads nothing, or nothing that their statements store, or of one statement, are
    substituted, atomics dropped, blocks joined, orderings by a maximum said of
    each of its sides.
    """
    match s:
        case LetStmt(name, value, body) if is_one_store(body) or loaded(value).isdisjoint(
            stored_names(body)
        ):
            return plain(substitute_stmt(body, {name: value}))
        case Atomic(_, body):
            return plain(body)
        case Block((only,)):
            return plain(only)
        case _:
            return map_stmt(s, plain, lambda e: _apart(without_lets(e)))


def _apart(e: Expr) -> Expr:
    """``max(a, b) < c`` as ``a < c && b < c``, and ``c < max(a, b)`` as ``c < a || c < b``."""
    match e:
        case Compare(CompareOp.LT | CompareOp.LE as op, less, more) if less.type.is_integer:
            match less, more:
                case Binary(BinaryOp.MAX, a, b), _:
                    return conjunction(_apart(Compare(op, a, more)), _apart(Compare(op, b, more)))
                case _, Binary(BinaryOp.MAX, a, b):
                    sides = (_apart(Compare(op, less, x)) for x in (a, b))
                    return Binary(BinaryOp.OR, *sides)
                case _:
                    return e
        case _:
            return map_expr(e, _apart) if holds(e, Compare) else e
