"""Loops over the iterations in which something is stored, where a condition says which these are.

    for v < n: { t = copy of a; if (first[g] <= v) { if (v < last[g]) s += t } }

begins at ``first[g]`` and ends at ``last[g]``: what it copies in others, nobody reads. Data may say
which iterations count, such as where a table has weights other than zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from selector.ir.kinds import BinaryOp, CompareOp, ForKind
from selector.ir.nodes import (
    Allocate,
    Binary,
    Compare,
    Expr,
    For,
    IfThenElse,
    Let,
    LetStmt,
    Load,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import add, sub
from selector.ir.traverse import (
    conjuncts,
    free_vars,
    map_stmt,
    stmt_children,
    walk_all_exprs,
    walk_expr,
    walk_stmt,
)


def guarded(s: Stmt) -> Stmt:
    """The program with such loops."""
    s = map_stmt(s, guarded, lambda e: e)
    if not isinstance(s, For) or s.kind is not ForKind.SERIAL:
        return s
    local = frozenset(x.name for x in walk_stmt(s.body) if isinstance(x, Allocate))
    paths = list(_paths(s.body, local, frozenset()))
    shared = frozenset[Expr]().union(*paths[:1]).intersection(*paths)
    bounds = {c: _bound(c, s, local) for c in sorted(shared, key=str)}
    found = {c: bound for c, bound in bounds.items() if bound is not None}
    return _between(s, found) if found else s


def _paths(s: Stmt, local: frozenset[str], held: frozenset[Expr]) -> Iterator[frozenset[Expr]]:
    """What holds at each statement that changes memory which stays."""
    match s:
        case Store(buffer):
            if buffer not in local:
                yield held
        case IfThenElse(condition, then, None):
            yield from _paths(then, local, held | {*conjuncts(condition)})
        case _:
            for child in stmt_children(s):
                yield from _paths(child, local, held)


def _bound(condition: Expr, loop: For, local: frozenset[str]) -> tuple[bool, Expr] | None:
    """Whether a condition says where a loop begins, and that value; or the end."""
    v = Var(loop.name)
    match condition:
        case Compare(CompareOp.LE, low, b) if b == v:
            found = True, low
        case Compare(CompareOp.LT, a, end) if a == v:
            found = False, end
        case _:
            return None
    return found if _stays(found[1], loop, local) else None


def _stays(e: Expr, loop: For, local: frozenset[str]) -> bool:
    """Whether a value is the same in all iterations, and known before the loop."""
    inside, changed = {loop.name}, set(local)
    for s in walk_stmt(loop.body):
        if isinstance(s, For | LetStmt):
            inside.add(s.name)
        if isinstance(s, Store):
            changed.add(s.buffer)
    inside |= {x.name for x in walk_all_exprs(loop.body) if isinstance(x, Let)}
    reads = {x.buffer for x in walk_expr(e) if isinstance(x, Load)}
    return not free_vars(e) & inside and not reads & changed


def _between(loop: For, bounds: dict[Expr, tuple[bool, Expr]]) -> Stmt:
    """The loop from the largest of its beginnings to the smallest of its ends."""
    low, end = loop.min, add(loop.min, loop.extent)
    for begins, value in bounds.values():
        if begins:
            low = Binary(BinaryOp.MAX, low, value)
        else:
            end = Binary(BinaryOp.MIN, end, value)
    first, last = f"{loop.name}.first", f"{loop.name}.end"
    body = _without(loop.body, frozenset(bounds))
    found = replace(loop, min=Var(first), extent=sub(Var(last), Var(first)), body=body)
    return LetStmt(first, low, LetStmt(last, end, found))


def _without(s: Stmt, taken: frozenset[Expr]) -> Stmt:
    """A statement where those conditions hold."""
    if not isinstance(s, IfThenElse):
        return map_stmt(s, lambda b: _without(b, taken), lambda e: e)
    left = [c for c in conjuncts(s.condition) if c not in taken]
    then = _without(s.then, taken)
    if len(left) == len([*conjuncts(s.condition)]):
        return replace(s, then=then)
    for c in reversed(left):
        then = IfThenElse(c, then)
    return then
