"""The one value that all lanes of a vector have, in all threads of a block.

b[(ramp(64*k, 1, 64))/128]              is  b[k/2]
ramp(128*x + 64*thread, 1, 64)/128      is  x            of two threads
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from selector.ir.access import access
from selector.ir.affine import Affine, Monomial, to_affine
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Cast,
    Compare,
    Expr,
    IntImm,
    Load,
    Not,
    Var,
)
from selector.ir.simplify import constant, div
from selector.ir.traverse import free_vars
from selector.ir.types import INT32


def one_value(e: Expr, threads: Mapping[str, int]) -> Expr | None:
    """The scalar, without ``threads``, the variables of loops from 0 to less than these numbers;
    None where there may be several values.
    """
    match e:
        case Broadcast(value):
            return one_value(value, threads)
        case Load(kind, buffer, index, None):
            at = one_value(index, threads)
            return None if at is None else Load(kind.element, buffer, to_affine(at).to_expr())
        case Binary(BinaryOp.DIV, a, b) if a.type.element == INT32 and (constant(b) or 0) > 0:
            return _quotient(a, constant(b) or 1, threads)
        case Binary(op, a, b):
            x, y = one_value(a, threads), one_value(b, threads)
            return None if x is None or y is None else Binary(op, x, y)
        case Compare(op, a, b):
            x, y = one_value(a, threads), one_value(b, threads)
            return None if x is None or y is None else Compare(op, x, y)
        case Not(value):
            x = one_value(value, threads)
            return None if x is None else Not(x)
        case Cast(kind, value):
            x = one_value(value, threads)
            return None if x is None else Cast(kind.element, x)
        case _:
            same = e.type.lanes == 1 and free_vars(e).isdisjoint(threads)
            return e if same else None


def _quotient(a: Expr, divisor: int, threads: Mapping[str, int]) -> Expr | None:
    """``a / divisor``, where lanes and threads stay below what all else is a multiple of."""
    walked = access(a)
    if walked is None or any(s.constant is None for s, _ in walked.levels):
        return None
    reaches = [(s.constant or 0) * (n - 1) for s, n in walked.levels]
    others: dict[Monomial, int] = {}
    for m, c in walked.base:
        if not m:
            continue
        if isinstance(m[0], Var) and m[0].name in threads and len(m) == 1:
            reaches.append(c * (threads[m[0].name] - 1))
        elif any(free_vars(x) & threads.keys() for x in m):
            return None
        else:
            others[m] = c
    step = gcd(divisor, *others.values())
    whole, rest = divmod(walked.base.offset, step)
    if any(r < 0 for r in reaches) or rest + sum(reaches) >= step:
        return None
    base = Affine.build({m: c // step for m, c in others.items()}) + whole
    return to_affine(div(base.to_expr(), IntImm(divisor // step))).to_expr()
