"""Masks of tiles: without them where a tile is whole.

A loop whose last tile is ragged masks every tile, element by element: ``select(i < n, x, low)``.
The statements between the products of an iteration are there twice then, with the masks and, where
all conditions hold everywhere, without. That is one test for a tile, not one for each element.

A constant factor of what a maximum is taken of is taken out of it: rounding is monotonous.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from selector.ir.affine import Affine
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Block,
    Broadcast,
    Call,
    Compare,
    CompareOp,
    Expr,
    FloatImm,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    ReduceOp,
    Select,
    Stmt,
    Store,
    VectorReduce,
)
from selector.ir.traverse import map_expr, map_stmt, walk_expr
from selector.lowering.predicates import conjunction, conjuncts, lane_slacks


def split_masks(s: Stmt, *, looped: bool = False) -> Stmt:
    """The statements with runs of masked ones twice, in serial loops."""
    looped = looped or (isinstance(s, For) and s.kind is ForKind.SERIAL)
    s = map_stmt(s, lambda x: split_masks(x, looped=looped), lambda e: e)
    if not looped or not isinstance(s, Block):
        return s
    result: list[Stmt] = []
    run: list[Store] = []
    for x in s.stmts:
        if isinstance(x, Store) and not _multiplies(x):
            run.append(x)
            continue
        result += _split(run)
        run = []
        result.append(x)
    return Block((*result, *_split(run)))


def _multiplies(s: Store) -> bool:
    """Whether a statement fills an accumulator or adds to it."""
    return isinstance(s.value, Call) and s.value.name.startswith(("mma.", "wmma.", "wgmma."))


def _split(run: list[Store]) -> list[Stmt]:
    """A run of statements, from the first that is masked on, without and with masks."""
    if not any(isinstance(e, VectorReduce) for s in run for e in walk_expr(s.value)):
        return list(run)
    first = next((i for i, s in enumerate(run) if any(_masks(s.value))), len(run))
    masked = run[first:]
    parts = [part for s in masked for c in _masks(s.value) for part in conjuncts(c)]
    slacks = [lane_slacks(part) for part in parts]
    if not slacks or None in slacks:
        return list(run)
    least: dict[Affine, int] = {}
    for room, _ in (x for x in slacks if x is not None):
        symbolic = room - room.offset
        least[symbolic] = min(least.get(symbolic, room.offset), room.offset)
    tests: list[Expr] = [
        Compare(CompareOp.LE, IntImm(0), (symbolic + offset).to_expr())
        for symbolic, offset in least.items()
    ]
    whole = tests[0]
    for test in tests[1:]:
        whole = conjunction(whole, test)
    plain = tuple(replace(s, value=_unmasked(s.value)) for s in masked)
    return [*run[:first], IfThenElse(whole, Block(plain), Block(tuple(masked)))]


def _masks(e: Expr) -> Iterator[Expr]:
    """Conditions of selects that differ between lanes."""
    for x in walk_expr(e):
        if isinstance(x, Select) and x.condition.type.lanes > 1:
            yield x.condition


def _unmasked(e: Expr) -> Expr:
    if isinstance(e, Select) and e.condition.type.lanes > 1:
        return _unmasked(e.then)
    return map_expr(e, _unmasked)


def pull_factors(s: Stmt) -> Stmt:
    """max(c * x) as c * max(x), for constants c above 0."""
    return map_stmt(s, pull_factors, _pulled)


def _pulled(e: Expr) -> Expr:
    e = map_expr(e, _pulled)
    match e:
        case VectorReduce(ReduceOp.MAX | ReduceOp.MIN as op, Binary(BinaryOp.MUL, a, b), lanes):
            for factor, rest in ((a, b), (b, a)):
                if isinstance(factor, Broadcast) and _above_zero(factor.value):
                    scale = Broadcast(_scalar(factor), lanes) if lanes > 1 else _scalar(factor)
                    return Binary(BinaryOp.MUL, scale, VectorReduce(op, rest, lanes))
            return e
        case _:
            return e


def _above_zero(e: Expr) -> bool:
    while isinstance(e, Broadcast):
        e = e.value
    return isinstance(e, FloatImm) and e.value > 0


def _scalar(e: Expr) -> Expr:
    while isinstance(e, Broadcast):
        e = e.value
    return e
