"""What a recurrence begins with: taken from where the kernel before takes it.

    for all i:  y[i] = f(i)                        for the first i:  y[i] = f(i)
    for i > 0:  y[i] = y[i] + a*y[i - 1]           for i > 0:        y[i] = f(i) + a*y[i - 1]

The elements are so written once, and not read. The first kernel has the blocks left in which there
are elements before the recurrence, or behind it: where that goes on to the end of its dimension,
none of these. Where whoever reads those computes them (``origins``), it has none at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from selector.ir.affine import Affine
from selector.ir.lanes import lane
from selector.ir.nodes import Dim, Expr, For, Load, Stmt, Store, Var
from selector.ir.traverse import change_stmts, free_vars, replaced_all, walk_expr
from selector.lowering.predicates import slack
from selector.lowering.scans.find import Spread, find
from selector.lowering.scans.origins import LOADS, Origin, origin_of
from selector.lowering.scans.turns import nested
from selector.lowering.scans.walks import blocks_of, coordinates, ends_of, moved, with_loop


def taken_starts(
    first: Stmt, second: Stmt, arrays: Mapping[str, tuple[Dim, ...]]
) -> tuple[Stmt, Stmt, Origin] | None:
    """Two kernels that follow each other, and what the first stores; None where the second is no
    recurrence that begins with that, of one of the ``arrays``, or would read too much for it.
    """
    if not (isinstance(first, For) and isinstance(second, For)):
        return None
    stored, again = list(nested(first))[-1], list(nested(second))[-1]
    if not (isinstance(stored, Store) and isinstance(again, Store)):
        return None
    if stored.buffer != again.buffer or stored.buffer not in arrays:
        return None
    found, dims = find(second), arrays[stored.buffer]
    if found is None or not found.upwards:
        return None
    inputs = {x for x in walk_expr(found.store.value) if found.is_before(x)}
    loads = [x for x in walk_expr(stored.value) if isinstance(x, Load)]
    if len(inputs) != 1 or len(loads) > LOADS or any(x.buffer == stored.buffer for x in loads):
        return None
    loops = [x for x in nested(first) if isinstance(x, For)]
    own = Var(f"{stored.buffer}.start_lane")
    digits = ((own, stored.index.type.lanes),)
    here = coordinates(lane(stored.index, digits), dims)
    there = coordinates(found.store.index, dims)
    if here is None or there is None or not _all_rows(found, there, dims):
        return None
    names = [own, *(Var(x.name) for x in loops)]
    own_value = lane(stored.value, digits)
    value = moved(own_value, here, there, names)
    if value is None or value.type != found.type:
        return None
    blocks = blocks_of(loops, here, found, there)
    if blocks is None:
        return None
    (read,) = inputs
    ends = [Affine() if end is None else end for end in ends_of(found)]
    if any(end.mentions(x.name) for end in ends for x in (*found.grid, *found.others)):
        return None
    left = blocks.left(ends, dims[blocks.along].extent)

    def begun(s: Stmt) -> Stmt | None:
        """The recurrence with a value for what is read where it stores."""
        known = {read: value}
        return replace(s, value=replaced_all(s.value, known)) if isinstance(s, Store) else None

    origin = origin_of(own_value, here, tuple(names), dims, found, value)
    return with_loop(first, blocks.loop.name, *left), change_stmts(second, begun), origin


def _all_rows(found: Spread, there: Sequence[Expr], dims: Sequence[Dim]) -> bool:
    """Whether nothing but the end of the array keeps a row from having the recurrence."""
    steps = {x.name for x in found.loops}
    ends = [Affine.of(d.extent) - 1 - Affine.of(e) for d, e in zip(dims, there, strict=True)]
    return all(free_vars(t) & steps or slack(t) in ends for t in found.tests)
