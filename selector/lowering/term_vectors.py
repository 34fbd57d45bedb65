"""The order of the terms of several sums of a thread, where what they read lies side by side.

    for k < 16, written out:                 for q < 4, written out:
      c[0] += b[k*128] * a[k]          =>      for r < 4, written out:
      c[4] += b[k*128] * a[k + 16]               c[0] += b[(4*q + r)*128] * a[4*q + r]
                                               for r < 4, written out:
                                                 c[4] += b[(4*q + r)*128] * a[4*q + r + 16]

Four neighbours are one load (16 bytes), and their registers are free again when one sum has had its
terms: with all sums at each term the vectors of all would be in registers, or be loaded again one
by one. Where few are enough for all, nothing changes. Each sum takes its terms in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise

from selector.dataclass import dataclass
from selector.ir.access import access
from selector.ir.affine import to_affine
from selector.ir.nodes import Block, For, ForKind, IntImm, Load, Stmt, Store, Var
from selector.ir.simplify import add, mul
from selector.ir.traverse import substitute_stmt, walk_expr, walk_stmt
from selector.targets import VECTOR_BYTES

WORD = 4  # smaller elements come by words, not measured to gain
AT_ONCE = 16  # elements of vectors that a thread well has in registers beside its sums


@dataclass(frozen=True, slots=True)
class _Sum:
    """A store, the elements that it touches, and the neighbours that it loads along terms."""

    store: Store
    first: int
    lanes: int
    loads: tuple[Load, ...]


def by_vectors(loop: For, n: int) -> Stmt:
    """A loop of ``n`` terms that is written out, in vectors of terms if there are any."""
    stores = loop.body.stmts if isinstance(loop.body, Block) else (loop.body,)
    sums = [_sum(s, loop.name) for s in stores]
    found = [s for s in sums if s]
    sizes = {x.type.bytes for s in found for x in s.loads}
    if len(found) < len(sums) or sizes != {WORD} or not _apart(found):
        return loop
    run = VECTOR_BYTES // WORD
    loads = {x for s in found for x in s.loads}
    if n % run or len(loads) * run <= AT_ONCE:
        return loop
    if not all(_aligned(x, loop.name, run) for x in loads):
        return loop
    turn, term = Var(f"{loop.name}_turn"), Var(f"{loop.name}_term")
    at = add(mul(turn, IntImm(run)), term)
    groups = [
        For(term.name, IntImm(0), IntImm(run), ForKind.UNROLLED,
            Block(tuple(substitute_stmt(s.store, {loop.name: at}) for s in group)))
        for _, group in groupby(found, key=lambda s: s.loads)
    ]  # fmt: skip
    return For(turn.name, IntImm(0), IntImm(n // run), ForKind.UNROLLED, Block(tuple(groups)))


def in_vectors(s: Stmt) -> bool:
    """Whether there is such a loop of loops."""
    return any(
        x.kind is ForKind.UNROLLED and isinstance(x.body, Block)
        and all(isinstance(y, For) and y.kind is ForKind.UNROLLED for y in x.body.stmts)
        for x in walk_stmt(s) if isinstance(x, For)
    )  # fmt: skip


def _sum(s: Stmt, k: str) -> _Sum | None:
    """None where a statement is no sum of a thread, at the same place for each ``k``."""
    if not isinstance(s, Store) or s.predicate is not None:
        return None
    seen, loads = access(s.index), [e for e in walk_expr(s.value) if isinstance(e, Load)]
    own = [e for e in loads if e.buffer == s.buffer]
    if seen is None or seen.base.constant is None or not seen.is_dense():
        return None
    if any(e.index != s.index for e in own) or not own:
        return None
    return _Sum(s, seen.base.constant, seen.lanes, tuple(_neighbours(loads, k)))


def _neighbours(loads: list[Load], k: str) -> Iterator[Load]:
    for load in loads:
        if load.type.lanes == 1 and to_affine(load.index).coefficient(Var(k)).constant == 1:
            yield load


def _aligned(load: Load, k: str, run: int) -> bool:
    """Whether vectors of neighbours begin at multiples of their length."""
    rest = to_affine(load.index).rest(Var(k))
    return not rest.mentions(k) and all(factor % run == 0 for _, factor in rest)


def _apart(sums: list[_Sum]) -> bool:
    """Whether no two touch an element, so that the order of their terms is theirs alone."""
    ordered = sorted(sums, key=lambda s: (s.store.buffer, s.first))
    return all(
        a.store.buffer != b.store.buffer or a.first + a.lanes <= b.first
        for a, b in pairwise(ordered)
    ) and {s.store.buffer for s in sums}.isdisjoint(
        e.buffer for s in sums for e in walk_expr(s.store.value)
        if isinstance(e, Load) and e.buffer != s.store.buffer
    )  # fmt: skip
