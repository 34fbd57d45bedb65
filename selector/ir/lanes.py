"""One lane of a vector expression as a scalar expression, the lane being given by mixed-radix
digits.

``digits`` lists pairs of a scalar expression and its extent, innermost first: lane number ``d0 +
e0*(d1 + e1*(d2 + ...))`` with ``0 <= d_i < e_i``. Where the extents agree with the nesting of ramps
and broadcasts, the answer holds neither division nor modulo:

    lane(ramp(ramp(b, 1, 64), x64(s), 256), ((k, 64), (m, 256))) == b + k + m*s
"""

from __future__ import annotations

from math import prod
from typing import assert_never

from selector.diagnostics import EmitError, InternalError
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Expr,
    ExprVar,
    FloatImm,
    IntImm,
    Let,
    Load,
    LocToLoc,
    Not,
    Ramp,
    Select,
    Shuffle,
    Var,
    VectorReduce,
)
from selector.ir.printer import print_expr
from selector.ir.simplify import add, binary, div, mod, mul
from selector.ir.traverse import free_vars, map_expr, substitute
from selector.ir.types import Type

Digits = tuple[tuple[Expr, int], ...]
_LANE = Var("$lane")


def lane(e: Expr, digits: Digits) -> Expr:
    """The scalar expression of one lane of ``e``; the extents multiply to the lanes of ``e``.

    EmitError for a node without such a form: a reduction, a vector variable, a call whose
    arguments have other lanes than its result.
    """
    digits = tuple((d, n) for d, n in digits if n != 1)
    if prod(n for _, n in digits) != e.type.lanes:
        raise InternalError(
            f"{[n for _, n in digits]} lanes asked of {print_expr(e)} of type {e.type}"
        )
    return _lane(e, digits)


def same_index(a: Expr, b: Expr) -> bool:
    """Whether all lanes of two indices are those of the same elements."""
    if a == b or a.type.lanes != b.type.lanes:
        return a == b
    first, second = _lane_forms(a, b)
    return (first - second).constant == 0


def no_index_of(a: Expr, b: Expr) -> bool:
    """Whether no lane of an index is that of an element of another one, for what lies in rows."""
    if a.type.lanes != b.type.lanes:
        return False
    first, second = _lane_forms(a, b)
    apart, step = (first - second).constant, first.coefficient(_LANE).constant
    if apart is None or not step:
        return False
    return abs(apart) >= abs(step) * a.type.lanes or apart % step != 0


def _lane_forms(*indices: Expr) -> list[Affine]:
    """Where a lane lies, by its number."""
    return [to_affine(own_lane(i, ((_LANE, i.type.lanes),))) for i in indices]


def own_lane(e: Expr, digits: Digits) -> Expr:
    """One lane of what may have one only."""
    return lane(e, digits) if e.type.lanes > 1 else e


def in_lanes(e: Expr, name: str, count: int) -> Expr:
    """The inverse: a vector of which lane ``i`` is the scalar ``e`` with ``i`` for a variable.

    EmitError for a node that is scalar by nature.
    """
    if name not in free_vars(e):
        return Broadcast(e, count)
    match e:
        case Var(_, t):
            return Ramp(IntImm(0, t), IntImm(1, t), count)
        case Load(t, buffer, index, p):
            predicate = None if p is None else in_lanes(p, name, count)
            return Load(t.with_lanes(count), buffer, in_lanes(index, name, count), predicate)
        case Cast(t, value):
            return Cast(t.with_lanes(count), in_lanes(value, name, count))
        case Call(t, call, args):
            return Call(t.with_lanes(count), call, tuple(in_lanes(a, name, count) for a in args))
        case Let(own, value, body):
            return in_lanes(substitute(body, {own: value}), name, count)
        case Binary() | Compare() | Not() | Select():
            return map_expr(e, lambda part: in_lanes(part, name, count))
        case _:
            raise EmitError(f"`{print_expr(e)[:200]}` has no lanes")


def number(digits: Digits) -> Expr:
    """The lane number of digits, as an expression."""
    result: Expr = IntImm(0)
    for digit, extent in reversed(digits):
        result = add(mul(result, IntImm(extent)), digit)
    return result


def split(digits: Digits, lanes: int) -> tuple[Digits, Digits]:
    """Inner digits that count ``lanes`` lanes, and the rest; divides a digit only if it must."""
    done = 1
    for i, (digit, extent) in enumerate(digits):
        if done == lanes:
            return digits[:i], digits[i:]
        if done * extent > lanes:
            part = lanes // done
            if lanes % done or extent % part:
                break
            low, high = (mod(digit, IntImm(part)), part), (div(digit, IntImm(part)), extent // part)
            return (*digits[:i], low), (high, *digits[i + 1 :])
        done *= extent
    if done == lanes:
        return digits, ()
    total, at = prod(n for _, n in digits), number(digits)
    return ((mod(at, IntImm(lanes)), lanes),), ((div(at, IntImm(lanes)), total // lanes),)


def _lane(e: Expr, digits: Digits) -> Expr:  # noqa: C901 (one case per node)
    if e.type.lanes == 1 and not isinstance(e, Ramp | Broadcast | VectorReduce | Shuffle):
        return e
    match e:
        case Ramp(base, stride, _):
            inner, outer = split(digits, base.type.lanes)
            step = _lane(stride, inner)
            return add(_lane(base, inner), mul(_as_type(number(outer), step.type), step))
        case Broadcast(value, _):
            return _lane(value, split(digits, value.type.lanes)[0])
        case Cast(t, value):
            return Cast(t.element, _lane(value, digits))
        case Binary(op, a, b):
            return binary(op, _lane(a, digits), _lane(b, digits))
        case Compare(op, a, b):
            return Compare(op, _lane(a, digits), _lane(b, digits))
        case Not(value):
            return Not(_lane(value, digits))
        case Select(c, t, f):
            condition = c if c.type.lanes == 1 else _lane(c, digits)
            return Select(condition, _lane(t, digits), _lane(f, digits))
        case Load(t, buffer, index, p):
            predicate = None if p is None else _lane(p, digits)
            return Load(t.element, buffer, _lane(index, digits), predicate)
        case Let(name, value, body):
            return _lane(substitute(body, {name: value}), digits)
        case LocToLoc(_, _, value) | ExprVar(value):
            return _lane(value, digits)
        case Call() | Shuffle() | VectorReduce():
            return _gathered(e, digits)
        case IntImm() | FloatImm() | Var():
            raise EmitError(f"`{print_expr(e)}` has no form as plain code")
        case _:
            assert_never(e)


def _as_type(e: Expr, t: Type) -> Expr:
    """A lane number as an integer of a ramp's type."""
    if e.type == t:
        return e
    return IntImm(e.value, t) if isinstance(e, IntImm) else Cast(t, e)


def _gathered(e: Call | Shuffle | VectorReduce, digits: Digits) -> Expr:
    match e:
        case Call(t, name, args) if all(a.type.lanes in (1, t.lanes) for a in args):
            scalars = (a if a.type.lanes == 1 else _lane(a, digits) for a in args)
            return Call(t.element, name, tuple(scalars))
        case VectorReduce(_, value, lanes) if value.type.lanes == lanes:
            return _lane(value, digits)
        case Shuffle((value,), (first, *others)):
            step = others[0] - first if others else 0
            if all(x == first + step * (i + 1) for i, x in enumerate(others)):
                at = add(mul(number(digits), IntImm(step)), IntImm(first))
                return _lane(value, ((at, value.type.lanes),) if value.type.lanes > 1 else ())
        case _:
            pass
    raise EmitError(
        f"`{print_expr(e)[:200]}` has no form as plain code",
        "one of its lanes is not made of one lane of each operand",
    )
