"""Kernels that read the same arrays become one.

    for block, thread: dx[i] = a[i + 1] - a[i]
    for block, thread: dy[i] = a[i + s] - a[i]
    for block, thread: m[i] = dx[i] + dy[i]

are one kernel, whose threads read ``a`` once from memory, whatever else each of them reads. What a
kernel reads that another one has stored at the thread's own element, it computes itself: then no
thread waits for another. Each part runs where its own grid has blocks. Kernels of one thread that
follow each other are one in any case.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from selector.dataclass import dataclass
from selector.ir.lanes import same_index
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Block,
    Compare,
    CompareOp,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    LetStmt,
    Load,
    Stmt,
    Store,
    Var,
)
from selector.ir.traverse import (
    change_exprs,
    free_vars,
    substitute_stmt,
    walk_all_exprs,
    walk_expr,
    walk_stmt,
)
from selector.lowering.structure import loaded_names, stored_names

ONE = IntImm(1)
LARGEST = 400  # nodes of a value that is computed again

_PLAIN = (Block, Store, IfThenElse, LetStmt, For)


@dataclass(frozen=True, slots=True)
class _Part:
    """A kernel: its loops over blocks and over threads, outermost first, and what a thread does."""

    blocks: tuple[For, ...]
    threads: tuple[For, ...]
    body: Stmt

    @property
    def shape(self) -> tuple[int, tuple[Expr, ...]]:
        return len(self.blocks), tuple(t.extent for t in self.threads)

    @property
    def single(self) -> bool:
        """Whether it has one thread."""
        return all(x.extent == ONE for x in (*self.blocks, *self.threads))

    def renamed(self, first: _Part) -> _Part:
        """With the blocks and threads of another one."""
        own = zip((*self.blocks, *self.threads), (*first.blocks, *first.threads), strict=True)
        values: dict[str, Expr] = {a.name: Var(b.name) for a, b in own}
        return replace(self, body=substitute_stmt(self.body, values))


def join_kernels(kernels: Sequence[For], alone: Set[str]) -> list[For]:
    """Nests of block loops, in order, of which those that read the same arrays are one; but for
    those of Funcs that are to stay ``alone``.
    """
    groups: list[list[_Part] | For] = []
    stored = [stored_names(s) for s in kernels]
    for s in kernels:
        once = all(sum(name in names for names in stored) == 1 for name in stored_names(s))
        part = _part(s) if s.name.split(".")[0] not in alone else None
        if part is None or not (once or part.single):
            groups.append(s)
        elif not _joins(part, groups):
            groups.append([part])
    return [_one(group) if isinstance(group, list) else group for group in groups]


def _joins(part: _Part, groups: Sequence[list[_Part] | For]) -> bool:
    """Put a kernel to the last ones that it may be one with, if it waits for none behind these."""
    for group in reversed(groups):
        more = _joined(part, group) if isinstance(group, list) else None
        if isinstance(group, list) and more:
            group.append(more)
            return True
        behind = [p.body for p in group] if isinstance(group, list) else [group]
        if any(_depends(part.body, s) for s in behind):
            return False
    return False


def _depends(s: Stmt, before: Stmt) -> bool:
    """Whether a kernel reads or stores what one before it stores, or stores what that reads."""
    written, stored = stored_names(s), stored_names(before)
    return bool(loaded_names(s) & stored or written & (stored | loaded_names(before)))


def _part(s: For) -> _Part | None:
    """None where threads have memory of their own, or share some."""
    blocks, threads, body = list[For](), list[For](), s
    for kind, found in ((ForKind.GPU_BLOCK, blocks), (ForKind.GPU_THREAD, threads)):
        while isinstance(body, For) and body.kind is kind:
            found.append(body)
            body = body.body
    if not threads or any(b.min != IntImm(0) for b in (*blocks, *threads)):
        return None
    if not all(isinstance(t.extent, IntImm) for t in threads):
        return None
    inside = list(walk_stmt(body))
    if not all(isinstance(x, _PLAIN) for x in inside):
        return None
    if any(isinstance(x, For) and x.kind not in (ForKind.SERIAL, ForKind.UNROLLED) for x in inside):
        return None
    return _Part(tuple(blocks), tuple(threads), body)


def _joined(part: _Part, group: Sequence[_Part]) -> _Part | None:
    """A kernel as a part of those before it; None where it is none."""
    first = group[0]
    if part.shape != first.shape:
        return None
    if part.single:
        return part.renamed(first)
    body = part.renamed(first).body
    for other in group:
        body = _computed(body, other.body)
    if any(_depends(body, other.body) for other in group):
        return None
    read = loaded_names(body)
    alike = any(read and read == loaded_names(other.body) for other in group)
    shared = read.intersection(*(_large(other) for other in group))
    return replace(part, body=body) if alike or shared & _large(replace(first, body=body)) else None


def _large(part: _Part) -> set[str]:
    """Arrays of which each thread reads another element."""
    own = {x.name for x in part.threads if x.extent != ONE}
    loads = (e for e in walk_all_exprs(part.body) if isinstance(e, Load))
    return {e.buffer for e in loads if own <= free_vars(e.index)}


def _computed(body: Stmt, s: Stmt) -> Stmt:
    """A thread's work with the value of what the same thread stores in another kernel."""
    if not isinstance(s, Store) or s.buffer not in loaded_names(body) - loaded_names(s):
        return body
    bound = {x.name for x in walk_stmt(body) if isinstance(x, For | LetStmt)}
    if bound & free_vars(s.value) or sum(1 for _ in walk_expr(s.value)) > LARGEST:
        return body

    def stored(e: Expr) -> Expr | None:
        own = isinstance(e, Load) and e.buffer == s.buffer and same_index(e.index, s.index)
        return s.value if own else None

    return change_exprs(body, stored)


def _one(group: Sequence[_Part]) -> For:
    """The kernel of some parts."""
    first, body = group[0], list[Stmt]()
    extents = [_most([p.blocks[d].extent for p in group]) for d in range(len(first.blocks))]
    for part in group:
        s = part.body
        for d, block in enumerate(part.blocks):
            if block.extent != extents[d]:
                inside = Compare(CompareOp.LT, Var(first.blocks[d].name), block.extent)
                s = IfThenElse(inside, s, None)
        body.append(s)
    s = body[0] if len(body) == 1 else Block(tuple(body))
    for t in reversed(first.threads):
        s = replace(t, body=s)
    for block, extent in zip(reversed(first.blocks), reversed(extents), strict=True):
        s = replace(block, extent=extent, body=s)
    assert isinstance(s, For)
    return s


def _most(extents: Sequence[Expr]) -> Expr:
    found, *others = dict.fromkeys(extents)
    for e in others:
        found = Binary(BinaryOp.MAX, found, e)
    return found
