"""Generic traversals: children, rebuild, walk, substitute.

A pass matches on the nodes it cares about and hands every other node to ``map_expr`` or
``map_stmt``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter, is_
from typing import Any, assert_never

from selector.ir.known import keep
from selector.ir.nodes import (
    Allocate,
    Atomic,
    Binary,
    BinaryOp,
    Block,
    Broadcast,
    Call,
    Cast,
    Compare,
    Evaluate,
    Expr,
    ExprVar,
    FloatImm,
    For,
    IfThenElse,
    IntImm,
    Let,
    LetStmt,
    Load,
    LocToLoc,
    Not,
    Ramp,
    Select,
    Shuffle,
    Stmt,
    Store,
    Var,
    VectorReduce,
)


def _load_operands(e: Load) -> tuple[Expr, ...]:
    return (e.index,) if e.predicate is None else (e.index, e.predicate)


def _value(e: Cast | Not | Broadcast | VectorReduce | LocToLoc | ExprVar) -> tuple[Expr, ...]:
    return (e.value,)


def _none(_: Var | IntImm | FloatImm) -> tuple[Expr, ...]:
    return ()


# Most of a compilation is spent in walking expressions: a table, and no generator in a generator.
_OPERANDS: dict[type, Callable[[Any], tuple[Expr, ...]]] = {
    **dict.fromkeys((Var, IntImm, FloatImm), _none),
    **dict.fromkeys((Cast, Not, Broadcast, VectorReduce, LocToLoc, ExprVar), _value),
    **dict.fromkeys((Binary, Compare), attrgetter("a", "b")),
    Ramp: attrgetter("base", "stride"),
    Select: attrgetter("condition", "then", "otherwise"),
    Let: attrgetter("value", "body"),
    Call: attrgetter("args"),
    Shuffle: attrgetter("vectors"),
    Load: _load_operands,
}


def expr_children(e: Expr) -> tuple[Expr, ...]:
    """The direct operands of an expression, in text order."""
    return _OPERANDS[type(e)](e)


_REBUILT: dict[type, Callable[[Any, tuple[Expr, ...]], Expr]] = {
    Binary: lambda e, new: Binary(e.op, new[0], new[1]),
    Compare: lambda e, new: Compare(e.op, new[0], new[1]),
    Call: lambda e, new: Call(e.type, e.name, new),
    Cast: lambda e, new: Cast(e.type, new[0]),
    Select: lambda _, new: Select(new[0], new[1], new[2]),
    Load: lambda e, new: Load(e.type, e.buffer, new[0], new[1] if len(new) > 1 else None),
    Not: lambda _, new: Not(new[0]),
    Broadcast: lambda e, new: Broadcast(new[0], e.count),
    Ramp: lambda e, new: Ramp(new[0], new[1], e.count),
    VectorReduce: lambda e, new: VectorReduce(e.op, new[0], e.lanes),
    LocToLoc: lambda e, new: LocToLoc(e.source, e.destination, new[0]),
    ExprVar: lambda _, new: ExprVar(new[0]),
    Shuffle: lambda e, new: Shuffle(new, e.indices),
    Let: lambda e, new: Let(e.name, new[0], new[1]),
}


def rebuilt(e: Expr) -> Callable[[tuple[Expr, ...]], Expr]:
    """What makes of operands the node that ``e`` is of its own."""
    return partial(_REBUILT[type(e)], e)


def map_expr(e: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """Rebuild ``e`` with ``f`` applied to its direct operands; the same object if nothing
    changed."""
    kind = type(e)
    old = _OPERANDS[kind](e)
    new = tuple(map(f, old))
    return e if all(map(is_, old, new)) else _REBUILT[kind](e, new)


def replaced(e: Expr, old: Expr, new: Expr) -> Expr:
    """With one of its nodes as another; what equals ``old`` but is not it stays."""
    return new if e is old else map_expr(e, lambda c: replaced(c, old, new))


def replaced_all(e: Expr, values: Mapping[Any, Expr]) -> Expr:
    """With others for all nodes that equal one of some."""
    return values[e] if e in values else map_expr(e, lambda c: replaced_all(c, values))


def stmt_exprs(s: Stmt) -> tuple[Expr, ...]:
    """The expressions that a statement holds directly."""
    match s:
        case Store(_, index, value, predicate):
            return (index, value) if predicate is None else (index, value, predicate)
        case Evaluate(value) | LetStmt(_, value, _):
            return (value,)
        case For(_, low, extent, _, _):
            return (low, extent)
        case Allocate():
            return s.extents
        case IfThenElse(c, _, _):
            return (c,)
        case Block() | Atomic():
            return ()
        case _:
            assert_never(s)


def stmt_children(s: Stmt) -> tuple[Stmt, ...]:
    """The statements directly inside a statement."""
    match s:
        case Store() | Evaluate():
            return ()
        case For() | Allocate() | LetStmt() | Atomic():
            return (s.body,)
        case IfThenElse(_, t, f):
            return (t,) if f is None else (t, f)
        case Block(stmts):
            return stmts
        case _:
            assert_never(s)


def map_stmt(s: Stmt, on_stmt: Callable[[Stmt], Stmt], on_expr: Callable[[Expr], Expr]) -> Stmt:
    """Rebuild a statement from its mapped direct parts; the same object if nothing changed."""
    old_exprs, old_stmts = stmt_exprs(s), stmt_children(s)
    exprs, stmts = tuple(map(on_expr, old_exprs)), tuple(map(on_stmt, old_stmts))
    if all(map(is_, old_exprs, exprs)) and all(map(is_, old_stmts, stmts)):
        return s
    match s:
        case Store():
            return Store(s.buffer, exprs[0], exprs[1], exprs[2] if len(exprs) > 2 else None)
        case Evaluate():
            return Evaluate(exprs[0])
        case For():
            return For(s.name, exprs[0], exprs[1], s.kind, stmts[0])
        case Allocate():
            return Allocate(s.name, s.type, exprs, s.memory, stmts[0], s.stages)
        case IfThenElse():
            return IfThenElse(exprs[0], stmts[0], stmts[1] if len(stmts) > 1 else None)
        case LetStmt():
            return LetStmt(s.name, exprs[0], stmts[0])
        case Block():
            return Block(stmts)
        case Atomic():
            return Atomic(s.producer, stmts[0])
        case _:
            assert_never(s)


def change_expr(e: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """What ``change`` gives for a node, the outermost first; where that is None, the node of what
    its operands become.
    """
    found = change(e)
    return map_expr(e, lambda x: change_expr(x, change)) if found is None else found


def change_exprs(s: Stmt, change: Callable[[Expr], Expr | None]) -> Stmt:
    """The same of all expressions of a statement tree."""
    return map_stmt(s, lambda x: change_exprs(x, change), lambda e: change_expr(e, change))


def change_stmts(s: Stmt, change: Callable[[Stmt], Stmt | None]) -> Stmt:
    """The same of its statements; expressions stay."""
    found = change(s)
    return map_stmt(s, lambda x: change_stmts(x, change), lambda e: e) if found is None else found


def walk_expr(e: Expr) -> Iterator[Expr]:
    """The expression and everything below it, parents first."""
    stack = [e]
    while stack:
        top = stack.pop()
        yield top
        stack += _OPERANDS[type(top)](top)[::-1]


def walk_stmt(s: Stmt) -> Iterator[Stmt]:
    """The statement and every statement below it, parents first, in text order."""
    stack = [s]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(stmt_children(top)))


def walk_all_exprs(s: Stmt) -> Iterator[Expr]:
    """Every expression in a statement tree."""
    for stmt in walk_stmt(s):
        stack = [*stmt_exprs(stmt)[::-1]]
        while stack:
            top = stack.pop()
            yield top
            stack += _OPERANDS[type(top)](top)[::-1]


def substitute(e: Expr, values: Mapping[str, Expr]) -> Expr:
    """Replace free variables by name; an inner ``Let`` of the same name hides the outer one."""
    if free_vars(e).isdisjoint(values):
        return e
    match e:
        case Var(name, _):
            return values.get(name, e)
        case Let(name, value, body):
            inner = {k: v for k, v in values.items() if k != name}
            return Let(name, substitute(value, values), substitute(body, inner))
        case _:
            return map_expr(e, lambda c: substitute(c, values))


def substitute_stmt(s: Stmt, values: Mapping[str, Expr]) -> Stmt:
    """Replace free variables in a statement tree; loops and lets hide outer names."""
    if not values:
        return s
    match s:
        case For() | LetStmt() if s.name in values:
            inner = {k: v for k, v in values.items() if k != s.name}
            return map_stmt(s, lambda b: substitute_stmt(b, inner), lambda e: substitute(e, values))
        case _:
            return map_stmt(
                s, lambda b: substitute_stmt(b, values), lambda e: substitute(e, values)
            )


def union_of_names(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    """The union; one of the sets itself where that is all."""
    found = frozenset[str]()
    for names in sets:
        if not found:
            found = names
        elif names and not names <= found:
            found |= names
    return found


def free_vars(e: Expr) -> frozenset[str]:
    """Names of the variables that an expression uses and does not bind."""
    found: frozenset[str] | None = getattr(e, "known_free", None)
    if found is None:
        found = _free_vars(e)
        keep(e, "known_free", found)
    return found


def _free_vars(e: Expr) -> frozenset[str]:
    match e:
        case Var(name, _):
            return frozenset((name,))
        case Let(name, value, body):
            return free_vars(value) | (free_vars(body) - {name})
        case _:
            return union_of_names(map(free_vars, expr_children(e)))


def conjuncts(e: Expr) -> Iterator[Expr]:
    """The conditions of which ``e`` is the conjunction, lane by lane."""
    match e:
        case Binary(BinaryOp.AND, a, b):
            yield from conjuncts(a)
            yield from conjuncts(b)
        case Broadcast(value):
            yield from conjuncts(value)
        case _:
            yield e
