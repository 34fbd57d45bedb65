"""Kernels that read the same arrays become one.

    for block, thread: dx[i] = a[i + 1] - a[i]
    for block, thread: dy[i] = a[i + s] - a[i]
    for block, thread: m[i] = dx[i] + dy[i]

are one kernel, whose threads read ``a`` once from memory. What a kernel reads that another one has
stored at the thread's own element, it computes itself: then no thread waits for another. Each part
runs where its own grid has blocks.
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
from selector.ir.traverse import change_exprs, free_vars, substitute_stmt, walk_expr, walk_stmt
from selector.lowering.structure import loaded_names, stored_names

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

    def renamed(self, first: _Part) -> _Part:
        """With the blocks and threads of another one."""
        own = zip((*self.blocks, *self.threads), (*first.blocks, *first.threads), strict=True)
        values: dict[str, Expr] = {a.name: Var(b.name) for a, b in own}
        return replace(self, body=substitute_stmt(self.body, values))


def join_kernels(kernels: Sequence[For], alone: Set[str]) -> list[For]:
    """Nests of block loops, in order, of which those that read the same arrays are one; but for
    those of Funcs that are to stay ``alone``.
    """
    done: list[For] = []
    group: list[_Part] = []
    stored = [stored_names(s) for s in kernels]
    for s in kernels:
        once = all(sum(name in names for names in stored) == 1 for name in stored_names(s))
        part = _part(s) if once and s.name.split(".")[0] not in alone else None
        more = _joined(part, group) if part and group else None
        if more:
            group.append(more)
            continue
        done += [_one(group)] if group else []
        done += [] if part else [s]
        group = [part] if part else []
    return [*done, _one(group)] if group else done


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
    body = part.renamed(first).body
    for other in group:
        body = _computed(body, other.body)
    read, written = loaded_names(body), stored_names(body)
    for other in group:
        stored = stored_names(other.body)
        if read & stored or written & (stored | loaded_names(other.body)):
            return None
    return replace(part, body=body) if read and read == loaded_names(first.body) else None


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
