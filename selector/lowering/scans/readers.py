"""What is made of a recurrence's outputs, each by itself: done with them, as they are stored.

    y[i] = f(i) + a*y[i - 1]                       y[i] = f(i) + a*y[i - 1], g[i] = h(y[i])
    for all i: g[i] = h(y[i])                      for all other i: g[i] = h(y[i])

The outputs are so not read again, and not stored where nobody else reads them. The second kernel
has the elements left that lie before the recurrence, or behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from selector.ir.affine import Affine
from selector.ir.lanes import in_lanes, lane
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Block,
    Compare,
    CompareOp,
    Dim,
    Expr,
    For,
    IfThenElse,
    IntImm,
    Load,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import mul
from selector.ir.traverse import change_stmts, conjuncts, free_vars, substitute, walk_expr
from selector.lowering.predicates import conjunction, every, slack
from selector.lowering.scans.find import Spread, find
from selector.lowering.scans.turns import nested
from selector.lowering.scans.walks import Blocks, blocks_of, coordinates, ends_of, moved, with_loop

LANE = "$reader_lane"


def taken_reader(
    first: Stmt, second: Stmt, arrays: Mapping[str, tuple[Dim, ...]]
) -> tuple[Stmt, Stmt] | None:
    """A recurrence that stores what the kernel behind it makes of each output, and what is left of
    that; None where the second reads anything else of it.
    """
    if not (isinstance(first, For) and isinstance(second, For)):
        return None
    found, store = _recurrence(first, arrays), list(nested(second))[-1]
    if found is None or not found.upwards:
        return None
    if not isinstance(store, Store) or store.buffer == found.store.buffer:
        return None
    lanes = store.value.type.lanes
    own = Var(LANE)
    p = None if store.predicate is None else lane(store.predicate, ((own, lanes),))
    one = Store(
        store.buffer, lane(store.index, ((own, lanes),)), lane(store.value, ((own, lanes),))
    )
    reads = {x for x in walk_expr(one.value) if isinstance(x, Load)}
    mine = [x for x in reads if x.buffer == found.store.buffer]
    if len(mine) != 1 or any(x.buffer == store.buffer for x in reads):
        return None
    dims = arrays[found.store.buffer]
    here, there = coordinates(mine[0].index, dims), coordinates(found.store.index, dims)
    if here is None or there is None:
        return None
    loops = [x for x in nested(second) if isinstance(x, For)]
    asked = [x.condition for x in nested(second) if isinstance(x, IfThenElse)]
    tests = [t for c in (*asked, *(() if p is None else (p,))) for t in conjuncts(c)]
    blocks = blocks_of(loops, here, found, there)
    spans = [_span(Affine.of(e), loops, lanes) for e in here]
    if blocks is None or not _alike(found, spans, here, there, tests):
        return None
    names = [own, *(Var(x.name) for x in loops)]
    lows = [Affine.of(e).offset for e in here]
    if blocks.first < lows[blocks.along]:
        return None
    inside = [
        Compare(CompareOp.LT, e, (Affine.of(span) + low).to_expr())
        for e, span, low in zip(there, spans, lows, strict=True)
        if span is not None
    ]
    parts = [moved(e, here, there, names) for e in (one.index, one.value, *tests)]
    whole = [e for e in parts if e is not None]
    if len(whole) < len(parts):
        return None
    index, value, *held = whole
    then = Store(store.buffer, index, value, every([*inside, *held]))
    end = _end(blocks, Affine.of(here[blocks.along]), spans, tests)
    ends = [e for e in ends_of(found) if e is not None]
    if len(ends) < len(found.tests) + 1 or any(
        e.mentions(x.name) for e in ends for x in found.grid
    ):
        return None
    left = _left(second, store, blocks, ends, here[blocks.along], end)
    both = change_stmts(first, lambda s: Block((s, then)) if isinstance(s, Store) else None)
    return both, left


def _recurrence(s: For, arrays: Mapping[str, tuple[Dim, ...]]) -> Spread | None:
    """One whose threads bring what they read to shared memory, and take their outputs from there;
    that does not begin with what lies there.
    """
    if not isinstance(list(nested(s))[-1], Store):
        return None
    found = find(s)
    if found is None or found.store.buffer not in arrays or found.others or found.in_place:
        return None
    steps = {x.name for x in found.loops}
    return found if all(free_vars(t) & steps for t in found.tests) else None


def _span(at: Affine, loops: Iterable[For], lanes: int) -> Expr | None:
    """How many elements loops go through from 0 on, one after the other; None if they do not."""
    extents = {LANE: IntImm(lanes), **{x.name: x.extent for x in loops}}
    starts = {x.name: x.min for x in loops}
    long = [n for n, extent in extents.items() if extent != IntImm(1) and at.mentions(n)]
    steps = [(at.coefficient(Var(n)).constant, n) for n in long]
    reached, span = 1, Affine.of(1)
    for step, name in sorted(steps, key=lambda s: s[0] or 0):
        extent = extents[name]
        if step != reached or span.constant is None or starts.get(name, IntImm(0)) != IntImm(0):
            return None
        at, span = at.rest(Var(name)), Affine.of(mul(extent, IntImm(reached)))
        reached = span.constant or reached
    for name in extents.keys() - long:
        at = at.rest(Var(name))
    return span.to_expr() if at.constant is not None else None


def _alike(
    found: Spread,
    spans: Sequence[Expr | None],
    here: Sequence[Expr],
    there: Sequence[Expr],
    tests: Sequence[Expr],
) -> bool:
    """Whether both go through the same rows: the reader through none that the recurrence has not,
    and through its own without gaps.
    """
    steps, slacks = {x.name for x in found.loops}, [slack(t) for t in tests]
    for at, own, span in zip(here, there, spans, strict=True):
        if span is None:
            return False
        if free_vars(own) & steps:
            continue
        rows = _span(Affine.of(own), found.grid, 1)
        if rows is None or Affine.of(at).offset or Affine.of(own).offset:
            return False
        room = Affine.of(rows) - 1 - Affine.of(at)
        more = (Affine.of(span) - Affine.of(rows)).constant
        if (more is None or more > 0) and room not in slacks:
            return False
    return True


def _end(blocks: Blocks, at: Affine, spans: Sequence[Expr | None], tests: Sequence[Expr]) -> Expr:
    """Behind the last element along the recurrence that a reader asks for, in its array."""
    names = {v for m, _ in at for a in m for v in free_vars(a)}
    for test in tests:
        room = slack(test)
        end = None if room is None else room + at + 1
        if end is not None and not any(end.mentions(n) for n in names):
            return end.to_expr()
    span = spans[blocks.along]
    assert span is not None
    return (Affine.of(span) + at.offset).to_expr()


def _left(
    second: For, store: Store, blocks: Blocks, ends: Sequence[Affine], at: Expr, end: Expr
) -> Stmt:
    """The kernel behind, with the blocks that have elements that the recurrence has not, and these
    alone.
    """
    low = Affine.of(at).offset
    first = blocks.first
    late = every([Compare(CompareOp.LE, (e + first).to_expr(), at) for e in ends[:1]])
    for e in ends[1:]:
        late = Binary(BinaryOp.OR, late, Compare(CompareOp.LE, (e + first).to_expr(), at))
    other = Binary(BinaryOp.OR, Compare(CompareOp.LT, at, IntImm(first)), late)
    lanes = store.value.type.lanes
    other = in_lanes(other, LANE, lanes) if lanes > 1 else substitute(other, {LANE: IntImm(0)})
    kept = other if store.predicate is None else conjunction(store.predicate, other)
    moved_blocks = replace(blocks, first=first - low)
    extent = (Affine.of(end) - low).to_expr()
    place = moved_blocks.left(ends, extent)

    def own(s: Stmt) -> Stmt | None:
        return replace(s, predicate=kept) if isinstance(s, Store) else None

    return with_loop(change_stmts(second, own), blocks.loop.name, *place)
