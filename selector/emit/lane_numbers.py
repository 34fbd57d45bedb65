"""Where an element of an accumulator lies, as a float: the distance of row and column, say.

Conversions take the slow pipe that exponentials take, and a lane has many elements. So a lane
converts the place of its first element once, and adds what lies between: exact as far as floats
hold every integer (2^24), and beyond that rounded twice where Halide's cast rounds once. Times a
number that is the same for all of them, it is one multiply-add of a constant.
"""

from __future__ import annotations

import re

from selector.emit.context import LANE_NAMES, KernelContext, Region
from selector.emit.places import column_text, row_text
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Binary, BinaryOp, Call, Cast, Expr, Load, Var
from selector.ir.traverse import free_vars, walk_expr
from selector.ir.types import FLOAT32, INT32

_MARK = re.compile(r"@add:(-?\d+):(-?\d+):(\w*)@")


def mark_number(e: Expr, region: Region, context: KernelContext) -> Var | None:
    """A mark for the float of an integer of row ``$m`` and column ``$n``, or for its product with a
    number that is the same for all elements, and the line that computes that of the lane's first
    element; None for anything else, and where places do not count with constant steps.
    """
    match e:
        case Cast():
            return _number(e, None, region, context)
        case Binary(BinaryOp.MUL, a, Cast() as place) | Binary(BinaryOp.MUL, Cast() as place, a):
            uniform = not LANE_NAMES & free_vars(a) and all(
                _is_known(x, context) for x in walk_expr(a)
            )
            return _number(place, a, region, context) if uniform else None
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


def _number(e: Cast, factor: Expr | None, region: Region, context: KernelContext) -> Var | None:
    if e.type != FLOAT32 or e.value.type != INT32:  # unsigned numbers wrap around
        return None
    index, m, n = to_affine(e.value), Var("$m"), Var("$n")
    steps = index.coefficient(m).constant, index.coefficient(n).constant
    rest = index.rest(m).rest(n)
    if None in steps or steps == (0, 0) or rest.mentions("$m") or rest.mentions("$n"):
        return None
    down, across = reversed(steps) if region.swapped else steps
    assert down is not None
    assert across is not None
    names, scalar, w = context.names, context.scalar, context.writer
    names.bind("$row", row_text(0))
    names.bind("$pair", column_text(0))
    first = rest + Affine.of(Var("$row")) * down + Affine.of(Var("$pair")) * across
    place, step = f"(float){scalar.index(first.to_expr())}", ""
    if factor is not None:
        step = names.fresh("step")
        w.line(f"const float {step} = {scalar.expr(factor)};")
        place = f"{step} * {place}"
    name = names.fresh("place")
    w.line(f"const float {name} = {place};")
    return Var(names.verbatim(f"({name}@add:{down}:{across}:{step}@)"), e.type)


def fill_numbers(text: str, down: int, across: int) -> str:
    """The text with what lies between the lane's first element and this one."""
    if "@add:" not in text:
        return text

    def added(mark: re.Match[str]) -> str:
        number = int(mark[1]) * down + int(mark[2]) * across
        times = f"{mark[3]} * " if mark[3] else ""
        return f" + {times}{number}.0f" if number else ""

    return _MARK.sub(added, text)
