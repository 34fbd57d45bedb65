"""Reductions along several dimensions at once, as one statement for each part that has one stride.

A product of matrices walks its depth with one stride in each operand. Where a statement reduces
over more (both axes of a 2-D convolution, channels and taps), all dimensions of the reduction but
one are written out: ``acc = acc + sum[y, x] a*b`` is ``acc = acc + sum[x] a*b`` once for each y.
The statements have one skeleton, so that selection looks at one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from selector.dataclass import dataclass
from selector.ir.access import Access, Level, access, align, cut, walk
from selector.ir.affine import Affine
from selector.ir.nodes import (
    Allocate,
    Binary,
    Block,
    Broadcast,
    Cast,
    Compare,
    Expr,
    Load,
    Not,
    Ramp,
    Select,
    Stmt,
    Store,
    VectorReduce,
)
from selector.ir.traverse import change_stmts, map_stmt, replaced, walk_stmt
from selector.ir.types import INT32
from selector.operands.accumulators import accumulators_of
from selector.operands.updates import Update

MOST_PARTS = 64


@dataclass(frozen=True, slots=True)
class Cut:
    """A reduction over (after, kept, before), the last fastest, of which ``kept`` stays one."""

    before: int
    kept: int
    after: int

    @property
    def terms(self) -> int:
        return self.before * self.kept * self.after


def slice_reductions(allocation: Allocate) -> Iterator[Allocate]:
    """A prepared allocation with its reductions in parts: keeping one dimension of them after the
    other, the fastest first."""
    seen = [allocation.body]
    for dimension in range(_dimensions(allocation)):
        body = _sliced(allocation, dimension)
        if body not in seen:
            seen.append(body)
            yield replace(allocation, body=body)


def _dimensions(allocation: Allocate) -> int:
    stores = (s for s in walk_stmt(allocation.body) if isinstance(s, Store))
    found = [cuts[1] for s in stores if (cuts := _cuts(s)) is not None]
    return max((len(c) for c in found), default=0)


def _sliced(allocation: Allocate, dimension: int) -> Stmt:
    placed = accumulators_of(allocation)

    def parts(s: Stmt) -> Stmt | None:
        return _parts(s, dimension) if isinstance(s, Store) and s.buffer in placed else None

    return change_stmts(allocation.body, parts)


def _cuts(s: Store) -> tuple[VectorReduce, tuple[Cut, ...]] | None:
    """The sum of an update, and each way to keep one of its dimensions, the fastest first."""
    update = Update.of(s)
    if not update.adds_itself or len(update.reductions) != 1 or update.factors is None:
        return None
    total = update.reductions[0]
    terms = total.value.type.lanes // total.lanes
    axes = [_depth_levels(f.load, terms) for f in update.factors]
    joint = None if axes[0] is None or axes[1] is None else align(axes[0], axes[1])
    if joint is None:
        return None
    cuts: list[Cut] = []
    before = 1
    for count in _merged(joint):
        cuts.append(Cut(before, count, terms // before // count))
        before *= count
    return total, tuple(cuts)


def _parts(s: Store, dimension: int) -> Stmt:
    found = _cuts(s)
    if found is None or dimension >= len(found[1]):
        return s
    total, chosen = found[0], found[1][dimension]
    count = chosen.before * chosen.after
    if count == 1 or count > MOST_PARTS:
        return s
    values = (_slice(total.value, chosen, part) for part in range(count))
    pieces = [replace(total, value=value) for value in values if value is not None]
    if len(pieces) < count:
        return s
    stores = (map_stmt(s, lambda x: x, lambda e, p=p: replaced(e, total, p)) for p in pieces)
    return Block(tuple(stores))


def _depth_levels(load: Load | None, terms: int) -> tuple[Level, ...] | None:
    seen = None if load is None else access(load.index)
    split = None if seen is None else cut(seen.levels, terms)
    return None if split is None else split[0]


def _merged(axes: tuple[tuple[Affine, Affine, int], ...]) -> list[int]:
    """Counts of the dimensions that both operands walk with one stride each, the fastest first."""
    found: list[tuple[Affine, Affine, int]] = []
    for s, t, count in axes:
        if found and s == found[-1][0] * found[-1][2] and t == found[-1][1] * found[-1][2]:
            found[-1] = (*found[-1][:2], found[-1][2] * count)
        else:
            found.append((s, t, count))
    return [count for _, _, count in found]


def _slice(e: Expr, c: Cut, part: int) -> Expr | None:
    """The lanes (tile, kept) of a vector (tile, after, kept, before); None if that has no simple
    form."""
    lanes = e.type.lanes // c.terms * c.kept
    if e.type.element == INT32:
        seen = access(e) if isinstance(e, Ramp | Broadcast | Binary) else None
        if seen is not None:
            return _slice_walk(seen, c, part)
    match e:
        case Load(t, buffer, index, predicate):
            place = _slice(index, c, part)
            mask = None if predicate is None else _slice(predicate, c, part)
            if place is None or (predicate is not None and mask is None):
                return None
            return Load(t.with_lanes(lanes), buffer, place, mask)
        case Broadcast(value, _):
            return _slice_copies(value, lanes, c, part)
        case Cast(t, value):
            found = _slice(value, c, part)
            return None if found is None else Cast(t.with_lanes(lanes), found)
        case Binary(op, a, b):
            x, y = (_slice(v, c, part) for v in (a, b))
            return None if x is None or y is None else Binary(op, x, y)
        case Compare(op, a, b):
            x, y = (_slice(v, c, part) for v in (a, b))
            return None if x is None or y is None else Compare(op, x, y)
        case Select(condition, a, b):
            q, x, y = (_slice(v, c, part) for v in (condition, a, b))
            return None if q is None or x is None or y is None else Select(q, x, y)
        case Not(value):
            found = _slice(value, c, part)
            return None if found is None else Not(found)
        case _:
            return None


def _slice_copies(value: Expr, lanes: int, c: Cut, part: int) -> Expr | None:
    width = value.type.lanes
    if width % c.terms == 0:
        found = _slice(value, c, part)
    else:
        found = value if width == 1 or (c.before == 1 and c.kept % width == 0) else None
    if found is None:
        return None
    count = lanes // found.type.lanes
    return found if count == 1 else Broadcast(found, count)


def _slice_walk(seen: Access, c: Cut, part: int) -> Expr | None:
    depth = cut(seen.levels, c.terms)
    before = None if depth is None else cut(depth[0], c.before)
    kept = None if before is None else cut(before[1], c.kept)
    if depth is None or before is None or kept is None:
        return None
    base = _at(seen.base, before[0], part % c.before)
    return walk(_at(base, kept[1], part // c.before), (*kept[0], *depth[1]))


def _at(base: Affine, levels: tuple[Level, ...], number: int) -> Affine:
    """The element of a walk."""
    for stride, count in levels:
        base, number = base + stride * (number % count), number // count
    return base
