"""Sums of products of bytes from which something is subtracted that is the same for all terms of an
element, a zero point:

    f[n, m] += (i32(a[k, m]) - z) * (i32(b[k, n]) - w[n])

A tensor unit multiplies bytes, so what reads the sum subtracts ``w[n]`` times the sum of ``a`` and
``z`` times that of ``b`` (``hb.subtracted_last``). Integers wrap around, so that is exact.
"""

from __future__ import annotations

from halide_bridge.schedules.recognise.products import element, factors
from halide_bridge.schedules.recognise.program import Member
from selector.ir.nodes import Binary, BinaryOp, Cast, Expr, Var
from selector.ir.traverse import walk_expr
from selector.ir.types import INT32


def has_zero_points(member: Member) -> bool:
    """Whether it is such a sum, and the sums of its operands are no more than their rows."""
    pair = factors(member)
    if pair is None or member.fixed:
        return False
    if member.types != (INT32,) or member.stages[1].predicate is not None:
        return False
    reduced = frozenset(r.name for r in member.stages[1].reduced)
    rests = [_rest(e, reduced) for e in pair]
    if any(not _is_byte(r) for r in rests):
        return False
    less = [rest != e for rest, e in zip(rests, pair, strict=True)]
    summed = [rest for rest, other in zip(rests, reversed(less), strict=True) if other]
    return any(less) and all(map(_is_row, summed))


def _rest(e: Expr, reduced: frozenset[str]) -> Expr:
    """What something is subtracted from; the native module judges whether that may be undone."""
    match e:
        case Cast(t, Binary(BinaryOp.ADD | BinaryOp.SUB as op, a, b)):
            inner = _rest(Binary(op, a, b), reduced)
            return Cast(t, inner.value if isinstance(inner, Cast) else inner)
        case Binary(BinaryOp.ADD | BinaryOp.SUB as op, a, b):
            if op is BinaryOp.ADD and _changes(b, reduced) and not _changes(a, reduced):
                a, b = b, a
            return _rest(a, reduced) if _changes(a, reduced) and not _changes(b, reduced) else e
        case _:
            return e


def _changes(e: Expr, reduced: frozenset[str]) -> bool:
    return any(isinstance(v, Var) and v.name in reduced for v in walk_expr(e))


def _is_byte(e: Expr) -> bool:
    return (
        isinstance(e, Cast)
        and element(e) is not None
        and e.value.type.is_integer
        and e.value.type.bits == 8
    )


def _is_row(e: Expr) -> bool:
    access = element(e)
    return access is not None and all(isinstance(i, Var) for i in access.indices)
