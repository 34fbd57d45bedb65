"""Rows that threads keep in registers with some elements beyond their own, where every warp has
threads at an edge:

    k[ramp(0, 1, 10)] = a[ramp(8*x - 1, 1, 10)]    =>    k[0] = a[8*x - 1]
                                                         k[ramp(1, 1, 8)] = a[ramp(8*x, 1, 8)]
                                                         k[9] = a[8*x + 8]

A vector that is inside as a whole is one load. But where a few threads have a whole row, its first
and last thread would have all of theirs one by one, and the others of their warps wait for that.
"""

from __future__ import annotations

from collections.abc import Iterator

from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.threads.vector_code import pieces
from selector.gpu.codegen.threads.vectors import Vectors
from selector.ir.affine import Affine
from selector.ir.lanes import in_lanes, lane
from selector.ir.nodes import Expr, IntImm, Store, Var
from selector.ir.traverse import free_vars, substitute

_OWN = Var("$own")  # a lane of the whole, by its number in its part


def with_halos(v: Vectors, s: Store, context: KernelContext) -> tuple[Store, ...]:
    """A vector statement in parts; none where it is not such a row."""
    if len(v.windows) != 1 or s.predicate is not None or not (v.needs.least or v.needs.tests):
        return ()
    (window,), lanes = v.windows, v.needs.lanes
    few = free_vars(window.start.to_expr()) & context.indices.few
    parts = [*pieces(window, smaller=False)]
    halo = sum(n == 1 for _, n in parts)
    if window.step != 1 or window.high - window.low != lanes or not few or not 0 < halo < lanes:
        return ()
    return tuple(_part(s, lanes, k - window.low, n) for k, n in parts)


def _part(s: Store, lanes: int, first: int, count: int) -> Store:
    index, value = _lanes(s, lanes, (Affine.of(_OWN) + first).to_expr())
    if count > 1:
        return Store(s.buffer, *(in_lanes(e, _OWN.name, count) for e in (index, value)))
    return Store(s.buffer, *(substitute(e, {_OWN.name: IntImm(0)}) for e in (index, value)))


def _lanes(s: Store, lanes: int, at: Expr) -> Iterator[Expr]:
    for e in (s.index, s.value):
        yield substitute(lane(e, ((_OWN, lanes),)), {_OWN.name: at})
