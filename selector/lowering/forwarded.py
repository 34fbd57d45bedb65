"""Vectors that a thread keeps for the statement behind: they are computed where they are read.

    allocate sum[4]                                 out[ramp(x, 1, 4)] = f(0 + a[...] + a[...])
    sum[ramp(0, 1, 4)] = 0
    sum[ramp(0, 1, 4)] = sum[...] + a[...]     =>
    sum[ramp(0, 1, 4)] = sum[...] + a[...]
    out[ramp(x, 1, 4)] = f(sum[ramp(0, 1, 4)])

What the terms of a sum that is written out read of an array is loaded once then.
"""

from __future__ import annotations

from selector.ir.contents import holds, loaded, nodes_of
from selector.ir.nodes import (
    Allocate,
    Block,
    Expr,
    For,
    ForKind,
    IntImm,
    Load,
    Memory,
    Ramp,
    Stmt,
    Store,
    VectorReduce,
)
from selector.ir.traverse import change_exprs, change_stmts, map_stmt, stmt_exprs, walk_stmt
from selector.lowering.normalize import TENSOR_MEMORY, holds_tensor, sequence
from selector.lowering.structure import loaded_names, stored_names

MOST = 400  # loads of a statement


def forward(s: Stmt) -> Stmt:
    """The body of a module without such vectors."""
    match s:
        case For(kind=ForKind.GPU_THREAD):  # a warp's matrices and sums of their rows stay
            return s if holds_tensor(s) else change_stmts(s, _forwarded)
        case _:
            return map_stmt(s, forward, lambda e: e)


def _forwarded(s: Stmt) -> Stmt | None:
    if not isinstance(s, Allocate) or s.memory in (*TENSOR_MEMORY, Memory.GPU_SHARED):
        return None
    body = _without(s)
    return None if body is None else change_stmts(body, _forwarded)


def _without(s: Allocate) -> Stmt | None:
    """The statements around an allocation without it; None where it has to stay."""
    total = 1
    for extent in s.extents:
        total *= extent.value if isinstance(extent, IntImm) else 0
    whole, value = Ramp(IntImm(0), IntImm(1), total) if total > 1 else None, None
    found = list[Stmt]()
    read, written = frozenset[str](), frozenset[str]()
    for x in sequence(s.body):
        if s.name in loaded_names(x):
            if value is None or whole is None:
                return None
            x = _with(x, s.name, whole, value)
        if s.name in loaded_names(x) or not _is_small(x):
            return None
        if isinstance(x, Store) and x.buffer == s.name:
            if x.index != whole or x.predicate is not None or holds(x.value, VectorReduce):
                return None
            value = x.value
            read |= loaded(value)
            continue
        found.append(x)
        written |= stored_names(x)
    if s.name in written or read & written:
        return None
    return found[0] if len(found) == 1 else Block(tuple(found))


def _with(s: Stmt, name: str, index: Expr, value: Expr) -> Stmt:
    """A statement with a value in place of what is loaded of an array."""

    def change(e: Expr) -> Expr | None:
        match e:
            case Load(_, buffer, at, None) if buffer == name and at == index:
                return value
            case _:
                return None if name in loaded(e) else e

    return change_exprs(s, change)


def _is_small(s: Stmt) -> bool:
    loads = (load for x in walk_stmt(s) for e in stmt_exprs(x) for load in nodes_of(e, Load))
    return sum(1 for _ in loads) <= MOST
