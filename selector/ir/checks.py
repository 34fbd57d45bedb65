"""The typing rule of each expression node, as a message: for the verifier and for data from
outside.

The nodes raise ``IllTyped`` for the same where they are made.
"""

from __future__ import annotations

from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Cast,
    Compare,
    Expr,
    FloatImm,
    IntImm,
    Load,
    Not,
    Ramp,
    Select,
    Shuffle,
    VectorReduce,
)
from selector.ir.simplify import wrap
from selector.ir.types import BOOL, INT32


def type_error(e: Expr) -> str | None:
    """Why the direct operands of ``e`` do not fit together; None if they do."""
    match e:
        case IntImm(value, t):
            fits = t.is_integer and t.lanes == 1 and wrap(value, t) == value
            return None if fits else f"{value} is no literal of {t}"
        case FloatImm(value, t):
            return None if t.is_float and t.lanes == 1 else f"{value} is no literal of {t}"
        case Cast(t, v):
            return None if t.lanes == v.type.lanes else f"a cast of {v.type} to {t}"
        case Binary(op, a, b):
            logic = op in (BinaryOp.AND, BinaryOp.OR)
            fits = a.type == b.type and (a.type.is_bool or not logic)
            return None if fits else f"operands of {a.type} and {b.type}"
        case Compare(_, a, b):
            return None if a.type == b.type else f"operands of {a.type} and {b.type}"
        case Not(v):
            return None if v.type.is_bool else f"an operand of {v.type}"
        case Select(c, t, f):
            fits = t.type == f.type and c.type.is_bool and c.type.lanes in (1, t.type.lanes)
            return None if fits else f"a choice by {c.type} between {t.type} and {f.type}"
        case _:
            return _vector_error(e)


def _vector_error(e: Expr) -> str | None:
    match e:
        case Load(t, _, index, p):
            if index.type != INT32.with_lanes(t.lanes):
                return f"an index of type {index.type} for {t.lanes} lanes"
            fits = p is None or p.type == BOOL.with_lanes(t.lanes)
            return None if fits else "a predicate that is not one uint1 per lane"
        case Ramp(a, b, n):
            fits = a.type == b.type and n >= 1
            return None if fits else f"a ramp of {n} from {a.type} in steps of {b.type}"
        case Broadcast(_, n):
            return None if n >= 1 else f"a broadcast of {n}"
        case VectorReduce(_, v, lanes):
            fits = lanes >= 1 and v.type.lanes % lanes == 0
            return None if fits else f"{v.type} reduced to {lanes} lanes"
        case Shuffle(vectors, indices):
            total = sum(v.type.lanes for v in vectors)
            fits = len({v.type.element for v in vectors}) == 1 and len(indices) > 0
            fits = fits and all(0 <= i < total for i in indices)
            return None if fits else f"a shuffle of {total} lanes that does not fit them"
        case _:
            return None
