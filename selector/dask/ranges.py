"""Between which numbers an index of the first tile lies: how far a boundary's clamps reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from selector.dataclass import dataclass
from selector.ir.affine import to_affine
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Cast,
    Expr,
    IntImm,
    Let,
    Ramp,
    Select,
    Var,
)
from selector.ir.simplify import in_every_lane


@dataclass(frozen=True, slots=True)
class Range:
    """``[low, high]``; None where nothing is known."""

    low: int | None = None
    high: int | None = None

    def joined(self, other: Range) -> Range:
        return Range(_both(min, self.low, other.low), _both(max, self.high, other.high))

    def __add__(self, other: Range) -> Range:
        return Range(_plus(self.low, other.low), _plus(self.high, other.high))

    def __neg__(self) -> Range:
        return Range(*(None if x is None else -x for x in (self.high, self.low)))

    def times(self, factor: int) -> Range:
        if factor < 0:
            return (-self).times(-factor)
        return Range(*(None if x is None else x * factor for x in (self.low, self.high)))


@dataclass(slots=True)
class Ranges:
    """``known`` by variable; ``taken``: what a minimum or maximum (by its id) is away from the
    edges.
    """

    known: dict[str, Range] = field(default_factory=dict[str, Range])
    taken: dict[int, Expr] = field(default_factory=dict[int, Expr])

    def of(self, e: Expr) -> Range:
        """The range of all lanes of an integer expression."""
        match e:
            case IntImm(value, _):
                return Range(value, value)
            case Var(name, _):
                return self.known.get(name, Range())
            case Broadcast(value, _) | Cast(_, value):
                return self.of(value) if value.type.is_integer else Range()
            case Ramp(base, stride, n):
                steps = self.of(stride)
                last = Range(0, 0).joined(steps.times(n - 1))
                return self.of(base) + last
            case Binary(op, a, b):
                return self._binary(e, op, a, b)
            case Select(_, then, otherwise):
                return self.of(then).joined(self.of(otherwise))
            case Let(name, value, body):
                self.known[name] = self.of(value)
                return self.of(body)
            case _:
                return Range()

    def beyond(self, e: Expr, extent: Expr) -> Range | None:
        """The range of ``e - extent``, where that is a sum with the extent in it."""
        e = in_every_lane(e)
        if e.type.lanes != 1 or not e.type.is_integer:
            return None
        rest = to_affine(e) - extent
        return (
            None
            if isinstance(extent, Var) and rest.mentions(extent.name)
            else self.of(rest.to_expr())
        )

    def _binary(self, e: Binary, op: BinaryOp, a: Expr, b: Expr) -> Range:
        taken = self.taken.get(id(e))
        if taken is not None:
            return self.of(taken)
        x, y = self.of(a), self.of(b)
        match op:
            case BinaryOp.ADD:
                return x + y
            case BinaryOp.SUB:
                return x + -y
            case BinaryOp.MUL:
                for one, other in ((x, y), (y, x)):
                    if other.low is not None and other.low == other.high:
                        return one.times(other.low)
                return Range()
            case BinaryOp.DIV if y.low is not None and y.low == y.high and y.low > 0:
                low, high = (None if v is None else v // y.low for v in (x.low, x.high))
                return Range(low, high)
            case BinaryOp.MOD if y.low is not None and y.low == y.high and y.low > 0:
                return Range(0, y.low - 1)
            case BinaryOp.MIN:
                return Range(_both(min, x.low, y.low), _either(min, x.high, y.high))
            case BinaryOp.MAX:
                return Range(_either(max, x.low, y.low), _both(max, x.high, y.high))
            case _:
                return Range()


def _plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _both(pick: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else pick(a, b)


def _either(pick: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    return pick(a, b) if a is not None and b is not None else b if a is None else a
