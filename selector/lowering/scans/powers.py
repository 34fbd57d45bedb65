"""Powers of the transition of a linear recurrence."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

from selector.ir.nodes import (
    Allocate,
    Block,
    Cast,
    Compare,
    CompareOp,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    LetStmt,
    Load,
    Memory,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import add, literal, mul
from selector.ir.types import FLOAT64, Type
from selector.lowering.predicates import every
from selector.lowering.scans.find import Spread


def powers(found: Spread, to: str, count: int) -> Stmt:
    """By one thread: so many powers of the transition, the first that of a thread's steps and each
    the square of the one before; of floats in float64. ``to``: where they are stored.
    """
    order = found.order
    wide = FLOAT64 if found.type.is_float else found.type
    matrix, column = f"{found.store.buffer}.power", f"{found.store.buffer}.column"
    filled = [x for m in range(order) for x in _column(found, matrix, column, m, wide)]
    turn = Var(f"{matrix}.turn")
    out: list[Stmt] = []
    for k in range(order**2):
        entry: Expr = Load(wide, matrix, IntImm(k))
        entry = entry if wide == found.type else Cast(found.type, entry)
        out.append(Store(to, add(mul(turn, IntImm(order**2)), IntImm(k)), entry))
    out.append(_squared(matrix, order, wide))
    loop = For(turn.name, IntImm(0), IntImm(count), ForKind.SERIAL, Block(tuple(out)))
    body: Stmt = Block((*filled, loop))
    body = Allocate(column, wide, (IntImm(order),), Memory.REGISTER, body)
    body = Allocate(matrix, wide, (IntImm(order**2),), Memory.REGISTER, body)
    alone = [Compare(CompareOp.EQ, Var(x.name), IntImm(0)) for x in found.threads]
    return IfThenElse(every(alone), body)


def _column(found: Spread, matrix: str, column: str, m: int, wide: Type) -> list[Stmt]:
    """Of the matrix: the state after a thread's steps from one with a one at ``m``."""
    places = range(found.order)
    numbers = [Load(wide, column, IntImm(n)) for n in places]
    weights = [w if found.type == wide else Cast(wide, w) for w in found.weights]
    value = reduce(add, (mul(w, x) for w, x in zip(weights, numbers, strict=True)))
    older = reversed(list(pairwise(places)))
    shifted = [Store(column, IntImm(b), numbers[a]) for a, b in older]
    output = Var(f"{column}.next", wide)
    step = Block((*shifted, Store(column, IntImm(0), output)))
    body = LetStmt(output.name, value, step)
    return [
        *(Store(column, IntImm(n), literal(int(n == m), wide)) for n in places),
        For(f"{column}.turn.{m}", IntImm(0), IntImm(found.steps), ForKind.SERIAL, body),
        *(Store(matrix, IntImm(n * found.order + m), numbers[n]) for n in places),
    ]


def _squared(matrix: str, order: int, wide: Type) -> Stmt:
    places = range(order)

    def entry(n: int, m: int) -> Expr:
        return Load(wide, matrix, IntImm(n * order + m))

    names = [(n, m, f"{matrix}.{n}.{m}") for n in places for m in places]
    stores = [Store(matrix, IntImm(n * order + m), Var(name, wide)) for n, m, name in names]
    squared: Stmt = Block(tuple(stores))
    for n, m, name in reversed(names):
        value = reduce(add, (mul(entry(n, k), entry(k, m)) for k in places))
        squared = LetStmt(name, value, squared)
    return squared
