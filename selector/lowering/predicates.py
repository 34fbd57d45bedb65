"""When does a lane-wise condition hold for every lane?

A tile whose condition holds throughout takes the unguarded path: the answer is a uniform scalar
condition, tested once per tile instead of once per lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from functools import reduce

from selector.ir.access import access
from selector.ir.affine import Affine, Monomial, to_affine
from selector.ir.lanes import lane
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Compare,
    CompareOp,
    Expr,
    IntImm,
    Load,
    Not,
    Ramp,
    ReduceOp,
    Stmt,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.traverse import free_vars, map_expr
from selector.ir.types import BOOL, INT32

TRUE = IntImm(1, BOOL)
_OPPOSITE = {
    CompareOp.EQ: CompareOp.NE,
    CompareOp.NE: CompareOp.EQ,
    CompareOp.LT: CompareOp.GE,
    CompareOp.GE: CompareOp.LT,
    CompareOp.LE: CompareOp.GT,
    CompareOp.GT: CompareOp.LE,
}


def holds_everywhere(condition: Expr, digits: Mapping[Var, int]) -> Expr | None:
    """A condition without the digits that implies ``condition`` for all their values; None if none
    is known.

    ``digits`` maps variables to their extents (values 0 ... extent - 1). Affine comparisons whose
    digits have constant factors, and conjunctions of them, have an exact answer.
    """

    def least(part: Expr) -> Expr | None:
        room = slack(part)
        return None if room is None else _least(room, digits)

    return implying(condition, {d.name for d in digits}, least)


def implying(condition: Expr, names: Set[str], least: Callable[[Expr], Expr | None]) -> Expr | None:
    """A condition without the variables of these names that implies another one, by ``least``,
    which knows it of comparisons.
    """
    if names.isdisjoint(free_vars(condition)):
        return condition
    match condition:
        case Binary(BinaryOp.AND, a, b):
            x, y = implying(a, names, least), implying(b, names, least)
            return None if x is None or y is None else conjunction(x, y)
        case _:
            return least(condition)


def slack(condition: Expr) -> Affine | None:
    """What is not negative exactly where an ordering of indices holds, which do not wrap around;
    None for anything else."""
    match condition:
        case Compare(_, a) if a.type != INT32:
            return None
        case Compare(CompareOp.LT, a, b):
            return to_affine(b) - to_affine(a) - 1
        case Compare(CompareOp.LE, a, b):
            return to_affine(b) - to_affine(a)
        case Compare(CompareOp.GT, a, b):
            return to_affine(a) - to_affine(b) - 1
        case Compare(CompareOp.GE, a, b):
            return to_affine(a) - to_affine(b)
        case _:
            return None


def lane_slacks(condition: Expr) -> tuple[Affine, Affine] | None:
    """The least and the largest slack of the lanes of an ordering of indices: every lane holds
    where the least is not negative, and none where the largest is. None for anything else.
    """
    match condition:
        case Compare(CompareOp.LT | CompareOp.LE as op, a, b):
            less, more = a, b
        case Compare(CompareOp.GT | CompareOp.GE as op, a, b):
            less, more = b, a
        case _:
            return None
    if less.type.element != INT32:
        return None
    walked = access(Binary(BinaryOp.SUB, more, less))
    if walked is None or any(s.constant is None for s, _ in walked.levels):
        return None
    reaches = [(s.constant or 0) * (n - 1) for s, n in walked.levels]
    base = walked.base - int(op in (CompareOp.LT, CompareOp.GT))
    return base + sum(min(0, r) for r in reaches), base + sum(max(0, r) for r in reaches)


def conjunction(a: Expr, b: Expr) -> Expr:
    """``a && b`` with the trivial cases folded."""
    if a == TRUE:
        return b
    return a if b in (TRUE, a) else Binary(BinaryOp.AND, a, b)


def every(tests: Iterable[Expr]) -> Expr:
    """The conjunction of some tests, which holds without any."""
    return reduce(conjunction, tests, TRUE)


def denied(condition: Expr) -> Expr | None:
    """That a condition does not hold, as conditions of which all hold; None if it cannot be said
    so: of floats neither ordering may hold.
    """
    match condition:
        case Not(inner):
            return inner
        case Binary(BinaryOp.OR, a, b):
            x, y = denied(a), denied(b)
            return None if x is None or y is None else conjunction(x, y)
        case Compare(op, a, b) if not a.type.is_float:
            return Compare(_OPPOSITE[op], a, b)
        case _:
            return None


def _least(difference: Affine, digits: Mapping[Var, int]) -> Expr | None:
    """``difference >= 0`` at the values of the digits that make it smallest."""
    names = {d.name for d in digits}
    least = 0
    kept: list[tuple[Monomial, int]] = []
    for m, c in difference:
        digit = m[0] if len(m) == 1 else None
        if isinstance(digit, Var) and digit in digits:
            least += min(0, c * (digits[digit] - 1))
        elif all(names.isdisjoint(free_vars(a)) for a in m):
            kept.append((m, c))
        else:
            return None
    difference = Affine(tuple(kept)) + least
    if difference.constant is not None:
        return IntImm(int(difference.constant >= 0), BOOL)
    return Compare(CompareOp.LE, IntImm(0), difference.to_expr())


def is_predicated(plain: Stmt, condition: Expr, other: Stmt) -> bool:
    """Whether a store is another one that is predicated by a condition, or was before it."""
    match plain, other:
        case Store(buffer, index, value, None), Store(own, at, _, predicate):
            bare = map_expr(other.value, lambda e: unpredicated(e, condition))
            return (buffer, index, value) == (own, at, bare) and predicate == condition
        case _:
            return False


def unpredicated(e: Expr, predicate: Expr) -> Expr:
    """An expression whose loads do without a predicate."""
    inner = map_expr(e, lambda x: unpredicated(x, predicate))
    match inner:
        case Load(t, buffer, index, p) if p == predicate:
            return Load(t, buffer, index)
        case _:
            return inner


def test_of_all(condition: Expr) -> Expr:
    """A condition, where it is one of all lanes together as one that scalar code has a form for."""
    match condition:
        case VectorReduce(ReduceOp.AND, value, 1):
            return _all(value)
        case _:
            return condition


def _all(e: Expr) -> Expr:
    lanes = e.type.lanes
    match e:
        case Broadcast(value, _) if value.type.lanes == 1:
            return value
        case Binary(BinaryOp.AND, a, b):
            return Binary(BinaryOp.AND, _all(a), _all(b))
        case Compare(CompareOp.LT | CompareOp.LE, Ramp(_, IntImm(step), _), Broadcast()) if (
            step >= 0
        ):
            return lane(e, ((IntImm(lanes - 1), lanes),))
        case _:
            each = [lane(e, ((IntImm(n), lanes),)) for n in range(lanes)]
            return reduce(lambda a, b: Binary(BinaryOp.AND, a, b), each)
