"""Names of programs from outside: they end up in comments, identifiers and messages, so that those
with line ends, quotes or backslashes are not taken. Halide's own are letters, digits and ``._$``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from selector.ir.module import Module
from selector.ir.nodes import (
    Allocate,
    Atomic,
    Call,
    Expr,
    For,
    Let,
    LetStmt,
    Load,
    Stmt,
    Store,
    Var,
)
from selector.ir.traverse import expr_children, stmt_exprs, walk_stmt

_PLAIN = re.compile(r"[\w.$@:<>\[\]*+~-][\w.$@:<>\[\]*+~ -]*")
_LONGEST = 200


def strange_name(module: Module) -> str | None:
    """A name of a module that is not taken from outside, or None."""
    for name in names(module):
        if len(name) > _LONGEST or not _PLAIN.fullmatch(name):
            return name
    return None


def names(module: Module) -> Iterator[str]:
    """Every name in a module, some of them more than once."""
    yield module.name
    yield from (p.name for p in (*module.buffers, *module.scalars))
    seen: set[int] = set()
    for b in module.buffers:
        for d in b.dims:
            for e in (d.min, d.extent, d.stride):
                yield from _in_expr(e, seen)
    for s in walk_stmt(module.body):
        yield from _of_stmt(s)
        for e in stmt_exprs(s):
            yield from _in_expr(e, seen)


def _of_stmt(s: Stmt) -> Iterator[str]:
    match s:
        case Store(buffer=name) | Atomic(producer=name):
            yield name
        case For(name=name) | Allocate(name=name) | LetStmt(name=name):
            yield name
        case _:
            pass


def _in_expr(e: Expr, seen: set[int]) -> Iterator[str]:
    """Names below an expression; what was seen before (by identity) is passed over."""
    stack = [e]
    while stack:
        top = stack.pop()
        if id(top) in seen:
            continue
        seen.add(id(top))
        match top:
            case Var(name=name) | Let(name=name) | Call(name=name) | Load(buffer=name):
                yield name
            case _:
                pass
        stack.extend(expr_children(top))
