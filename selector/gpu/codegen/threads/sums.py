"""Vector statements of one thread on its own registers that stand side by side, of what they load
from the same arrays.

    sum[3 l]     += image[s l]     * weight        for lanes l, s being the stride of pixels
    sum[3 l + 1] += image[s l + 1] * weight
    sum[3 l + 2] += image[s l + 2] * weight

All that they load is loaded once: where pixels lie side by side, as one run of elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import combinations, groupby
from typing import Protocol

from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.storage import Space, Storage
from selector.gpu.codegen.threads.lanes import LANE, one_lane
from selector.gpu.codegen.threads.needs import Needs
from selector.gpu.codegen.threads.nests import vector_digits
from selector.gpu.codegen.threads.vector_code import emit_side_by_side, rows_flag, vector_condition
from selector.gpu.codegen.threads.vectors import Vectors, vectors_of
from selector.gpu.codegen.threads.windows import Windows
from selector.gpu.ir.expressions import all_of
from selector.ir.affine import to_affine
from selector.ir.contents import holds
from selector.ir.lanes import same_index
from selector.ir.nodes import Allocate, Block, Expr, For, Load, Stmt, Store
from selector.ir.traverse import free_vars, walk_expr


class ThreadStatements(Protocol):
    """What writes statements of a thread; ``plain.ThreadCode`` says what each of them is."""

    context: KernelContext
    alone: dict[str, int]
    lane: str
    grid: tuple[str, ...]
    whole: set[tuple[Store, ...]]

    def statement(self, s: Stmt) -> None: ...

    def each(self, s: Store, extents: tuple[int, ...], how: str = "") -> None: ...

    def turns(
        self, s: Store, thread: str, turn: Expr, loop: AbstractContextManager[None]
    ) -> None: ...


def side_by_side(stmts: Sequence[Stmt]) -> Iterator[Sequence[Stmt]]:
    """Statements cut where others than vector stores are among them."""
    for _, part in groupby(stmts, lambda s: isinstance(s, Store) and s.value.type.lanes > 1):
        yield tuple(part)


def emit_sums(stmts: Sequence[Stmt], code: ThreadStatements) -> bool:
    """Write some statements if they are such."""
    stores = [s for s in stmts if isinstance(s, Store)]
    vectors = _as_vectors(stores, code.context) if 1 < len(stores) == len(stmts) else ()
    if not vectors:
        return False
    w, context = code.context.writer, code.context
    whole = tuple(stores) in code.whole
    condition = None if whole else vector_condition(vectors[-1], context)
    with w.block() if condition is None else w.when(condition):
        emit_side_by_side(vectors, context, aligned=whole)
    if condition is not None:
        with w.otherwise():
            for s in stores:
                code.each(s, vector_digits(s.value.type.lanes, s.index), "unrolled")
    return True


def whole_sums(s: For, context: KernelContext) -> tuple[tuple[Store, ...], Expr] | None:
    """Such statements in a loop of a thread, and the condition, the same for all iterations, under
    which all are done with vectors that begin at multiples.
    """
    body = s.body
    while isinstance(body, Allocate):
        context.storages[body.name] = Storage(body.name, body.type.element, Space.LOCAL)
        body = body.body
    parts = list(side_by_side(body.stmts)) if isinstance(body, Block) else []
    runs = [part for part in parts if len(part) > 1 and isinstance(part[0], Store)]
    stores = tuple(x for x in runs[0] if isinstance(x, Store)) if len(runs) == 1 else ()
    vectors = _as_vectors(stores, context) if len(stores) > 1 else ()
    if not vectors:
        return None
    needs = vectors[-1].needs
    asked = [*needs.tests, *(room.to_expr() for room in needs.least)]
    if any(s.name in free_vars(e) or holds(e, Load) for e in asked):
        return None
    condition = all_of((vector_condition(vectors[-1], context), rows_flag(vectors[-1], context)))
    return None if condition is None else (stores, condition)


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
