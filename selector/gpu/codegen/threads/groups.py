"""Vector stores of one thread that stand side by side, of what they load from the same arrays.

    dx[4 i ...] = a[4 i + 1 ...] - a[4 i ...]
    dy[4 i ...] = a[4 i + s ...] - a[4 i ...]

All that they load is loaded once, before anything is computed or stored: the loads wait for memory
together. That goes where all of it is inside, and rows are aligned or all those that are stored
begin equally far from a multiple; elsewhere each statement goes lane by lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import combinations

from selector.dataclass import dataclass
from selector.gpu.codegen.threads.ends import Row, deal_out, emit_ends
from selector.gpu.codegen.threads.lanes import block_behind, goes_on, later, one_lane
from selector.gpu.codegen.threads.needs import Needs
from selector.gpu.codegen.threads.sums import ThreadStatements
from selector.gpu.codegen.threads.vector_code import (
    emit_side_by_side,
    shift_of,
    vector_condition,
    vector_flags,
)
from selector.gpu.codegen.threads.vectors import SHIFT, Vectors, thread_of, vectors_of
from selector.gpu.codegen.threads.windows import Windows, widest
from selector.gpu.ir.expressions import all_of, equal, less, number, plus, remainder, times
from selector.gpu.ir.nodes import Let
from selector.ir.affine import to_affine
from selector.ir.nodes import Expr, Stmt, Store
from selector.lowering.structure import loaded_names, stored_names, under_conditions


@dataclass(frozen=True, slots=True)
class _Group:
    """Stores, the conditions around all of them, and the ``thread`` loop that their lanes go on
    along.
    """

    stores: tuple[Store, ...]
    conditions: tuple[Expr, ...]
    thread: str


def emit_together(stmts: Sequence[Stmt], code: ThreadStatements) -> bool:
    """Write some statements if they are such stores."""
    found = _group(stmts, code)
    if found is None:
        return False
    group, aligned, ahead = found
    context, w = code.context, code.context.writer
    inside = all_of(context.scalar.legal(c) for c in group.conditions)
    flags = all_of(vector_flags(v, context) for v in aligned)
    assert flags is not None
    with w.block() if inside is None else w.when(inside):
        with w.when(flags):
            _vectors(aligned, group.stores, group.thread, code)
        with w.otherwise():
            emit_ahead(ahead, group.stores, group.thread, code)
    if inside is not None:
        with w.otherwise():
            for s in stmts:
                _apart(s, group.thread, code)
    return True


def _group(
    stmts: Sequence[Stmt], code: ThreadStatements
) -> tuple[_Group, tuple[Vectors, ...], tuple[Vectors, ...]] | None:
    """The stores, as vectors that begin at multiples and that begin later."""
    parts = [_store(s) for s in stmts]
    stores = tuple(s for part in parts if part for s in (part[1],))
    if len(stores) < max(2, len(stmts)) or not code.alone:
        return None
    written = frozenset[str]().union(*map(stored_names, stores))
    read = [loaded_names(s) for s in stores]
    if written & frozenset[str]().union(*read) or not read[0]:
        return None
    if any(names != read[0] for names in read):
        return None
    ones, lanes, context = [one_lane(s) for s in stores], stores[0].value.type.lanes, code.context
    if any(s.value.type.lanes != lanes for s in stores):
        return None
    aligned = _as_vectors(ones, lanes, Windows(context, Needs(lanes)))
    thread = thread_of(aligned[0], code.alone) if aligned else None
    if not aligned or thread is None or any(v.per == 1 for v in aligned):
        return None
    if code.alone[thread] < 2 or not all(goes_on(one, thread, lanes) for one in ones):
        return None
    if not _are_apart(ones, lanes * code.alone[thread]):
        return None
    places = Windows(context, Needs(lanes), anywhere=True)
    ahead = _as_vectors([later(one, SHIFT) for one in ones], lanes, places)
    widths = [widest(context.storages[s.buffer], lanes) for s in stores]
    ahead = tuple(replace(v, per=n, ahead=True) for v, n in zip(ahead, widths, strict=False))
    conditions = dict.fromkeys(c for part in parts if part for c in part[0])
    return (_Group(stores, tuple(conditions), thread), aligned, ahead) if ahead else None


def _are_apart(ones: Sequence[Store], row: int) -> bool:
    """Whether stores of one array lie beyond what a ``row`` of threads stores of each."""
    for a, b in combinations(ones, 2):
        off = (to_affine(a.index) - to_affine(b.index)).constant
        if a.buffer == b.buffer and (off is None or abs(off) < row):
            return False
    return True


def _as_vectors(ones: Sequence[Store], lanes: int, windows: Windows) -> tuple[Vectors, ...]:
    """With the windows of all in the last; empty if some are none."""
    found = [vectors_of(one, lanes, windows) for one in ones]
    whole = tuple(v for v in found if v is not None and not v.given)
    return whole if len(whole) == len(found) and windows.found else ()


def _store(s: Stmt) -> tuple[list[Expr], Store] | None:
    """A vector store, and the conditions that it stands under."""
    conditions, s = under_conditions(s)
    return (conditions, s) if isinstance(s, Store) and s.value.type.lanes > 1 else None


def _vectors(
    vectors: tuple[Vectors, ...],
    stores: tuple[Store, ...],
    thread: str,
    code: ThreadStatements,
    shift: str | None = None,
    threads: int | None = None,
) -> None:
    """All of them where they are inside, else element by element. ``threads``: of those of a row
    which have vectors, if not all.
    """
    w, context, own = code.context.writer, code.context, code.context.names.get(thread)
    last, lanes, count = vectors[-1], vectors[-1].needs.lanes, threads or code.alone[thread]
    mine = None if threads is None else less(own, threads)
    condition, ended = vector_condition(last, context), False
    if condition is not None:
        row = Row(thread, count, shift)
        condition, ended = emit_ends(last.needs, condition, vectors, stores, row, code)
    inside = all_of((mine, condition))
    with w.block() if inside is None else w.when(inside):
        emit_side_by_side(vectors, context)
    if condition is None or ended:
        return
    with w.otherwise(), nullcontext() if mine is None else w.when(mine):
        start = times(own, lanes)
        turn = plus(start if shift is None else plus(start, shift), "l")
        how = "fours" if len(last.windows) == 1 and len(stores) == 1 else "rolled"
        for s in stores:
            code.turns(s, thread, turn, w.loop("l", number(0), number(lanes), how))


def emit_ahead(
    vectors: tuple[Vectors, ...], stores: tuple[Store, ...], thread: str, code: ThreadStatements
) -> None:
    """Vectors that begin later, and what is left at the ends of what a row of threads has: where
    blocks go on along it, one has what the next one begins with, and only the first one's is left.
    """
    w, context, count = code.context.writer, code.context, code.alone[thread]
    lanes, own = vectors[0].needs.lanes, context.names.get(thread)
    shift = context.names.get(SHIFT.name)
    w.add(Let("int", (shift,), (shift_of(vectors[0], thread, context),)))
    same = all_of(equal(shift, shift_of(v, thread, context)) for v in vectors[1:])
    blocks = {_block(s, lanes * count, code) for s in stores}
    block = blocks.pop() if len(blocks) == 1 else None
    with nullcontext() if same is None else w.when(same):
        _vectors(vectors, stores, thread, code, shift, None if block else count - 1)
        first = None if block is None else equal(context.names.get(block), 0)
        turn, left = number("l"), number(shift)
        if first is None:
            turn = remainder(plus(plus(shift, lanes * (count - 1)), "l"), lanes * count)
            left = number(lanes)
        with nullcontext() if first is None else w.when(first):
            for s in stores:
                code.turns(s, thread, turn, w.loop("l", number(own), left, step=number(count)))
    if same is not None:
        with w.otherwise():
            for s in stores:
                deal_out(s, thread, code)


def _block(s: Store, lanes: int, code: ThreadStatements) -> str | None:
    """The loop over blocks that go on along a statement's lanes, so many in each."""
    param = code.context.host.params.get(s.buffer)
    return block_behind(one_lane(s), lanes, code.grid, param)


def _apart(s: Stmt, thread: str, code: ThreadStatements) -> None:
    """One of the statements, where the conditions of another one do not hold."""
    w, part = code.context.writer, _store(s)
    assert part is not None
    condition = all_of(code.context.scalar.legal(c) for c in part[0])
    with w.block() if condition is None else w.when(condition):
        deal_out(part[1], thread, code)
