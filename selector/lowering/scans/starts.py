"""What a recurrence begins with: taken from where the kernel before takes it.

    for all i:  y[i] = f(i)                        for the first i:  y[i] = f(i)
    for i > 0:  y[i] = y[i] + a*y[i - 1]           for i > 0:        y[i] = f(i) + a*y[i - 1]

The elements are so written once, and not read. The first kernel has few blocks left, where it is
known at the launch that the recurrence goes on to the end of its dimension; else all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from selector.ir.affine import Affine, settled, split_by_strides
from selector.ir.lanes import lane
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
    Load,
    Select,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import add, mul
from selector.ir.traverse import free_vars, map_expr, map_stmt, substitute, walk_expr
from selector.lowering.predicates import every
from selector.lowering.scans.find import Spread, find, nested

LOADS = 4  # of a start at most: two kernels read it


def taken_starts(
    first: Stmt, second: Stmt, outputs: Mapping[str, Sequence[Dim]]
) -> tuple[Stmt, Stmt] | None:
    """Two kernels that follow each other; None where the second is no recurrence that begins with
    what the first stores of an output, or would read too much for it.
    """
    if not (isinstance(first, For) and isinstance(second, For)):
        return None
    stored, again = list(nested(first))[-1], list(nested(second))[-1]
    if not (isinstance(stored, Store) and isinstance(again, Store)):
        return None
    if stored.buffer != again.buffer or stored.buffer not in outputs:
        return None
    found, dims = find(second), outputs[stored.buffer]
    if found is None:
        return None
    inputs = {x for x in walk_expr(found.store.value) if found.is_before(x)}
    loads = [x for x in walk_expr(stored.value) if isinstance(x, Load)]
    if len(inputs) != 1 or len(loads) > LOADS or any(x.buffer == stored.buffer for x in loads):
        return None
    loops = [x for x in nested(first) if isinstance(x, For)]
    own = Var(f"{stored.buffer}.start_lane")
    digits = ((own, stored.index.type.lanes),)
    here = split_by_strides(lane(stored.index, digits), tuple(dims))
    there = split_by_strides(found.store.index, tuple(dims))
    if here is None or there is None:
        return None
    value = _moved(lane(stored.value, digits), here, there, [own, *(Var(x.name) for x in loops)])
    if value is None or value.type != found.type:
        return None
    left = _left(loops, here, found, there, dims)
    if left is None:
        return None
    (read,) = inputs

    def begun(e: Expr) -> Expr:
        return value if e == read else map_expr(e, begun)

    def changed(s: Stmt) -> Stmt:
        if isinstance(s, Store):
            return replace(s, value=begun(s.value))
        return map_stmt(s, changed, lambda e: e)

    return _with(first, left), changed(second)


def _moved(
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


def _left(
    loops: Sequence[For],
    here: Sequence[Expr],
    found: Spread,
    there: Sequence[Expr],
    dims: Sequence[Dim],
) -> For | None:
    """The loop over blocks of the first kernel along the recurrence, with the blocks that are left
    to it. None where other dimensions are not walked through by both.
    """
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
    ends = [Affine.of(dims[d].extent) - lowest - end for end in _ends(found)]
    last = every([Compare(CompareOp.LE, end.to_expr(), IntImm(0)) for end in ends])
    few = Binary(BinaryOp.MIN, blocks[0].extent, IntImm(-(-lowest // size)))
    return replace(blocks[0], extent=Select(last, few, blocks[0].extent))


def _ends(found: Spread) -> list[Affine]:
    """Steps of the recurrence are less than each of these."""
    count: Expr = IntImm(1)
    for x in found.loops:
        count = mul(count, x.extent)
    ends = [Affine.of(count)]
    first = {x.name: x.min for x in found.loops}
    steps = Var(found.loops[-1].name)
    for test in found.tests:
        if free_vars(test) & first.keys():
            assert isinstance(test, Compare)
            factor = (Affine.of(test.a) - Affine.of(test.b)).coefficient(steps).constant
            late = substitute(add(test.b, IntImm(test.op is CompareOp.LE)), first)
            end = Affine.of(late) - Affine.of(substitute(test.a, first))
            ends.append(end if factor == 1 else Affine.of(0))
    return ends


def _with(s: Stmt, loop: For) -> Stmt:
    """The loops with another one for that of its name."""
    match s:
        case For() if s.name == loop.name:
            return replace(loop, body=s.body)
        case For(body=body):
            return replace(s, body=_with(body, loop))
        case IfThenElse(_, then, None):
            return replace(s, then=_with(then, loop))
        case _:
            return s
