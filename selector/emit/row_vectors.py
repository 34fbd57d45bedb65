"""Whole vectors of rows (``lowering.whole_rows``): where a row is aligned, and statements of a
thread all of whose lanes are elements of its row.

Vectors of the first array that is named begin at multiples of 16 bytes; whether those of others do
is known of the row, else they are loaded from any address, and stored one by one.
"""

from __future__ import annotations

from contextlib import nullcontext

from selector.emit.context import KernelContext
from selector.emit.scalar import Space, c_type
from selector.emit.thread_lanes import LANE, one_lane
from selector.emit.thread_vectors import Needs, Vectors, Window, Windows, vectors_of, widest
from selector.gpu.ir.expressions import (
    behind,
    element,
    equal,
    masked,
    minus,
    number,
    plus,
    pointer,
    shifted,
)
from selector.gpu.ir.memory import Array, LoadVector, StoreVector
from selector.gpu.ir.nodes import Let
from selector.ir.affine import to_affine
from selector.ir.nodes import Broadcast, Call, Cast, Expr, IntImm, LetStmt, Load, Store, Var
from selector.ir.types import BOOL, INT32, UINT64
from selector.lowering.kept_rows import KEPT
from selector.lowering.whole_rows import ALIGNED, ALL, FIRST, VECTOR_BYTES


def emit_row_number(s: LetStmt, context: KernelContext) -> bool:
    """Declare how many elements of a row are before a multiple, or whether it begins at one; False
    for other numbers.
    """
    match s.value:
        case Call(t, name, (Load(_, buffer, index), IntImm(per))) if name in (FIRST, ALIGNED):
            storage = context.storages[buffer]
        case _:
            return False
    at, size = context.scalar.number(index), storage.type.bytes
    start = Cast(UINT64, behind(pointer(storage.base), storage.start, at))
    own = context.names.get(s.name)
    if name == ALIGNED:
        context.rows[buffer] = Var(own, BOOL)
        value = equal(masked(start, per * size - 1), 0)
    else:
        mask = IntImm(per * size - 1, UINT64)
        over = Cast(INT32, Call(UINT64, "bitwise_and", (start, mask)))
        value = masked(minus(per, shifted(over, size.bit_length() - 1)), per - 1)
    context.writer.add(Let(c_type(t), (own,), (value,)))
    return True


def emit_row_vectors(s: Store, context: KernelContext) -> bool:
    """Write a statement on whole vectors of rows, if it is one."""
    if s.predicate is None or s.predicate != Broadcast(ALL, s.value.type.lanes):
        return False
    lanes, one = s.value.type.lanes, one_lane(Store(s.buffer, s.index, s.value))
    v = vectors_of(one, lanes, Windows(context, Needs(lanes), anywhere=True))
    assert v is not None
    with context.writer.block():
        if s.buffer.startswith(KEPT) and isinstance(s.value, Load):
            (window,) = v.windows
            own = context.scalar.number(to_affine(v.lane.index).rest(LANE).to_expr())
            _load(window, context.storages[s.buffer].base, own, context)
            return True
        for window in v.windows:
            kind, bytes_ = c_type(window.storage.type), window.storage.type.bytes
            context.writer.add(Array(window.name, kind, lanes, min(VECTOR_BYTES, lanes * bytes_)))
            _load(window, window.name, number(0), context)
        _computed(v, context)
    return True


def _load(window: Window, to: str, own: Expr, context: KernelContext) -> None:
    """What a window holds, as vectors, to element ``own`` of an array."""
    w, storage, lanes = context.writer, window.storage, window.high - window.low
    size, per = storage.type.bytes, widest(window.storage, lanes)
    at = context.scalar.number((window.start + window.low).to_expr())
    source = behind(pointer(storage.base), storage.start, at)
    flag = context.rows.get(window.buffer)
    with nullcontext() if flag is None else w.when(flag):
        for k in range(0, lanes, per):
            w.add(LoadVector(pointer(to), plus(own, k), behind(source, IntImm(k)), per * size))
    if flag is not None:
        with w.otherwise():
            w.add(LoadVector(pointer(to), own, source, lanes * size, "anywhere"))


def _computed(v: Vectors, context: KernelContext) -> None:
    """Compute all lanes, and store them."""
    w, scalar, s = context.writer, context.scalar, v.lane
    storage, lanes, name = context.storages[s.buffer], v.needs.lanes, context.names.get(LANE.name)
    stored = storage.space is Space.GLOBAL
    run, per = context.names.fresh("run"), widest(storage, lanes)
    if stored:
        w.add(Array(run, c_type(storage.type), lanes, per * storage.type.bytes))
    own = element(storage.type, pointer(run), name)
    with w.loop(name, number(0), number(lanes), "unrolled"):
        w.store(own if stored else scalar.access(storage, s.index), scalar.legal(s.value))
    if not stored:
        return
    start, flag = to_affine(s.index).rest(LANE), context.rows.get(s.buffer)
    with nullcontext() if flag is None else w.when(flag):
        for k in range(0, lanes, per):
            at = storage.place(scalar.number((start + k).to_expr()))
            to = behind(pointer(storage.base), storage.start, at)
            w.add(StoreVector(to, pointer(run), k, per * storage.type.bytes))
    if flag is not None:
        with w.otherwise(), w.loop(name, number(0), number(lanes), "unrolled"):
            w.store(scalar.access(storage, s.index), own)
