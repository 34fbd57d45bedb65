"""Where an element of an accumulator lies, as a float: the distance of row and column, say.

Conversions take the slow pipe that exponentials take, and a lane has many elements. So a lane
converts the place of its first element once, and adds what lies between: exact as far as floats
hold every integer (2^24), and beyond that rounded twice where Halide's cast rounds once. Times a
number that is the same for all of them, it is one multiply-add of a constant.
"""

from __future__ import annotations

from dataclasses import dataclass

from selector.emit.context import KernelContext
from selector.emit.elements import COLUMN, FIRST_PAIR, FIRST_ROW, ROW, ElementScalar
from selector.emit.regions import LANE_NAMES
from selector.gpu.ir.expressions import plus, times
from selector.gpu.ir.nodes import Let
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Binary, BinaryOp, Call, Cast, Expr, FloatImm, Load, Var
from selector.ir.traverse import free_vars, walk_expr
from selector.ir.types import FLOAT32, INT32


@dataclass(frozen=True, slots=True)
class LaneNumber:
    """``name``, a lane's number of its first element, and what lies between that and another:
    ``down`` a row and ``across`` a column, times ``step`` if it is not empty.
    """

    name: str
    down: int
    across: int
    step: str

    def at(self, scalar: ElementScalar) -> Expr:
        first, apart = Var(self.name, FLOAT32), self.down * scalar.down
        apart += self.across * scalar.across
        if not apart:
            return first
        between: Expr = FloatImm(float(apart), FLOAT32)
        return plus(first, times(Var(self.step, FLOAT32), between) if self.step else between)


def lane_number(e: Expr, scalar: ElementScalar) -> Var | None:
    """What stands for the float of an integer of an element's ``ROW`` and ``COLUMN``, or for its
    product with a number that is the same for all elements, and declares that of the lane's first
    element; None for anything else, and where places do not count with constant steps.
    """
    match e:
        case Cast():
            return _number(e, None, scalar)
        case Binary(BinaryOp.MUL, a, Cast() as place) | Binary(BinaryOp.MUL, Cast() as place, a):
            uniform = not LANE_NAMES & free_vars(a) and all(
                _is_known(x, scalar.context) for x in walk_expr(a)
            )
            return _number(place, a, scalar) if uniform else None
        case _:
            return None


def _is_known(e: Expr, context: KernelContext) -> bool:
    match e:
        case Load(_, buffer, _, _):
            return context.is_input(buffer)
        case Call(_, name):
            return not name.startswith("tile.")
        case _:
            return True


def _number(e: Cast, factor: Expr | None, scalar: ElementScalar) -> Var | None:
    if e.type != FLOAT32 or e.value.type != INT32:  # unsigned numbers wrap around
        return None
    index, context = to_affine(e.value), scalar.context
    steps = index.coefficient(ROW).constant, index.coefficient(COLUMN).constant
    rest = index.rest(ROW).rest(COLUMN)
    if None in steps or steps == (0, 0) or rest.mentions(ROW.name) or rest.mentions(COLUMN.name):
        return None
    down, across = reversed(steps) if scalar.region.swapped else steps
    assert down is not None
    assert across is not None
    names, w = context.names, context.writer
    first = rest + Affine.of(FIRST_ROW) * down + Affine.of(FIRST_PAIR) * across
    place, step = Cast(FLOAT32, scalar.number(first.to_expr())), ""
    if factor is not None:
        step = names.fresh("step")
        w.add(Let("float", (step,), (context.scalar.legal(factor),)))
        place = times(Var(step, FLOAT32), place)
    name = names.fresh("place")
    w.add(Let("float", (name,), (place,)))
    return scalar.leaf(LaneNumber(name, down, across, step), e.type)
