"""Generic traversals: children, rebuild, walk, substitute.

A pass matches on the nodes it cares about and hands every other node to ``map_expr`` or
``map_stmt``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter, is_
from typing import Any

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
OPERANDS: dict[type, Callable[[Any], tuple[Expr, ...]]] = {
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


_NO_NAMES = frozenset[str]()


def expr_children(e: Expr) -> tuple[Expr, ...]:
    """The direct operands of an expression, in text order."""
    return OPERANDS[type(e)](e)


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
    old = OPERANDS[kind](e)
    if not old:
        return e
    new = tuple(map(f, old))
    return e if all(map(is_, old, new)) else _REBUILT[kind](e, new)


def replaced(e: Expr, old: Expr, new: Expr) -> Expr:
    """With one of its nodes as another; what equals ``old`` but is not it stays."""
    return new if e is old else map_expr(e, lambda c: replaced(c, old, new))


def replaced_all(e: Expr, values: Mapping[Any, Expr]) -> Expr:
    """With others for all nodes that equal one of some."""
    return values[e] if e in values else map_expr(e, lambda c: replaced_all(c, values))


def _store_operands(s: Store) -> tuple[Expr, ...]:
    return (s.index, s.value) if s.predicate is None else (s.index, s.value, s.predicate)


def _branches(s: IfThenElse) -> tuple[Stmt, ...]:
    return (s.then,) if s.otherwise is None else (s.then, s.otherwise)


def _body(s: For | Allocate | LetStmt | Atomic) -> tuple[Stmt, ...]:
    return (s.body,)


def _nothing(_: Stmt) -> tuple[()]:
    return ()


_EXPRS: dict[type, Callable[[Any], tuple[Expr, ...]]] = {
    Store: _store_operands,
    **dict.fromkeys((Evaluate, LetStmt), _value),
    For: attrgetter("min", "extent"),
    Allocate: attrgetter("extents"),
    IfThenElse: lambda s: (s.condition,),
    **dict.fromkeys((Block, Atomic), _nothing),
}
_STMTS: dict[type, Callable[[Any], tuple[Stmt, ...]]] = {
    **dict.fromkeys((Store, Evaluate), _nothing),
    **dict.fromkeys((For, Allocate, LetStmt, Atomic), _body),
    IfThenElse: _branches,
    Block: attrgetter("stmts"),
}
_MADE: dict[type, Callable[[Any, tuple[Expr, ...], tuple[Stmt, ...]], Stmt]] = {
    Store: lambda s, x, _: Store(s.buffer, x[0], x[1], x[2] if len(x) > 2 else None),
    Evaluate: lambda _, x, __: Evaluate(x[0]),
    For: lambda s, x, b: For(s.name, x[0], x[1], s.kind, b[0]),
    Allocate: lambda s, x, b: Allocate(s.name, s.type, x, s.memory, b[0], s.stages),
    IfThenElse: lambda _, x, b: IfThenElse(x[0], b[0], b[1] if len(b) > 1 else None),
    LetStmt: lambda s, x, b: LetStmt(s.name, x[0], b[0]),
    Block: lambda _, __, b: Block(b),
    Atomic: lambda s, _, b: Atomic(s.producer, b[0]),
}


def stmt_exprs(s: Stmt) -> tuple[Expr, ...]:
    """The expressions that a statement holds directly."""
    return _EXPRS[type(s)](s)


def stmt_children(s: Stmt) -> tuple[Stmt, ...]:
    """The statements directly inside a statement."""
    return _STMTS[type(s)](s)


def map_stmt(s: Stmt, on_stmt: Callable[[Stmt], Stmt], on_expr: Callable[[Expr], Expr]) -> Stmt:
    """Rebuild a statement from its mapped direct parts; the same object if nothing changed."""
    kind = type(s)
    old_exprs, old_stmts = _EXPRS[kind](s), _STMTS[kind](s)
    exprs, stmts = tuple(map(on_expr, old_exprs)), tuple(map(on_stmt, old_stmts))
    if all(map(is_, old_exprs, exprs)) and all(map(is_, old_stmts, stmts)):
        return s
    return _MADE[kind](s, exprs, stmts)


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
        stack += OPERANDS[type(top)](top)[::-1]


def walk_stmt(s: Stmt) -> Iterator[Stmt]:
    """The statement and every statement below it, parents first, in text order."""
    stack = [s]
    while stack:
        top = stack.pop()
        yield top
        stack += _STMTS[type(top)](top)[::-1]


def walk_all_exprs(s: Stmt) -> Iterator[Expr]:
    """Every expression in a statement tree."""
    for stmt in walk_stmt(s):
        stack = [*_EXPRS[type(stmt)](stmt)[::-1]]
        while stack:
            top = stack.pop()
            yield top
            stack += OPERANDS[type(top)](top)[::-1]


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
    found = _NO_NAMES
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
        if isinstance(e, Var):
            found = frozenset((e.name,))
        elif isinstance(e, Let):
            found = free_vars(e.value) | (free_vars(e.body) - {e.name})
        else:
            operands = OPERANDS[type(e)](e)
            found = union_of_names([free_vars(x) for x in operands]) if operands else _NO_NAMES
        e.known_free = found
    return found


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
