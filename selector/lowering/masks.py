"""Masks of ragged tiles, where the tiles lie instead of where they are read.

    m = max(m, max over n of select(c, s*x, low))        x = select(c, x, -inf)
    t = t + sum over n of 2^select(c, s*x - m, low)  =>  m = max(m, max over n of s*x)
                                                         t = t + sum over n of 2^(s*x - m)

What a statement takes of ``low`` is nothing, the power of a large negative number or what a maximum
is above already, and so is what it takes of -inf. The tile is to be dead after these statements,
and all of them are to read it behind one mask, or behind masks inside of each other that say the
same together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from math import inf, isfinite

import numpy as np

from selector.intrinsics.functions import POWER_OF_TWO, find_function
from selector.ir.contents import holds
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Call,
    Expr,
    FloatImm,
    Load,
    ReduceOp,
    Select,
    Stmt,
    Store,
    VectorReduce,
)
from selector.ir.simplify import float_constant
from selector.ir.traverse import expr_children, map_expr, walk_expr, walk_stmt
from selector.lowering.online_forms import grows
from selector.lowering.predicates import every

Floors = Mapping[str, float]
"""Buffers, none of whose elements is ever below a finite number, and these numbers."""

EXPONENTIALS = {"exp_f32": find_function("exp_f32"), "pow_f32": POWER_OF_TWO}


def floors_of(s: Stmt) -> Floors:
    """The buffers that start at finite constants and only grow from there."""
    found: dict[str, float] = {}
    for x in walk_stmt(s):
        if not isinstance(x, Store) or grows(x, x.buffer):
            continue
        start = float_constant(x.value)
        low = start if start is not None and isfinite(start) else -inf
        found[x.buffer] = min(found.get(x.buffer, inf), low)
    return {name: low for name, low in found.items() if isfinite(low)}


def masks_in_place(
    stmts: list[Store], dead: Set[str], floors: Floors
) -> tuple[list[Store], list[Store]] | None:
    """The statements that mask the tiles, and ``stmts`` without their masks; None where that is not
    the same. ``dead``: accumulators that nobody reads after them before they are filled anew.
    """
    masks: dict[Load, tuple[Expr, ...]] = {}
    for s in stmts:
        for (value, conditions), taken in _masked(s, s.value, s, floors):
            tiles = set(_tiles(value))
            if not taken or len(tiles) != 1 or not _falls(value, floors):
                return None
            (tile,) = tiles
            same = {*masks.setdefault(tile, conditions)} == {*conditions}
            lanes = all(c.type.lanes == tile.type.lanes for c in conditions)
            loads = any(holds(c, Load) for c in conditions)
            if not same or not lanes or tile.buffer not in dead or loads:
                return None
    buffers = {tile.buffer for tile in masks}
    if any(s.buffer in buffers or buffers & _bare(s.value) for s in stmts):
        return None
    return [_mask(tile, every(conditions)) for tile, conditions in masks.items()], [
        replace(s, value=unmasked(s.value)) for s in stmts
    ]


def unmasked(e: Expr) -> Expr:
    """The value where every mask holds."""
    return unmasked(e.then) if is_mask(e) and isinstance(e, Select) else map_expr(e, unmasked)


def is_mask(e: Expr) -> bool:
    """Whether the value is a select whose condition differs between lanes."""
    return isinstance(e, Select) and e.condition.type.lanes > 1


def _mask(tile: Load, condition: Expr) -> Store:
    lowest = Broadcast(FloatImm(-inf, tile.type.element), tile.type.lanes)
    value = Select(condition, Call(tile.type, "tile.read", (tile,)), lowest)
    return Store(tile.buffer, tile.index, Call(tile.type, "tile.fill", (value,)))


def _masked(
    s: Store, e: Expr, parent: Expr | Store, floors: Floors
) -> Iterator[tuple[tuple[Expr, tuple[Expr, ...]], bool]]:
    """What stands behind the masks of a value, with their conditions, and whether what is taken of
    their other numbers is nothing.
    """
    if is_mask(e):
        conditions, nothing = list[Expr](), True
        while isinstance(e, Select) and is_mask(e):
            low = float_constant(e.otherwise)
            nothing = nothing and low is not None and _adds_nothing(s, parent, low, floors)
            conditions += _parts(e.condition)
            e = e.then
        yield (e, tuple(conditions)), nothing
        return
    for x in expr_children(e):
        yield from _masked(s, x, e, floors)


def _parts(condition: Expr) -> Iterator[Expr]:
    """The conditions of which one is the conjunction, each of as many lanes."""
    match condition:
        case Binary(BinaryOp.AND, a, b):
            yield from _parts(a)
            yield from _parts(b)
        case _:
            yield condition


def _adds_nothing(s: Store, parent: Expr | Store, low: float, floors: Floors) -> bool:
    match parent:
        case VectorReduce(ReduceOp.MAX):
            reduced = isinstance(s.value, Binary) and parent in (s.value.a, s.value.b)
            return reduced and grows(s, s.buffer) and floors.get(s.buffer, -inf) >= low
        case Call(_, name, (*bases, _)) if name in EXPONENTIALS:
            function = EXPONENTIALS[name]
            fits = name != "pow_f32" or (len(bases) == 1 and float_constant(bases[0]) == 2.0)
            value = np.array([low], np.float32)
            return function is not None and fits and not function.evaluate(value).any()
        case _:
            return False


def _falls(e: Expr, floors: Floors) -> bool:
    """Whether the value is -inf where the tile's element is."""
    match e:
        case Call(_, "tile.read", (Load(),)):
            return True
        case Binary(BinaryOp.MUL, a, b):
            return any(
                (float_constant(x) or 0) > 0 and _falls(y, floors) for x, y in ((a, b), (b, a))
            )
        case Binary(BinaryOp.SUB, a, m) if _stays(m, floors):
            return _falls(a, floors)
        case _:
            return False


def _stays(m: Expr, floors: Floors) -> bool:
    """Whether a value is one of a buffer's that are never below a number, or that times another."""
    match m:
        case Load(_, buffer, _, None):
            return buffer in floors
        case Binary(BinaryOp.MAX, a, b):
            return any(
                isfinite(float_constant(x) or -inf) and _stays(y, floors)
                for x, y in ((a, b), (b, a))
            )
        case Binary(BinaryOp.MUL, a, b):
            return any(
                (float_constant(x) or 0) > 0 and _stays(y, floors) for x, y in ((a, b), (b, a))
            )
        case _:
            return False


def _tiles(e: Expr) -> Iterator[Load]:
    for x in walk_expr(e):
        if isinstance(x, Call) and x.name == "tile.read" and isinstance(x.args[0], Load):
            yield x.args[0]


def _bare(e: Expr) -> set[str]:
    """Buffers that are read behind no mask."""
    if is_mask(e):
        return set()
    own = {e.buffer} if isinstance(e, Load) else set[str]()
    return own.union(*map(_bare, expr_children(e)))
