"""The form of a recurrence: what each output takes from those before it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from selector.dataclass import dataclass
from selector.ir.nodes import Allocate, Binary, BinaryOp, Expr, FloatImm, For, IntImm, Load, Store
from selector.ir.simplify import literal
from selector.ir.traverse import walk_expr, walk_stmt
from selector.ir.types import FLOAT32, FLOAT64, INT32, UINT32

ORDER = 8  # outputs back that a recurrence looks at most
TYPES = (FLOAT32, FLOAT64, INT32, UINT32)  # others are rounded at every step
JOINS = {BinaryOp.MIN: 1, BinaryOp.MAX: -1}  # and the sign of the infinity that changes nothing


@dataclass(frozen=True, slots=True)
class Recurrence:
    """``y[n] = f(n) + weights[0]*y[n - 1] + weights[1]*y[n - 2] ...``, or without weights
    ``y[n] = join(y[n - 1], f(n))``.
    """

    weights: tuple[Expr, ...] = ()
    join: BinaryOp | None = None


def recurrence(value: Expr, lags: Mapping[Expr, int]) -> Recurrence | str:
    """The form of an output's value, or why it has none; ``lags``: how far back each read of an
    output in it looks, 0 for what was there before.
    """
    if value.type not in TYPES:
        return f"outputs of {value.type} are rounded at every step"
    if isinstance(value, Binary) and value.op in JOINS:
        a, b = value.a, value.b
        if any(lags.get(x) == 1 and not _lags(y, lags) for x, y in ((a, b), (b, a))):
            return Recurrence(join=value.op)
    weights = _weights(value, lags)
    if weights is None:
        return "it is no weighted sum, minimum or maximum of outputs before"
    zero = literal(0, value.type)
    return Recurrence(tuple(weights.get(n + 1, zero) for n in range(max(weights, default=0))))


def along_domain(loop: str) -> bool:
    """Whether a loop, ``func.s1.r$x.ro``, goes along a reduction domain; a Func may be ``f$1``."""
    return "$" in loop.partition(".")[2]


@lru_cache(maxsize=256)
def is_recurrence(loop: For) -> bool:
    """Whether iterations of a loop along a reduction domain read what others store."""
    if not along_domain(loop.name):
        return False
    inside = list(walk_stmt(loop.body))
    own = {s.name for s in inside if isinstance(s, Allocate)}
    return any(isinstance(s, Store) and s.buffer not in own and _looks_back(s) for s in inside)


def _looks_back(store: Store) -> bool:
    reads = (e for e in walk_expr(store.value) if isinstance(e, Load) and e.buffer == store.buffer)
    return any(e.index != store.index for e in reads)


def _lags(e: Expr, lags: Mapping[Expr, int]) -> set[int]:
    return {lags[x] for x in walk_expr(e) if lags.get(x)}


def _weights(e: Expr, lags: Mapping[Expr, int]) -> dict[int, Expr] | None:
    """What an expression multiplies outputs before by; None if it is not linear in them."""
    if not _lags(e, lags):
        return {}
    if e in lags:
        return {lags[e]: literal(1, e.type)}
    if not isinstance(e, Binary):
        return None
    a, b = _weights(e.a, lags), _weights(e.b, lags)
    if a is None or b is None:
        return None
    zero = literal(0, e.type)
    match e.op:
        case BinaryOp.ADD | BinaryOp.SUB:
            if e.op is BinaryOp.SUB:
                b = {n: Binary(BinaryOp.SUB, zero, w) for n, w in b.items()}
            both = {n: Binary(BinaryOp.ADD, a[n], b[n]) for n in a.keys() & b.keys()}
            return {**a, **b, **both}
        case BinaryOp.MUL if not (a and b):
            other = e.b if a else e.a
            weights = (a or b).items()
            return {n: other if is_one(w) else Binary(BinaryOp.MUL, w, other) for n, w in weights}
        case BinaryOp.DIV if not b and e.type.is_float:
            return {n: Binary(BinaryOp.DIV, w, e.b) for n, w in a.items()}
        case _:
            return None


def is_one(e: Expr) -> bool:
    return isinstance(e, IntImm | FloatImm) and e.value == 1
