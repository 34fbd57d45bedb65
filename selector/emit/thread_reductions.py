"""Values of a thread with reductions over lanes inside: what is around them, lane by lane."""

from __future__ import annotations

from typing import Protocol

from selector.diagnostics import EmitError
from selector.ir.lanes import Digits, lane
from selector.ir.nodes import Binary, Cast, Expr, ReduceOp, Select, Store, VectorReduce
from selector.ir.traverse import map_expr, walk_expr


class LaneCode(Protocol):
    """``selector.emit.threads.ThreadCode`` says what each of them is."""

    def lane_of(self, e: Expr, digits: Digits) -> Expr: ...

    def reduce(self, op: ReduceOp, value: Expr, factor: int, digits: Digits) -> Expr: ...


def map_lanes(e: Expr, digits: Digits, code: LaneCode) -> Expr:
    """``lane`` for element-wise nodes above a reduction."""
    match e:
        case Binary(op, a, b):
            return Binary(op, code.lane_of(a, digits), code.lane_of(b, digits))
        case Cast(t, v):
            return Cast(t.element, code.lane_of(v, digits))
        case Select(c, a, b):
            test = c if c.type.lanes == 1 else lane(c, digits)
            return Select(test, code.lane_of(a, digits), code.lane_of(b, digits))
        case _:
            raise EmitError(f"a reduction inside a {type(e).__name__} has no form in a thread")


def expanded(s: Store, code: LaneCode) -> Store:
    """A scalar store whose value may hold a reduction to one lane."""
    if not any(isinstance(x, VectorReduce) for x in walk_expr(s.value)):
        return s

    def expand(e: Expr) -> Expr:
        match e:
            case VectorReduce(op, value, 1):
                return code.reduce(op, value, value.type.lanes, ())
            case _:
                return map_expr(e, expand)

    return Store(s.buffer, s.index, expand(s.value), s.predicate)
