"""The forms of statements that ``online`` knows: maxima, sums, constants, without lets."""

from __future__ import annotations

from math import isfinite

from selector.ir.contents import holds, loaded
from selector.ir.nodes import (
    Atomic,
    Binary,
    BinaryOp,
    Block,
    Broadcast,
    Expr,
    FloatImm,
    Let,
    LetStmt,
    Load,
    ReduceOp,
    Stmt,
    Store,
    VectorReduce,
)
from selector.ir.traverse import map_expr, map_stmt, substitute, substitute_stmt


def grows(s: Store, name: str) -> bool:
    """Whether a statement is ``m[q] = max(m[q], x)``."""
    match s:
        case Store(_, index, Binary(BinaryOp.MAX, a, b), None):
            mine = [isinstance(x, Load) and x.buffer == name and x.index == index for x in (a, b)]
            other = b if mine[0] else a
            return any(mine) and name not in loaded(other)
        case _:
            return False


def terms_of(s: Store) -> Expr | None:
    """What ``s[i] = s[i] + terms`` adds."""
    match s.value:
        case Binary(BinaryOp.ADD, Load(_, name, index, None), terms) | Binary(
            BinaryOp.ADD, terms, Load(_, name, index, None)
        ) if name == s.buffer and index == s.index:
            if isinstance(terms, VectorReduce) and terms.op is not ReduceOp.ADD:
                return None
            return terms
        case _:
            return None


def is_finite(e: Expr) -> bool:
    """Whether a value is a finite constant."""
    match e:
        case FloatImm(value):
            return isfinite(value)
        case Broadcast(value):
            return is_finite(value)
        case _:
            return False


def without_lets(s: Stmt) -> Stmt:
    """Lets of what loads nothing, or of one statement, are substituted, atomics dropped, blocks
    joined.
    """
    match s:
        case LetStmt(name, value, body) if not _loads(value) or _is_one_store(body):
            return without_lets(substitute_stmt(body, {name: value}))
        case Atomic(_, body):
            return without_lets(body)
        case Block((only,)):
            return without_lets(only)
        case _:
            return map_stmt(s, without_lets, _without_let)


def _without_let(e: Expr) -> Expr:
    match e:
        case Let(name, value, body):
            return _without_let(substitute(body, {name: value}))
        case _:
            return map_expr(e, _without_let) if holds(e, Let) else e


def _is_one_store(s: Stmt) -> bool:
    while isinstance(s, LetStmt | Atomic):
        s = s.body
    return isinstance(s, Store)


def _loads(e: Expr) -> bool:
    return holds(e, Load)
