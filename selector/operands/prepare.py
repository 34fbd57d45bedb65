"""Tensor statements in one form, before they are encoded: the second stage of selection.

What users write in several ways becomes ``acc = value`` and ``acc = acc + reduce(a * b)``:

* lets are inlined (Halide makes one of an operand that occurs twice), vectors of one lane are
  scalars;
* a sum that is added to nothing is added to zero, or to what stands beside it: ``acc = bias + sum``
  is ``acc = bias; acc = acc + sum``; a sum of zeros, such as a masked one of which no term is left,
  is nothing;
* several sums in one statement are several statements;
* a factor that all sums of an accumulator share is applied where the result is read
  (``selector.operands.scaling``).

Sums of floats are taken in another order by this, as they are by any tensor instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from selector.ir.contents import bits_of, holds, kinds_of
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Block,
    Broadcast,
    Cast,
    Expr,
    Let,
    LetStmt,
    Load,
    Location,
    LocToLoc,
    Ramp,
    ReduceOp,
    Stmt,
    Store,
    VectorReduce,
)
from selector.ir.simplify import literal
from selector.ir.traverse import (
    map_expr,
    map_stmt,
    substitute,
    substitute_stmt,
    walk_expr,
    walk_stmt,
)
from selector.ir.types import Type
from selector.operands.accumulators import accumulators_of, touches_tensor
from selector.operands.exact import inside, vector_bounds, whole_numbers
from selector.operands.scaling import factor_scales, is_uniform, is_zero
from selector.operands.updates import loads_from


def prepare(allocation: Allocate) -> Allocate:
    """An annotated tensor allocation with its statements in that form; the values stored in
    ordinary memory are the same."""
    placed = accumulators_of(allocation)

    def visit(s: Stmt) -> Stmt:
        match s:
            case LetStmt(name, value, body) if _inlined(value, body, placed):
                return visit(substitute_stmt(body, {name: value}))
            case Store() if touches_tensor(s):
                tidied = map_stmt(s, lambda x: x, _tidy)
                assert isinstance(tidied, Store)
                return _split(tidied, placed)
            case _:
                return map_stmt(s, visit, lambda e: e)

    return factor_scales(replace(allocation, body=visit(allocation.body)))


def _inlined(value: Expr, body: Stmt, placed: Mapping[str, Location]) -> bool:
    """Whether a let's vector may stand where it is used. A load may in updates of accumulators, as
    an operand that occurs twice, where nothing that it reads is written."""
    if value.type.lanes == 1:
        return False
    if not holds(value, Load):
        return True
    if holds(value, LocToLoc):
        return False
    written = {s.buffer for s in walk_stmt(body) if isinstance(s, Store)}
    read = {e.buffer for e in walk_expr(value) if isinstance(e, Load)}
    return written <= placed.keys() and not written & read


_UNTIDY = bits_of(Let, Ramp, Broadcast, Cast)


def _tidy(e: Expr) -> Expr:
    """Without lets, without ramps and broadcasts of one part, and without casts of integers to a
    type that has all of them, and back.
    """
    match e:
        case Let(name, value, body):
            return _tidy(substitute(body, {name: value}))
        case Ramp(value, _, 1) | Broadcast(value, 1):
            return _tidy(value)
        case Cast(to, Cast(by, value)) if to == value.type and _has_all(by, value):
            return _tidy(value)
        case _:
            return map_expr(e, _tidy) if kinds_of(e) & _UNTIDY else e


def _has_all(by: Type, value: Expr) -> bool:
    return (
        by.is_integer and value.type.is_integer and inside(vector_bounds(value), whole_numbers(by))
    )


def _split(s: Store, placed: dict[str, Location]) -> Stmt:
    """A statement that adds sums, as one statement for each."""
    if s.buffer not in placed or s.predicate is not None or not isinstance(s.value, LocToLoc):
        return s
    terms = _signed_terms(s.value.value, False)
    own: list[tuple[Expr, bool]] = []
    others: list[tuple[Expr, bool]] = []
    for term in terms:
        (own if loads_from(term[0], s) else others).append(term)
    if not others and own == [(own[0][0], False)]:
        return Block(())
    sums = [_as_sum(t, minus) for t, minus in others]
    rest = [(t, minus) for (t, minus), total in zip(others, sums, strict=True) if total is None]
    found = [total for total in sums if total is not None]
    if not found or len(own) > 1 or any(_moves(t) for t, _ in rest):
        return s
    if own and (rest or own[0][1] or [t for t, _ in others] == found[:1]):
        return s
    start = [] if own else [_stored(s, _total(rest, s.value.type))]
    current = LocToLoc(placed[s.buffer], Location.MEM, Load(s.value.type, s.buffer, s.index, None))
    updates = [_stored(s, Binary(BinaryOp.ADD, current, total)) for total in found]
    return Block((*start, *updates)) if len(start + updates) > 1 else updates[0]


def _stored(s: Store, value: Expr) -> Store:
    assert isinstance(s.value, LocToLoc)
    return replace(s, value=replace(s.value, value=value))


def _signed_terms(e: Expr, minus: bool) -> list[tuple[Expr, bool]]:
    """The terms of a sum with their signs; the reduction of a sum is a sum of reductions."""
    match e:
        case VectorReduce(ReduceOp.ADD, value) if is_zero(value):
            return []
        case VectorReduce(ReduceOp.ADD, Binary(BinaryOp.ADD | BinaryOp.SUB as op, a, b), lanes):
            left, right = (VectorReduce(ReduceOp.ADD, v, lanes) for v in (a, b))
            return _signed_terms(Binary(op, left, right), minus)
        case Binary(BinaryOp.ADD, a, b):
            return [*_signed_terms(a, minus), *_signed_terms(b, minus)]
        case Binary(BinaryOp.SUB, a, b):
            return [*_signed_terms(a, minus), *_signed_terms(b, not minus)]
        case _:
            return [(e, minus)]


def _total(terms: list[tuple[Expr, bool]], t: Type) -> Expr:
    """The signed sum of terms; zero for none."""
    if not terms:
        return literal(0, t)
    ordered = sorted(terms, key=lambda term: term[1])
    result = literal(0, t) if ordered[0][1] else ordered[0][0]
    for term, minus in ordered[0 if ordered[0][1] else 1 :]:
        result = Binary(BinaryOp.SUB if minus else BinaryOp.ADD, result, term)
    return result


def _as_sum(e: Expr, minus: bool) -> VectorReduce | None:
    """A term as the sum of products, its sign and factors inside; None if it is none."""
    match e:
        case VectorReduce(ReduceOp.ADD, value, lanes) if not _moves(value):
            inner = _scaled(value, literal(-1, value.type)) if minus else value
            return e if not minus else VectorReduce(ReduceOp.ADD, inner, lanes)
        case Binary(BinaryOp.MUL, a, b) if is_uniform(a) or is_uniform(b):
            factor, inner = (a, b) if is_uniform(a) else (b, a)
            found = _as_sum(inner, minus)
            if found is None:
                return None
            scalar = factor.value if isinstance(factor, Broadcast) else factor
            wide = Broadcast(scalar, found.value.type.lanes)
            return replace(found, value=_scaled(found.value, wide))
        case _:
            return None


def _scaled(value: Expr, factor: Expr) -> Expr:
    return Binary(BinaryOp.MUL, factor, value)


def _moves(e: Expr) -> bool:
    return holds(e, LocToLoc)
