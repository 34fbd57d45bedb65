"""Vector statements of one thread on its own registers that stand side by side, of what they load
from the same arrays.

    sum[3 l]     += image[s l]     * weight        for lanes l, s being the stride of pixels
    sum[3 l + 1] += image[s l + 1] * weight
    sum[3 l + 2] += image[s l + 2] * weight

All that they load is loaded once: where pixels lie side by side, as one run of elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, groupby
from typing import Protocol

from selector.emit.context import KernelContext
from selector.emit.nests import vector_digits
from selector.emit.scalar import Space
from selector.emit.thread_lanes import LANE, one_lane, same_index
from selector.emit.thread_vector_code import emit_vectors, load_windows, vector_condition
from selector.emit.thread_vectors import Needs, Vectors, Windows, vectors_of
from selector.ir.affine import to_affine
from selector.ir.nodes import Load, Stmt, Store
from selector.ir.traverse import walk_expr


class LaneCode(Protocol):
    """``selector.emit.threads.ThreadCode`` says what each of them is."""

    context: KernelContext

    def each(self, s: Store, extents: tuple[int, ...], how: str = "") -> None: ...


def side_by_side(stmts: Sequence[Stmt]) -> Iterator[Sequence[Stmt]]:
    """Statements cut where others than vector stores are among them."""
    for _, part in groupby(stmts, lambda s: isinstance(s, Store) and s.value.type.lanes > 1):
        yield tuple(part)


def emit_sums(stmts: Sequence[Stmt], code: LaneCode) -> bool:
    """Write some statements if they are such."""
    stores = [s for s in stmts if isinstance(s, Store)]
    vectors = _as_vectors(stores, code.context) if 1 < len(stores) == len(stmts) else ()
    if not vectors:
        return False
    w, context, last = code.context.writer, code.context, vectors[-1]
    condition = vector_condition(last, context)
    with w.block() if condition is None else w.when(condition):
        load_windows(last, context)
        for v in vectors:
            emit_vectors(replace(v, windows=()), context)
    if condition is not None:
        with w.otherwise():
            for s in stores:
                code.each(s, vector_digits(s.value.type.lanes, s.index), "unrolled")
    return True


def _as_vectors(stores: Sequence[Store], context: KernelContext) -> tuple[Vectors, ...]:
    """With the windows of all in the last; empty where they share none."""
    lanes = stores[0].value.type.lanes
    if lanes == 1 or any(s.value.type.lanes != lanes or s.predicate is not None for s in stores):
        return ()
    if any(context.storages[s.buffer].space is not Space.LOCAL for s in stores):
        return ()
    ones = [one_lane(s) for s in stores]
    if not _are_apart(stores, ones, lanes):
        return ()
    windows = Windows(context, Needs(lanes), rows=True)
    loads = [windows.note(one.value) for one in ones]
    vectors = [vectors_of(one, lanes, windows) for one in ones]
    found = tuple(v for v in vectors if v is not None)
    read = sum(context.storages[x.buffer].space is Space.GLOBAL for part in loads for x in part)
    return found if len(found) == len(ones) and 0 < len(windows.found) < read else ()


def _are_apart(stores: Sequence[Store], ones: Sequence[Store], lanes: int) -> bool:
    """Whether no statement touches what another one stores, and each reads its own elements."""
    written = {s.buffer for s in stores}
    for s in stores:
        own = (e for e in walk_expr(s.value) if isinstance(e, Load) and e.buffer in written)
        if any(e.buffer != s.buffer or not same_index(e.index, s.index) for e in own):
            return False
    for a, b in combinations(ones, 2):
        if a.buffer != b.buffer:
            continue
        at, other = to_affine(a.index), to_affine(b.index)
        step, apart = at.coefficient(LANE).constant, (at - other).constant
        if not step or apart is None:
            return False
        if apart % step == 0 and abs(apart) < abs(step) * lanes:
            return False
    return True
