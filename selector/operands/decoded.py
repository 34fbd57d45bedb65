"""Factors that are floats of eight bits, which an algorithm decodes from bytes.

Halide has no such type: what a byte means is arithmetic on its bits, which Halide's passes write in
ways of their own. It is told by its values: an expression of one byte is e4m3 or e5m2 if all 256
bytes are decoded so. Then it is, exactly, a cast of an element of that type (``as_decoded``), and
the rules find its products as they do any other. Memory has bytes, and so has what the rules have
found (``as_stored``): the instruction's record says what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from selector.intrinsics import TensorInstruction
from selector.ir import float8
from selector.ir.evaluator import Frame, evaluate
from selector.ir.nodes import (
    Allocate,
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Expr,
    FloatImm,
    IntImm,
    Load,
    Not,
    Select,
    Stmt,
    Store,
    Var,
)
from selector.ir.traverse import change_expr, change_exprs, expr_children, map_expr, map_stmt
from selector.ir.types import UINT8, Type
from selector.operands.accumulators import touches_tensor

_BITWISE = ("reinterpret", "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right")
_EACH = Var("$byte", UINT8.with_lanes(256))
"""All bytes, one a lane."""


def decoded(e: Expr, is_element: Callable[[Expr], bool]) -> tuple[Type, Expr] | None:
    """The type that a float expression of one byte decodes it as, and that byte, which is an
    element; None for any other.
    """
    if not e.type.is_float or isinstance(e, Broadcast):
        return None
    found: set[Expr] = set()
    each = _of_each(e, is_element, found)
    if each is None or len(found) != 1:
        return None
    (byte,) = found
    t = _format(each)
    return None if t is None else (t, byte)


def _of_each(
    e: Expr, is_element: Callable[[Expr], bool], found: set[Expr], copies: int = 1
) -> Expr | None:
    """A function of bytes, lane by lane, as that of all bytes, and which elements these are, in so
    many copies one after the other; None if it is none.
    """
    lanes = _EACH.type.lanes
    if is_element(e):
        if e.type.element != UINT8:
            return None
        found.add(e if copies == 1 else _repeated(e, copies))
        return _EACH
    match e:
        case IntImm() | FloatImm():
            return Broadcast(e, lanes)
        case Broadcast(value, count):
            return _of_each(value, is_element, found, copies * count)
        case Binary() | Compare() | Cast() | Not() | Select():
            pass
        case Call(_, name) if name in _BITWISE:
            pass
        case _:
            return None
    parts = [_of_each(part, is_element, found, copies) for part in expr_children(e)]
    inner = [part for part in parts if part is not None]
    if len(inner) < len(parts):
        return None
    match e:
        case Cast(t):
            return Cast(t.with_lanes(lanes), inner[0])
        case Call(t, name):
            return Call(t.with_lanes(lanes), name, tuple(inner))
        case _:
            again = iter(inner)
            return map_expr(e, lambda _: next(again))


def _repeated(e: Expr, copies: int) -> Expr:
    """So many copies of a load one after the other, as a load."""
    match e:
        case Load(t, buffer, index, predicate):
            mask = None if predicate is None else Broadcast(predicate, copies)
            wide = t.with_lanes(t.lanes * copies)
            return Load(wide, buffer, Broadcast(index, copies), mask)
        case _:
            return Broadcast(e, copies)


@lru_cache(maxsize=256)
def _format(e: Expr) -> Type | None:
    """The type as which all bytes are decoded; a zero may have lost its sign."""
    every = np.arange(256, dtype=np.uint8)[None, :]
    with np.errstate(all="ignore"):
        found = evaluate(e, Frame(1, {_EACH.name: every}))[0].astype(np.float64)
    same = (t for t in float8.FORMATS if np.array_equal(found, float8.values(t), equal_nan=True))
    return next(same, None)


def as_decoded(allocation: Allocate, legal: Iterable[TensorInstruction]) -> Allocate | None:
    """A prepared allocation in whose tensor statements decoded bytes are casts of loads of floats,
    of the types that these instructions multiply; None if that changes nothing.
    """
    types = {t for i in legal for t in (i.a_type, i.b_type)} & {*float8.FORMATS}

    def expr(e: Expr) -> Expr | None:
        match decoded(e, lambda x: isinstance(x, Load)):
            case (t, Load() as byte) if t in types:
                return Cast(e.type, replace(byte, type=t.with_lanes(byte.type.lanes)))
            case _:
                return None

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, Store) and touches_tensor(s):
            return change_exprs(s, expr)
        return map_stmt(s, stmt, lambda e: e)

    body = stmt(allocation.body) if types else allocation.body
    return None if body == allocation.body else replace(allocation, body=body)


def as_stored(s: Store) -> Store:
    """A selected statement with such elements, and what is made of them, as the bytes that they
    are.
    """

    def expr(e: Expr) -> Expr | None:
        match e:
            case Load(t, buffer, index, predicate) if t != t.stored:
                return Load(t.stored, buffer, index, predicate)
            case Call(t, name, args) if t != t.stored:
                return Call(t.stored, name, tuple(change_expr(a, expr) for a in args))
            case _:
                return None

    found = change_exprs(s, expr)
    assert isinstance(found, Store)
    return found
