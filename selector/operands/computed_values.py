"""What stands for an operand that is computed: a buffer that does not exist, and its values.

``selector.operands.computed`` makes them; the decoder puts the values back where the rules have put
the loads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from selector.dataclass import dataclass
from selector.ir.affine import Affine
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Call,
    Cast,
    Compare,
    Expr,
    Load,
    Not,
    Ramp,
    Select,
    Var,
)
from selector.ir.simplify import literal
from selector.ir.traverse import change_expr, map_expr

ROW, ALONG = Var("$c0"), Var("$c1")
"""The coordinates of an operand that is computed."""


@dataclass(frozen=True, slots=True)
class Computed:
    """A buffer that does not exist: the value of its element (ROW, ALONG) at the index ``rows * ROW
    + ALONG``."""

    value: Expr
    rows: Var

    def at(self, index: Expr, condition: Expr | None) -> Expr:
        """The values at an index vector; zero where a condition does not hold."""
        lanes = index.type.lanes
        row, along = self._coordinates(index)
        value = wide(self.value, {ROW.name: row, ALONG.name: along}, lanes)
        return value if condition is None else masked(condition, value)

    def _coordinates(self, index: Expr) -> tuple[Expr, Expr]:
        match index:
            case Ramp(base, stride, count):
                (b, a), (s, t) = self._coordinates(base), self._coordinates(stride)
                return Ramp(b, s, count), Ramp(a, t, count)
            case Broadcast(value, count):
                row, along = self._coordinates(value)
                return Broadcast(row, count), Broadcast(along, count)
            case Binary(op, a, b) if index.type.lanes > 1:
                (r, x), (s, y) = self._coordinates(a), self._coordinates(b)
                return Binary(op, r, s), Binary(op, x, y)
            case _:
                whole = Affine.of(index)
                return whole.coefficient(self.rows).to_expr(), whole.rest(self.rows).to_expr()


def wide(e: Expr, values: Mapping[str, Expr], lanes: int) -> Expr:
    """A scalar in every lane, where its variables are vectors."""

    def over(x: Expr) -> Expr:
        match x:
            case Var(name) if name in values:
                return values[name]
            case Cast(t, v):
                return Cast(t.with_lanes(lanes), over(v))
            case Load(t, buffer, index, predicate):
                mask = None if predicate is None else over(predicate)
                return Load(t.with_lanes(lanes), buffer, over(index), mask)
            case Call(t, name, args):
                return Call(t.with_lanes(lanes), name, tuple(map(over, args)))
            case Binary() | Compare() | Not() | Select():
                return map_expr(x, over)
            case _:
                return Broadcast(x, lanes)

    return over(e)


def masked(condition: Expr, value: Expr) -> Expr:
    """A value where a condition holds, and zero; nothing is read elsewhere."""

    def guarded(e: Expr) -> Expr | None:
        if not isinstance(e, Load):
            return None
        p = e.predicate
        return replace(e, predicate=condition if p is None else Binary(BinaryOp.AND, p, condition))

    return Select(condition, change_expr(value, guarded), literal(0, value.type))
