"""Where an element of an accumulator lies, as a float: the distance of row and column, say.

Conversions take the slow pipe that exponentials take, and a lane has many elements. So a lane
converts the place of its first element once, and adds what lies between: exact as far as floats
hold every integer (2^24), and beyond that rounded twice where Halide's cast rounds once.
"""

from __future__ import annotations

import re

from selector.emit.context import KernelContext, Region
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Cast, Var
from selector.ir.types import FLOAT32

_MARK = re.compile(r"@add:(-?\d+):(-?\d+)@")


def mark_number(e: Cast, region: Region, context: KernelContext) -> Var | None:
    """A mark for the float of an integer of row ``$m`` and column ``$n``, and the line that
    converts that of the lane's first element; None where they do not count with constant steps.
    """
    if e.type != FLOAT32 or not e.value.type.is_integer or e.value.type.bits != 32:
        return None
    index, m, n = to_affine(e.value), Var("$m"), Var("$n")
    steps = index.coefficient(m).constant, index.coefficient(n).constant
    rest = index.rest(m).rest(n)
    if None in steps or steps == (0, 0) or rest.mentions("$m") or rest.mentions("$n"):
        return None
    down, across = reversed(steps) if region.swapped else steps
    assert down is not None
    assert across is not None
    context.names.bind("$row", "g")
    context.names.bind("$pair", "(q * 2)")
    first = rest + Affine.of(Var("$row")) * down + Affine.of(Var("$pair")) * across
    name = context.names.fresh("place")
    context.writer.line(f"const float {name} = (float){context.scalar.index(first.to_expr())};")
    return Var(context.names.verbatim(f"({name}@add:{down}:{across}@)"), e.type)


def fill_numbers(text: str, down: int, across: int) -> str:
    """The text with what lies between the lane's first element and this one."""
    if "@add:" not in text:
        return text

    def added(mark: re.Match[str]) -> str:
        number = int(mark[1]) * down + int(mark[2]) * across
        return f" + {number}.0f" if number else ""

    return _MARK.sub(added, text)
