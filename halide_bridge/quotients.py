"""Comparisons of a quotient, without the division: ``x / 3 + a < b`` is ``x + 3 * a < 3 * b``.

Loops that are fused, channels and columns of a picture say, count on in one variable, whose
quotient is the column. What keeps a column inside of the picture then is affine in the lanes.
"""

from __future__ import annotations

from halide_bridge.ramps import canonical_index
from selector.ir.nodes import Binary, BinaryOp, Broadcast, Compare, CompareOp, Expr, IntImm
from selector.ir.types import INT32

_TURNED = {
    CompareOp.LT: CompareOp.GT,
    CompareOp.LE: CompareOp.GE,
    CompareOp.GT: CompareOp.LT,
    CompareOp.GE: CompareOp.LE,
}


def undivided(e: Compare) -> Compare:
    """The same truth without the quotient on one side of an ordering; ``e`` itself where there is
    none, or more than one.
    """
    if e.op not in _TURNED or e.a.type.element != INT32 or e.a.type.lanes == 1:
        return e
    found = _quotient(e.a)
    if found is not None:
        return _multiplied(e.op, *found, e.b) or e
    found = _quotient(e.b)
    return e if found is None else _multiplied(_TURNED[e.op], *found, e.a) or e


def _multiplied(op: CompareOp, inner: Expr, divisor: int, rest: Expr, b: Expr) -> Compare | None:
    """``inner / divisor + rest op b``: floor(x / n) is less than y where x is less than n * y."""
    if _quotient(rest) is not None or _quotient(b) is not None:
        return None
    lanes = inner.type.lanes
    factor = _wide(divisor, lanes)
    left = Binary(BinaryOp.ADD, inner, Binary(BinaryOp.MUL, rest, factor))
    right: Expr = Binary(BinaryOp.MUL, b, factor)
    if op in (CompareOp.LE, CompareOp.GT):
        right = Binary(BinaryOp.ADD, right, factor)
    below = op in (CompareOp.LT, CompareOp.LE)
    sides = (canonical_index(x, lanes) for x in (left, right))
    return Compare(CompareOp.LT if below else CompareOp.GE, *sides)


def _quotient(e: Expr) -> tuple[Expr, int, Expr] | None:
    """What is divided by which number in a sum, and the other terms."""
    match e:
        case Binary(BinaryOp.DIV, inner, Broadcast(IntImm(divisor), _)) if divisor > 0:
            return inner, divisor, _wide(0, e.type.lanes)
        case Binary(BinaryOp.ADD, a, b):
            for own, other in ((a, b), (b, a)):
                found = _quotient(own)
                if found is not None:
                    inner, divisor, rest = found
                    return inner, divisor, Binary(BinaryOp.ADD, rest, other)
            return None
        case _:
            return None


def _wide(n: int, lanes: int) -> Expr:
    return Broadcast(IntImm(n), lanes)
