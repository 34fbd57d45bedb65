"""Reductions along several dimensions at once, as one statement for each part that has one stride.

A product of matrices walks its depth with one stride in each operand. Where a statement reduces
over more (both axes of a 2-D convolution, channels and taps), the sum over the outer part of the
reduction is written out: ``acc = acc + sum[y, x] a*b`` is ``acc = acc + sum[x] a*b`` once for each
y. The statements have one skeleton, so that selection looks at one of them.
"""

from __future__ import annotations

from dataclasses import replace

from selector.eqsat.operands import Update
from selector.eqsat.scopes import accumulators_of
from selector.ir.access import Access, Level, access, align, cut
from selector.ir.affine import Affine
from selector.ir.nodes import (
    Allocate,
    Binary,
    Block,
    Broadcast,
    Cast,
    Compare,
    Expr,
    IntImm,
    Load,
    LocToLoc,
    Not,
    Ramp,
    Select,
    Stmt,
    Store,
    VectorReduce,
)
from selector.ir.traverse import map_expr, map_stmt

MOST_PARTS = 64


def slice_reductions(allocation: Allocate) -> Allocate | None:
    """A prepared allocation with its reductions in parts; None if there is nothing to do."""
    placed = accumulators_of(allocation)

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Store) and s.buffer in placed:
            return _parts(s)
        return map_stmt(s, visit, lambda e: e)

    body = visit(allocation.body)
    return None if body == allocation.body else replace(allocation, body=body)


def _parts(s: Store) -> Stmt:
    update = Update.of(s)
    if not update.adds_itself or len(update.reductions) != 1 or update.factors is None:
        return s
    total = update.reductions[0]
    terms = total.value.type.lanes // total.lanes
    axes = [_depth_levels(f.load, terms) for f in update.factors]
    if axes[0] is None or axes[1] is None:
        return s
    joint = align(axes[0], axes[1])
    inner = None if joint is None else _innermost(joint)
    if inner is None or inner == terms or terms // inner > MOST_PARTS:
        return s
    pieces = [_slice(total.value, terms, inner, part) for part in range(terms // inner)]
    if any(p is None for p in pieces):
        return s
    stores = [
        map_stmt(s, lambda x: x, lambda e, p=piece: _put(e, total, p))
        for piece in pieces
        if piece is not None
    ]
    return Block(tuple(stores))


def _put(e: Expr, old: VectorReduce, value: Expr) -> Expr:
    return replace(old, value=value) if e is old else map_expr(e, lambda c: _put(c, old, value))


def _depth_levels(load: Load | None, terms: int) -> tuple[Level, ...] | None:
    seen = None if load is None else access(load.index)
    split = None if seen is None else cut(seen.levels, terms)
    return None if split is None else split[0]


def _innermost(axes: tuple[tuple[Affine, Affine, int], ...]) -> int:
    """How many terms of the reduction both operands walk with one stride each."""
    if not axes:
        return 1
    s, t, count = axes[0]
    for next_s, next_t, more in axes[1:]:
        if next_s != s * count or next_t != t * count:
            break
        count *= more
    return count


def _slice(e: Expr, terms: int, inner: int, part: int) -> Expr | None:
    """The lanes (tile, part, inner) of a vector (tile, terms / inner, inner); None if that has no
    simple form."""
    lanes = e.type.lanes // terms * inner
    if e.type.element.is_integer and not e.type.is_bool:
        seen = access(e) if isinstance(e, Ramp | Broadcast | Binary) else None
        if seen is not None:
            return _slice_walk(seen, terms, inner, part)
    match e:
        case Load(t, buffer, index, predicate):
            place = _slice(index, terms, inner, part)
            mask = None if predicate is None else _slice(predicate, terms, inner, part)
            if place is None or (predicate is not None and mask is None):
                return None
            return Load(t.with_lanes(lanes), buffer, place, mask)
        case Broadcast(value, _):
            return _slice_copies(value, lanes, terms, inner, part)
        case Cast(t, value):
            found = _slice(value, terms, inner, part)
            return None if found is None else Cast(t.with_lanes(lanes), found)
        case Binary(op, a, b):
            x, y = (_slice(v, terms, inner, part) for v in (a, b))
            return None if x is None or y is None else Binary(op, x, y)
        case Compare(op, a, b):
            x, y = (_slice(v, terms, inner, part) for v in (a, b))
            return None if x is None or y is None else Compare(op, x, y)
        case Select(c, a, b):
            q, x, y = (_slice(v, terms, inner, part) for v in (c, a, b))
            return None if q is None or x is None or y is None else Select(q, x, y)
        case Not(value):
            found = _slice(value, terms, inner, part)
            return None if found is None else Not(found)
        case LocToLoc() | _:
            return None


def _slice_copies(value: Expr, lanes: int, terms: int, inner: int, part: int) -> Expr | None:
    width = value.type.lanes
    if width % terms == 0:
        found = _slice(value, terms, inner, part)
    else:
        found = value if inner % width == 0 else None
    if found is None:
        return None
    count = lanes // found.type.lanes
    return found if count == 1 else Broadcast(found, count)


def _slice_walk(seen: Access, terms: int, inner: int, part: int) -> Expr | None:
    depth = cut(seen.levels, terms)
    split = None if depth is None else cut(depth[0], inner)
    if depth is None or split is None:
        return None
    base, rest = seen.base, part
    for stride, count in split[1]:
        base, rest = base + stride * (rest % count), rest // count
    return walk(base, (*split[0], *depth[1]))


def walk(base: Affine, levels: tuple[Level, ...]) -> Expr:
    """The index of a base and its levels, innermost first."""
    result = base.to_expr()
    for stride, count in levels:
        step, lanes = stride.to_expr(), result.type.lanes
        if step == IntImm(0):
            result = Broadcast(result, count)
        else:
            result = Ramp(result, step if lanes == 1 else Broadcast(step, lanes), count)
    return result
