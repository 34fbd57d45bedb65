"""Sums in other words, for what has no instructions as it stands.

* ``expand``: products of sums are sums of products, ``(a + a')*k`` is ``a*k + a'*k``; a quotient by
  a number is a product; integers of 16 bits are their bytes, ``256*high + low``; ``k <= min(m, n)``
  is ``k <= m && k <= n``, each for an operand that follows it.
* ``split_sums``: sums with different factors have an accumulator for each factor, and are added
  where they are read: ``sum(a*b - c*d)`` is ``sum(a*b) - sum(c*d)``.

Floats are rounded in another order by both, as they are by every tensor instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from selector.ir.contents import holds, loaded
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Block,
    Broadcast,
    Cast,
    Expr,
    FloatImm,
    Load,
    LocToLoc,
    ReduceOp,
    Select,
    Stmt,
    Store,
    VectorReduce,
)
from selector.ir.simplify import as_conjunction, literal
from selector.ir.traverse import change_expr, change_exprs, map_expr, map_stmt, walk_stmt
from selector.ir.types import INT8, INT16, UINT8, UINT16, Type
from selector.operands.accumulators import accumulators_of
from selector.operands.exact import combined, inside, vector_bounds, whole_numbers
from selector.operands.scaling import (
    Scale,
    factor_scales,
    is_uniform,
    is_zero,
    reads_loose,
    scale_of,
    update_of,
)

MOST_TERMS = 16
Terms = list[tuple[Expr, bool]]
"""What is added, and whether it is subtracted."""


def expand(allocation: Allocate) -> Allocate | None:
    """An annotated allocation with the products in its sums expanded; None if there are none to."""

    def expr(e: Expr) -> Expr | None:
        if not isinstance(e, VectorReduce) or e.op is not ReduceOp.ADD:
            return None if holds(e, VectorReduce) else e
        terms = _terms(change_expr(e.value, as_conjunction))
        if len(terms) > MOST_TERMS or terms == [(e.value, False)]:
            return e
        return replace(e, value=_total(terms))

    body = change_exprs(allocation.body, expr)
    return None if body is allocation.body else replace(allocation, body=body)


def _terms(e: Expr) -> Terms:
    """The terms of a value that is added up, with the products of sums expanded."""
    if not holds(e, Load) or is_uniform(e):
        return [(e, False)]
    match e:
        case Binary(BinaryOp.ADD, a, b):
            return [*_terms(a), *_terms(b)]
        case Binary(BinaryOp.SUB, a, b):
            rest = [(t, not minus) for t, minus in _terms(b)]
            return rest if is_zero(a) else [*_terms(a), *rest]
        case Binary(BinaryOp.MUL, a, b):
            left, right = _terms(a), _terms(b)
            if len(left) == len(right) == 1:
                return [(Binary(BinaryOp.MUL, left[0][0], right[0][0]), left[0][1] != right[0][1])]
            return [(Binary(BinaryOp.MUL, x, y), m != n) for x, m in left for y, n in right]
        case Binary(BinaryOp.DIV, a, b) if e.type.is_float and is_uniform(b):
            return _terms(Binary(BinaryOp.MUL, a, _inverse(b)))
        case Broadcast(value, count):
            return [(_copies(t, count), minus) for t, minus in _terms(value)]
        case Cast(to, Binary(BinaryOp.ADD | BinaryOp.SUB as op, a, b)) if _keeps(to, op, a, b):
            return _terms(Binary(op, Cast(to, a), Cast(to, b)))
        case Select(condition, a, b) if is_zero(b):
            return [(Select(condition, t, b), minus) for t, minus in _terms(a)]
        case _:
            return _bytes(e)


def _bytes(e: Expr) -> Terms:
    """A number of 16 bits as its two bytes, ``256*(e/256) + e%256``; another value as it is."""
    found = vector_bounds(e) if e.type.is_integer else (0, 0)
    if any(inside(found, whole_numbers(t)) for t in (INT8, UINT8)):
        return [(e, False)]
    if not any(inside(found, whole_numbers(t)) for t in (INT16, UINT16)):
        return [(e, False)]
    by = literal(256, e.type)
    high = Binary(BinaryOp.MUL, by, Binary(BinaryOp.DIV, e, by))
    return [(high, False), (Binary(BinaryOp.MOD, e, by), False)]


def _copies(e: Expr, count: int) -> Expr:
    """Copies of a vector, those of the factors of a product."""
    match e:
        case Binary(BinaryOp.MUL, a, b):
            return Binary(BinaryOp.MUL, _copies(a, count), _copies(b, count))
        case Broadcast(value, inner) if is_uniform(e):
            return Broadcast(value, inner * count)
        case _:
            return Broadcast(e, count)


def _keeps(to: Type, op: BinaryOp, a: Expr, b: Expr) -> bool:
    """Whether a sum of integers is that of its parts in a wider type."""
    if not (to.is_integer and a.type.is_integer):
        return False
    found = combined(op, vector_bounds(a), vector_bounds(b))
    return (
        found is not None
        and inside(found, whole_numbers(a.type))
        and inside(found, whole_numbers(to))
    )


def _inverse(e: Expr) -> Expr:
    match e:
        case Broadcast(value, count):
            return Broadcast(_inverse(value), count)
        case _:
            return Binary(BinaryOp.DIV, FloatImm(1.0, e.type), e)


def _total(terms: Terms) -> Expr:
    """The sum of terms; one that is not subtracted first."""
    first, *rest = sorted(terms, key=lambda t: t[1])
    result = first[0]
    if first[1]:
        result = Binary(BinaryOp.SUB, literal(0, result.type), result)
    for t, minus in rest:
        result = Binary(BinaryOp.SUB if minus else BinaryOp.ADD, result, t)
    return result


# ------------------------------------------------------------------ accumulators


def split_sums(allocation: Allocate) -> Allocate | None:
    """A prepared allocation with an accumulator for each factor of sums; None if none has several
    factors, or is used otherwise."""
    parts: dict[str, dict[Scale, str]] = {}
    for buffer in accumulators_of(allocation):
        scales = _scales(allocation, buffer)
        if len(scales) > 1:
            names = (buffer, *(f"{buffer}{PART}{i}" for i in range(1, len(scales))))
            parts[buffer] = dict(zip(scales, names, strict=True))
    if not parts:
        return None
    body = _split(allocation, parts)
    assert isinstance(body, Allocate)
    return factor_scales(body, alone=True)


PART = ".part"
"""Behind an accumulator's name: one of several that are added where it is read."""


def _scales(allocation: Allocate, buffer: str) -> list[Scale]:
    """The factors of an accumulator's sums, none first; one at most where it cannot be split."""
    found: dict[Scale, None] = {}
    for s in walk_stmt(allocation.body):
        if isinstance(s, Store) and s.buffer == buffer:
            total = update_of(s)
            if total is not None:
                found[scale_of(total)] = None
            elif buffer in loaded(s.value):
                return []
        elif reads_loose(s, buffer):
            return []
    return sorted(found, key=lambda scale: (scale != (), list(found).index(scale)))


def _split(s: Stmt, parts: Mapping[str, dict[Scale, str]]) -> Stmt:
    match s:
        case Allocate(name) if name in parts:
            inner = _split(s.body, parts)
            for part in reversed(list(parts[name].values())[1:]):
                inner = replace(s, name=part, body=inner)
            return replace(s, body=inner)
        case Store(buffer) if buffer in parts:
            total = update_of(s)
            if total is not None:
                return _renamed(s, parts[buffer][scale_of(total)])
            assert isinstance(s.value, LocToLoc)
            zero = replace(s.value, value=literal(0, s.value.type))
            more = list(parts[buffer].values())[1:]
            return Block((s, *(replace(s, buffer=p, value=zero) for p in more)))
        case Store():
            return map_stmt(s, lambda x: x, lambda e: _added(e, parts))
        case _:
            return map_stmt(s, lambda x: _split(x, parts), lambda e: e)


def _renamed(s: Store, name: str) -> Store:
    def own(e: Expr) -> Expr | None:
        return replace(e, buffer=name) if isinstance(e, Load) and e.buffer == s.buffer else None

    return replace(s, buffer=name, value=change_expr(s.value, own))


def _added(e: Expr, parts: Mapping[str, dict[Scale, str]]) -> Expr:
    """A value that reads the parts of an accumulator together."""
    match e:
        case LocToLoc(_, _, Load(_, buffer, _, _) as load) if buffer in parts:
            first, *rest = (
                replace(e, value=replace(load, buffer=p)) for p in parts[buffer].values()
            )
            total: Expr = first
            for part in rest:
                total = Binary(BinaryOp.ADD, total, part)
            return total
        case _:
            return map_expr(e, lambda c: _added(c, parts))
