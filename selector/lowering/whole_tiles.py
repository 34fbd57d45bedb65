"""Masks of tiles: without them where a tile is whole.

A loop whose last tile is ragged masks every tile, element by element: ``select(i < n, x, low)``.
Instead one test says whether all conditions hold everywhere. Where they do not, the tile itself is
masked (``masks``); or, if that is not the same, the statements between the products of an
iteration are there twice, with the masks and without.

A constant factor of what a maximum is taken of is taken out of it: rounding is monotonous.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from selector.dataclass import dataclass
from selector.ir.access import repeated
from selector.ir.affine import Affine
from selector.ir.contents import holds, nodes_of
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Block,
    Broadcast,
    Call,
    Compare,
    CompareOp,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    Not,
    ReduceOp,
    Select,
    Stmt,
    Store,
    VectorReduce,
)
from selector.ir.simplify import float_constant, in_every_lane
from selector.ir.traverse import conjuncts, map_expr, map_stmt
from selector.lowering.masks import Floors, floors_of, is_mask, masks_in_place, unmasked
from selector.lowering.normalize import PRODUCTS
from selector.lowering.predicates import conjunction, lane_slacks
from selector.lowering.structure import loaded_names, stored_names


def split_masks(s: Stmt) -> Stmt:
    """The statements in serial loops with one test for runs of masked ones."""
    return _Splitting(floors_of(s)).statement(s)


@dataclass(frozen=True, slots=True)
class _Splitting:
    """The statements of a serial loop, if ``looped``; ``own``: what is allocated for a block."""

    floors: Floors
    looped: bool = False
    own: frozenset[str] = frozenset()

    def statement(self, s: Stmt) -> Stmt:
        if isinstance(s, Store):
            return s
        own = self.own | {s.name} if isinstance(s, Allocate) else frozenset[str]()
        looped = self.looped or (isinstance(s, For) and s.kind is ForKind.SERIAL)
        inner = replace(self, looped=looped, own=own)
        s = map_stmt(s, inner.statement, lambda e: e)
        return self._block(s.stmts) if looped and isinstance(s, Block) else s

    def _block(self, stmts: tuple[Stmt, ...]) -> Block:
        result: list[Stmt] = []
        run: list[Store] = []
        for i, x in enumerate(stmts):
            if isinstance(x, Store) and not _multiplies(x):
                run.append(x)
                continue
            result += self._split(run, stmts[i:])
            run = []
            result.append(x)
        return Block((*result, *self._split(run, ())))

    def _split(self, run: list[Store], later: tuple[Stmt, ...]) -> list[Stmt]:
        """A run of statements with a test for the masks, from the first that is masked on."""
        if not any(holds(s.value, VectorReduce) for s in run):
            return list(run)
        first = next((i for i, s in enumerate(run) if any(_masks(s.value))), len(run))
        masked, whole = run[first:], _whole(run[first:])
        if whole is None:
            return list(run)
        dead = self.own - {n for s in later for n in stored_names(s) | loaded_names(s)}
        moved = masks_in_place(masked, dead, self.floors)
        if moved is not None:
            masks, plain = moved
            return [*run[:first], IfThenElse(Not(whole), Block(tuple(masks)), None), *plain]
        plain = [replace(s, value=unmasked(s.value)) for s in masked]
        return [*run[:first], IfThenElse(whole, Block(tuple(plain)), Block(tuple(masked)))]


def _multiplies(s: Store) -> bool:
    """Whether a statement fills an accumulator or adds to it."""
    return isinstance(s.value, Call) and s.value.name.startswith(PRODUCTS)


def _whole(masked: list[Store]) -> Expr | None:
    """The condition under which all masks hold everywhere; None if none is known."""
    parts = [part for s in masked for c in _masks(s.value) for part in conjuncts(c)]
    slacks = [lane_slacks(part) for part in parts]
    if not slacks or None in slacks:
        return None
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
    return whole


def _masks(e: Expr) -> Iterator[Expr]:
    """Conditions of selects that differ between lanes."""
    return (x.condition for x in nodes_of(e, Select) if is_mask(x))


def pull_factors(s: Stmt) -> Stmt:
    """max(c * x) as c * max(x), for constants c above 0."""
    return map_stmt(s, pull_factors, _pulled)


def _pulled(e: Expr) -> Expr:
    if not holds(e, VectorReduce):
        return e
    e = map_expr(e, _pulled)
    match e:
        case VectorReduce(ReduceOp.MAX | ReduceOp.MIN as op, Binary(BinaryOp.MUL, a, b), lanes):
            for factor, rest in ((a, b), (b, a)):
                if isinstance(factor, Broadcast) and (float_constant(factor) or 0) > 0:
                    scale = repeated(in_every_lane(factor), lanes)
                    return Binary(BinaryOp.MUL, scale, VectorReduce(op, rest, lanes))
            return e
        case _:
            return e
