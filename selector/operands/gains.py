"""Factors and conditions that every output has of its own: ``sum(g[m]*a[m, k]*b[k, n])`` is
``g[m]*sum(a*b)``, and ``sum(select(m < n, a*b, 0))`` is ``select(m < n, sum(a*b), 0)``.

Like the factors of whole sums (``selector.operands.scaling``) they apply where the accumulator
is read: floats are rounded there and not in every term, integers wrap around and stay exact. The
lanes that are read have to be those of an update.
"""

from __future__ import annotations

from dataclasses import replace

from selector.dataclass import dataclass
from selector.ir.affine import Affine
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Broadcast,
    Expr,
    IntImm,
    Load,
    LocToLoc,
    Select,
    Stmt,
    Store,
    VectorReduce,
)
from selector.ir.simplify import literal
from selector.ir.traverse import (
    change_exprs,
    change_stmts,
    map_stmt,
    replaced,
    walk_expr,
    walk_stmt,
)
from selector.operands.accumulators import accumulators_of
from selector.operands.computed_values import wide
from selector.operands.places import Grid, grids
from selector.operands.scaling import factors_of, is_invariant, is_zero, reads_loose, update_of


@dataclass(frozen=True, slots=True)
class Gain:
    """What the terms of each output have in common: factors, and conditions."""

    factors: tuple[Expr, ...]
    conditions: tuple[Expr, ...]

    def of(self, e: Expr) -> Expr:
        for f in self.factors:
            e = Binary(BinaryOp.MUL, e, f)
        for c in self.conditions:
            e = Select(c, e, literal(0, e.type))
        return e


Gains = dict[Expr, Gain]
"""By the index of the accumulator's lanes."""


def factor_gains(allocation: Allocate) -> Allocate | None:
    """A prepared allocation with these at its reads; None if it has none."""
    found = {b: _gains(allocation, b) for b in accumulators_of(allocation)}
    gains = {buffer: known for buffer, known in found.items() if known}
    if not gains:
        return None

    def expr(e: Expr) -> Expr | None:
        match e:
            case LocToLoc(_, _, Load(_, buffer, index, _)) if buffer in gains:
                return gains[buffer][index].of(e)
            case _:
                return None

    def stmt(s: Stmt) -> Stmt | None:
        if not isinstance(s, Store):
            return None
        if s.buffer not in gains:
            return change_exprs(s, expr)
        total = update_of(s)
        if total is None:
            return s
        parts = _parts(total)
        assert parts is not None
        bare = replace(total, value=parts[1])
        return map_stmt(s, lambda x: x, lambda e: replaced(e, total, bare))

    return replace(allocation, body=change_stmts(allocation.body, stmt))


def _gains(allocation: Allocate, buffer: str) -> Gains:
    """Those of an accumulator's sums; empty where they cannot be taken out of all of them."""
    gains: Gains = {}
    for s in walk_stmt(allocation.body):
        if not isinstance(s, Store):
            if reads_loose(s, buffer):
                return {}
        elif s.buffer == buffer:
            total = update_of(s)
            if total is None and is_zero(s.value):
                continue
            parts = None if total is None or total.type.bits < 32 else _parts(total)
            if parts is None or gains.setdefault(s.index, parts[0]) != parts[0]:
                return {}
    reads = [
        e.index
        for s in walk_stmt(allocation.body)
        if isinstance(s, Store) and s.buffer != buffer
        for e in walk_expr(s.value)
        if isinstance(e, Load) and e.buffer == buffer
    ]
    exact = all(index in gains for index in reads)
    values = (e for g in gains.values() for e in (*g.factors, *g.conditions))
    return gains if exact and is_invariant(tuple(values), allocation) else {}


def _parts(total: VectorReduce) -> tuple[Gain, Expr] | None:
    """What the terms of each output have in common, and the rest of them."""
    grid = list(grids(total.value, total.value.type.lanes // total.lanes))[-1]
    product, conditions = total.value, list[Expr]()
    match product:
        case Select(condition, then, otherwise) if is_zero(otherwise):
            product, conditions = then, _conjuncts(condition)
        case _:
            pass
    own, rest = _apart(factors_of(product), grid)
    known, others = _apart(conditions, grid)
    if not (own or known) or not rest:
        return None
    value = rest[0]
    for f in rest[1:]:
        value = Binary(BinaryOp.MUL, value, f)
    for c in others:
        value = Select(c, value, literal(0, value.type))
    return Gain(own, known), value


def _apart(values: list[Expr], grid: Grid) -> tuple[tuple[Expr, ...], list[Expr]]:
    """Those that follow the outputs alone, over these, and the others."""
    own: list[Expr] = []
    rest: list[Expr] = []
    for e in values:
        scalar = grid.scalar(e) if e.type.lanes > 1 else e
        used = grid.used(scalar)
        if used and used.isdisjoint(d.name for d in grid.depth):
            own.append(_of_outputs(scalar, grid))
        else:
            rest.append(e)
    return tuple(own), rest


def _conjuncts(e: Expr) -> list[Expr]:
    """The conditions of which a condition is the conjunction, of as many lanes."""
    match e:
        case Binary(BinaryOp.AND, a, b):
            return [*_conjuncts(a), *_conjuncts(b)]
        case Broadcast(Binary(BinaryOp.AND, a, b), count):
            return [*_conjuncts(Broadcast(a, count)), *_conjuncts(Broadcast(b, count))]
        case _:
            return [e]


def _of_outputs(scalar: Expr, grid: Grid) -> Expr:
    """A value over the digits of the outputs, in each of these."""
    outputs = Grid(grid.outputs)
    steps = {d.name: outputs.index(IntImm(0), {d.name: Affine.of(1)}) for d in grid.outputs}
    return wide(scalar, steps, outputs.lanes)
