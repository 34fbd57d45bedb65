"""How a recurrence and a kernel beside it go through the same array: which element is which, and
what is left to the other kernel of what lies before the recurrence's first step and behind its
last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce

from selector.dataclass import dataclass
from selector.ir.affine import Affine, settled, split_by_strides
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Dim,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    Select,
    Stmt,
    Var,
)
from selector.ir.simplify import add, div, mul, sub
from selector.ir.traverse import free_vars, substitute, substitute_stmt
from selector.lowering.predicates import every
from selector.lowering.scans.find import Spread


def dims_of(extents: Sequence[Expr]) -> tuple[Dim, ...]:
    """The dimensions of what lies row behind row."""
    found, stride = list[Dim](), Affine.of(1)
    for extent in extents:
        found.append(Dim(IntImm(0), extent, stride.to_expr()))
        stride = stride * extent
    return tuple(found)


def coordinates(index: Expr, dims: tuple[Dim, ...]) -> tuple[Expr, ...] | None:
    """The coordinate along each dimension, of which the strides may be sums and products."""
    form, named = Affine.of(index), list(dims)
    for d in range(len(dims) - 1, -1, -1):
        stride = Affine.of(dims[d].stride)
        if stride.constant is None and not isinstance(dims[d].stride, Var):
            own = Var(f"$stride.{d}")
            named[d] = replace(dims[d], stride=own)
            times = form.counted_by(stride)
            form = form - times * stride + times * own
    return split_by_strides(form.to_expr(), tuple(named))


def moved(
    e: Expr, here: Sequence[Expr], there: Sequence[Expr], variables: Iterable[Var]
) -> Expr | None:
    """``e``, computed at the coordinates ``here`` of some variables, at those ``there``."""
    values: dict[str, Expr] = {}
    names = {v.name for v in variables}
    for at, wanted in zip(map(Affine.of, here), there, strict=True):
        lead = [v for v in map(Var, sorted(names)) if at.coefficient(v).constant == 1]
        if lead:
            values[lead[0].name] = (Affine.of(wanted) - at.rest(lead[0])).to_expr()
        elif at.terms or Affine.of(wanted).terms:
            return None
    moved = settled(substitute(e, values))
    return None if free_vars(moved) & names else moved


@dataclass(frozen=True, slots=True)
class Blocks:
    """The loop over the first kernel's blocks along the recurrence, in dimension ``along``, which
    have ``size`` elements each; where the first step of the recurrence is.
    """

    loop: For
    along: int
    size: int
    first: int

    def left(self, ends: Sequence[Affine], extent: Expr) -> tuple[Expr, Expr]:
        """How many blocks have something to do, and which one each of them is."""
        loop, size = self.loop, IntImm(self.size)
        few = Binary(BinaryOp.MIN, loop.extent, IntImm(-(-self.first // self.size)))
        reached = [(end + self.first).to_expr() for end in ends]
        end = reduce(lambda a, b: Binary(BinaryOp.MIN, a, b), reached)
        late = Binary(BinaryOp.MIN, loop.extent, Binary(BinaryOp.MAX, few, div(end, size)))
        whole = every([Compare(CompareOp.LE, extent, e) for e in reached])
        behind = Select(whole, IntImm(0), sub(loop.extent, late))
        own = Var(loop.name)
        jump = Select(Compare(CompareOp.LE, few, own), sub(late, few), IntImm(0))
        return add(few, behind), add(own, jump)


def blocks_of(
    loops: Sequence[For], here: Sequence[Expr], found: Spread, there: Sequence[Expr]
) -> Blocks | None:
    """None where other dimensions are not walked through by both."""
    steps = {x.name for x in found.loops}
    along = [d for d, e in enumerate(there) if free_vars(e) & steps]
    others = [d for d in range(len(there)) if d not in along]
    if len(along) != 1 or not all(free_vars(there[d]) for d in others):
        return None
    (d,) = along
    lowest = Affine.of(substitute(there[d], {x.name: x.min for x in found.loops})).constant
    if lowest is None or Affine.of(there[d]).coefficient(Var(found.loops[-1].name)).constant != 1:
        return None
    blocks = [
        x
        for x in loops
        if x.kind is ForKind.GPU_BLOCK and x.name in free_vars(here[d]) and x.min == IntImm(0)
    ]
    size = Affine.of(here[d]).coefficient(Var(blocks[0].name)).constant if blocks else None
    if len(blocks) != 1 or size is None or size <= 0:
        return None
    return Blocks(blocks[0], d, size, lowest)


def ends_of(found: Spread) -> list[Affine | None]:
    """Steps of the recurrence are less than each of these; None for one that is not known."""
    count: Expr = IntImm(1)
    for x in found.loops:
        count = mul(count, x.extent)
    ends: list[Affine | None] = [Affine.of(count)]
    first = {x.name: x.min for x in found.loops}
    for test in found.tests:
        if free_vars(test) & first.keys():
            assert isinstance(test, Compare)
            late = substitute(add(test.b, IntImm(test.op is CompareOp.LE)), first)
            end = Affine.of(late) - Affine.of(substitute(test.a, first))
            steps = _steps_of(test, found.loops)
            ends.append(None if steps is None else end * steps)
    return ends


def _steps_of(test: Compare, loops: Sequence[For]) -> int | None:
    """How many steps lie between two that a test tells apart: it may count turns of threads."""
    form, steps = Affine.of(test.a) - Affine.of(test.b), 1
    for x in reversed(loops):
        factor = form.coefficient(Var(x.name)).constant
        if factor:
            return steps if factor == 1 else None
        if factor is None or not isinstance(x.extent, IntImm):
            return None
        steps *= x.extent.value
    return None


def with_loop(s: Stmt, name: str, extent: Expr, place: Expr) -> Stmt:
    """The loops, that of a name with another extent, and its variable at another place."""
    match s:
        case For() if s.name == name:
            return replace(s, extent=extent, body=substitute_stmt(s.body, {name: place}))
        case For(body=body):
            return replace(s, body=with_loop(body, name, extent, place))
        case IfThenElse(_, then, None):
            return replace(s, then=with_loop(then, name, extent, place))
        case _:
            return s
