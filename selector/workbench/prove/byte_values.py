"""Floats of eight bits as programs decode them: told by the values of all 256 bytes, and not by
``operands.decoded``, which is what is in question.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from selector.ir import float8
from selector.ir.evaluator import Frame, evaluate
from selector.ir.nodes import (
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
    Var,
)
from selector.ir.traverse import expr_children, rebuilt, walk_expr
from selector.ir.types import UINT8, Type
from selector.workbench.prove.lane_worth import Digits, cut

_EACH = Var("$byte", UINT8.with_lanes(256))
"""All bytes, one a lane."""


def decoded(e: Expr, at: Digits) -> tuple[Type, Expr, Digits] | None:
    """The type as which a float decodes one byte, the byte, and its lane; None for any other."""
    if not e.type.is_float:
        return None
    found: dict[tuple[Expr, Digits], None] = {}
    each = _of_each(e, at, found)
    if each is None or len(found) != 1 or not any(
        isinstance(x, Call) and x.name == "reinterpret" for x in walk_expr(e)
    ):  # fmt: skip
        return None
    ((byte, where),) = found
    t = _format(each)
    return None if t is None else (t, byte, where)


def _of_each(e: Expr, at: Digits, found: dict[tuple[Expr, Digits], None]) -> Expr | None:
    """A function of bytes as that of all, one a lane; and the bytes that it is of."""
    lanes = _EACH.type.lanes
    match e:
        case Load(t) if t.element == UINT8:
            found[e, at] = None
            return _EACH
        case IntImm() | FloatImm():
            return Broadcast(e, lanes)
        case Broadcast(value, _):
            return _of_each(value, cut(at, value.type.lanes)[0], found)
        case Binary() | Compare() | Cast() | Not() | Select() | Call():
            pass
        case _:
            return None
    inner: list[Expr] = []
    for part in expr_children(e):
        each = _of_each(part, at, found)
        if each is None:
            return None
        inner.append(each)
    match e:
        case Cast(t):
            return Cast(t.with_lanes(lanes), inner[0])
        case Call(t, name):
            return Call(t.with_lanes(lanes), name, tuple(inner))
        case _:
            return rebuilt(e)(tuple(inner))


@cache
def _format(e: Expr) -> Type | None:
    """Which type has these values; a zero may have lost its sign."""
    every = np.arange(256, dtype=np.uint8)[None, :]
    with np.errstate(all="ignore"):
        values = evaluate(e, Frame(1, {_EACH.name: every}))[0].astype(np.float64)
    same = (t for t in float8.FORMATS if np.array_equal(values, float8.values(t), equal_nan=True))
    return next(same, None)
