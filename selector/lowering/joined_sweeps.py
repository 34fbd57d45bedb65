"""Kernels whose threads go through the same arrays in the same way become one.

    for block: for thread: for i: s[0] += a[...];      ...; sums[...] = s[0]
    for block: for thread: for i: q[0] += a[...]^2;    ...; squares[...] = q[0]

are one kernel, in whose loops both are added up, so that ``a`` is read once. Blocks may share
memory in either: they do the same steps, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from selector.dataclass import dataclass
from selector.ir.nodes import (
    Allocate,
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
    Memory,
    Stmt,
    Store,
    Var,
)
from selector.ir.traverse import free_vars, substitute_stmt, walk_stmt
from selector.lowering.normalize import sequence
from selector.lowering.structure import loaded_names, stored_names


@dataclass(frozen=True, slots=True)
class _Step:
    """What all threads of a block do before they meet."""

    threads: tuple[For, ...]
    body: Stmt


@dataclass(frozen=True, slots=True)
class _Sweep:
    """A kernel: its loops over blocks, the memory that these share, and their steps."""

    blocks: tuple[For, ...]
    shared: tuple[Allocate, ...]
    steps: tuple[_Step, ...]

    @property
    def shape(self) -> tuple[object, ...]:
        threads = tuple(tuple(t.extent for t in step.threads) for step in self.steps)
        return tuple(b.kind for b in self.blocks), threads


def join_sweeps(kernels: Sequence[For], alone: Set[str]) -> list[For]:
    """Nests of block loops, in order; ``alone``: Funcs whose kernels stay as they are."""
    done = list[For]()
    for s in kernels:
        own = s.name.split(".")[0] in alone
        at = None if own else next((n for n in range(len(done)) if _moves(s, done[n:])), None)
        joined = None if at is None else _joined(done[at], s, alone)
        if at is None or joined is None:
            done.append(s)
        else:
            done[at] = joined
    return done


def _moves(s: For, before: Sequence[For]) -> bool:
    """Whether a kernel reads what the first of those before it does, and touches nothing else that
    they do.
    """
    read, written = loaded_names(s), stored_names(s)
    local = {x.name for x in walk_stmt(s) if isinstance(x, Allocate)}
    theirs = {x.name for k in before for x in walk_stmt(k) if isinstance(x, Allocate)}
    stored = frozenset[str]().union(*map(stored_names, before))
    loaded = frozenset[str]().union(*map(loaded_names, before))
    apart = not read & stored and not (written - local) & (stored | loaded) and not local & theirs
    return apart and bool(read - local) and read - local == loaded_names(before[0]) - theirs


def _joined(first: For, second: For, alone: Set[str]) -> For | None:
    """None where they are not alike."""
    a, b = _sweep(first), _sweep(second)
    if a is None or b is None or a.shape != b.shape or first.name.split(".")[0] in alone:
        return None
    names = _names(a.blocks, b.blocks)
    steps = list[Stmt]()
    for one, other in zip(a.steps, b.steps, strict=True):
        last = one is a.steps[-1]
        own = substitute_stmt(other.body, names | _names(one.threads, other.threads))
        bodies = [one.body, own]
        if last:
            bodies = [_within(x, k, a, b) for x, k in zip(bodies, (a, b), strict=True)]
        body = _merged(*bodies)
        for t in reversed(one.threads):
            body = replace(t, body=body)
        steps.append(body)
    body = Block(tuple(steps))
    for x in reversed((*a.shared, *b.shared)):
        body = replace(x, body=body)
    extents = [_most(p.extent, q.extent) for p, q in zip(a.blocks, b.blocks, strict=True)]
    for x, extent in zip(reversed(a.blocks), reversed(extents), strict=True):
        body = replace(x, extent=extent, body=body)
    assert isinstance(body, For)
    return body


def _sweep(s: For) -> _Sweep | None:
    """None where a kernel has other parts, or no step that ends in shared memory."""
    blocks, shared, body = list[For](), list[Allocate](), s
    while isinstance(body, For) and body.kind is ForKind.GPU_BLOCK and body.min == IntImm(0):
        blocks.append(body)
        body = body.body
    while isinstance(body, Allocate) and body.memory is Memory.GPU_SHARED and body.stages == 1:
        shared.append(body)
        body = body.body
    steps = [_step(x) for x in sequence(body)]
    found = tuple(x for x in steps if x is not None)
    own = {b.name for b in blocks}
    sizes = (e for x in shared for e in x.extents)
    if not shared or len(found) < len(steps) or any(free_vars(e) & own for e in sizes):
        return None
    if any(free_vars(b.extent) & own for b in blocks):
        return None
    return _Sweep(tuple(blocks), tuple(shared), found)


def _step(s: Stmt) -> _Step | None:
    threads = list[For]()
    while isinstance(s, For) and s.kind is ForKind.GPU_THREAD and s.min == IntImm(0):
        threads.append(s)
        s = s.body
    inside = list(walk_stmt(s))
    plain = all(isinstance(x, Allocate | Block | For | IfThenElse | Store) for x in inside)
    serial = (ForKind.SERIAL, ForKind.UNROLLED)
    loops = all(x.kind in serial for x in inside if isinstance(x, For))
    memory = all(x.memory is not Memory.GPU_SHARED for x in inside if isinstance(x, Allocate))
    return _Step(tuple(threads), s) if threads and plain and loops and memory else None


def _names(own: Sequence[For], others: Sequence[For]) -> dict[str, Expr]:
    return {b.name: Var(a.name) for a, b in zip(own, others, strict=True)}


def _within(s: Stmt, own: _Sweep, a: _Sweep, b: _Sweep) -> Stmt:
    """The last step, where the kernel itself has blocks."""
    for mine, p, q in zip(own.blocks, a.blocks, b.blocks, strict=True):
        if mine.extent != _most(p.extent, q.extent):
            s = IfThenElse(Compare(CompareOp.LT, Var(p.name), mine.extent), s, None)
    return s


def _merged(a: Stmt, b: Stmt) -> Stmt:
    """Both, whose statements touch nothing of each other's; loops that are alike are one."""
    match a, b:
        case Allocate(body=body), _:
            return replace(a, body=_merged(body, b))
        case _, Allocate(body=body):
            return replace(b, body=_merged(a, body))
        case For(), For() if (a.min, a.extent, a.kind) == (b.min, b.extent, b.kind):
            other = substitute_stmt(b.body, {b.name: Var(a.name)})
            return replace(a, body=_merged(a.body, other))
        case IfThenElse(p, s, None), IfThenElse(q, t, None) if p == q:
            return IfThenElse(p, _merged(s, t), None)
        case Block(first), Block(second) if len(first) == len(second):
            return Block(tuple(_merged(s, t) for s, t in zip(first, second, strict=True)))
        case _:
            return Block((a, b))


def _most(a: Expr, b: Expr) -> Expr:
    return a if a == b else Binary(BinaryOp.MAX, a, b)
