"""Recurrences that follow each other become one kernel: a block takes its part through all of them.

    for all i: u[i] = f(i) + a*u[i - 1]                for all i: u[i] = f(i) + a*u[i - 1]
    for all i: v[i] = g(u[i], u[i - 1]) + b*v[i - 1]              v[i] = g(u[i], u[i - 1]) + ...
    for all i: w[i] = h(v[i])                                     w[i] = h(v[i])

What the next one reads of outputs before is what this one keeps of them itself, so a thread has it:
outputs go from one to the next in registers, and are not stored. Blocks run so many steps ahead of
their own as all of them need, one after the other, to forget where they began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise

from selector.ir.nodes import Compare, CompareOp, Expr, For, ForKind, IntImm, Load, Stmt, Store, Var
from selector.ir.simplify import mul
from selector.ir.traverse import replaced_all, substitute, walk_expr
from selector.lowering.scans.build import Scan, whole
from selector.lowering.scans.find import Spread, find
from selector.lowering.scans.memory import known_weights
from selector.lowering.scans.steps import begins_at_vectors, earlier
from selector.lowering.scans.turns import nested


def cascade(kernels: Sequence[Stmt], begun: Mapping[str, tuple[Expr, ...]]) -> For | None:
    """The kernel of some recurrences, of which each reads the one before, and which have ``begun``
    with these; None where they are to be computed one by one.
    """
    parts = [find(s) if isinstance(s, For) else None for s in kernels]
    found = [replace(p, begun=begun.get(p.store.buffer, ())) for p in parts if p is not None]
    if len(found) < len(parts) or len(found) < 2:
        return None
    same = [found[0], *(_alike(p, found[0]) for p in found[1:])]
    spreads = [p for p in same if p is not None]
    if len(spreads) < len(found) or any(p.then is not None for p in spreads[:-1]):
        return None
    links = [_link(a, b) for a, b in pairwise(spreads)]
    numbers = [known_weights(p.weights, p.type) for p in spreads]
    memories = [0 if k is None else k.memory for k in numbers]
    if None in links or not all(memories) or any(p.in_place or p.join for p in spreads):
        return None
    spreads[-1] = replace(spreads[-1], kept=spreads[-1].then is None)
    inputs = f"{spreads[0].store.buffer}.inputs"
    dealt = not all(map(begins_at_vectors, spreads))
    scans = [
        Scan(p, kept=sum(memories), inputs=inputs, following=following, led=n > 0, dealt=dealt)
        for n, (p, following) in enumerate(zip(spreads, (*links, None), strict=True))
    ]
    if not all(s.alone and s.steps.row for s in scans):
        return None
    return whole(scans)


def none_left(kernel: Stmt) -> Expr:
    """Whether a kernel has no blocks."""
    loops = (x for x in nested(kernel) if isinstance(x, For) and x.kind is ForKind.GPU_BLOCK)
    blocks: Expr = reduce(mul, (x.extent for x in loops), IntImm(1))
    return Compare(CompareOp.EQ, blocks, IntImm(0))


def _alike(p: Spread, first: Spread) -> Spread | None:
    """One with the loops of the first; None where it has others."""

    def shape(s: Spread) -> list[tuple[ForKind, Expr, Expr]]:
        return [(x.kind, x.min, x.extent) for x in (*s.grid, *s.loops)]

    if shape(p) != shape(first) or p.others or first.others or p.type != first.type:
        return None
    own = zip((*p.grid, *p.loops), (*first.grid, *first.loops), strict=True)
    values: dict[str, Expr] = {a.name: Var(b.name) for a, b in own}

    def renamed(e: Expr) -> Expr:
        return substitute(e, values)

    def moved(s: Store) -> Store:
        predicate = None if s.predicate is None else renamed(s.predicate)
        return replace(s, index=renamed(s.index), value=renamed(s.value), predicate=predicate)

    tests = tuple(map(renamed, p.tests))
    if tests != first.tests:
        return None
    return replace(
        p,
        store=moved(p.store),
        loops=first.loops,
        threads=first.threads,
        grid=first.grid,
        tests=tests,
        then=None if p.then is None else moved(p.then),
        begun=tuple(map(renamed, p.begun)),
    )


def _link(a: Spread, b: Spread) -> Expr | None:
    """What the second reads for a step, if that is nothing but outputs of the first that this has
    then: ``earlier(0)`` of the step, and those before it.
    """
    if b.input is None:
        return None
    loads = {x for x in walk_expr(b.input) if isinstance(x, Load)}
    lags = {x: a.lag(x) for x in loads if x.buffer == a.store.buffer}
    kept: dict[Expr, Expr] = {
        x: earlier(n, a.type) for x, n in lags.items() if n is not None and n <= a.order
    }
    return replaced_all(b.input, kept) if len(kept) == len(loads) else None
