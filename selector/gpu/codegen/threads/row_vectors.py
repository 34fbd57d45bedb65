"""Whole vectors of rows (``lowering.whole_rows``): where a row is aligned, and statements of a
thread all of whose lanes are elements of its row.

Vectors of the first array that is named begin at multiples of 16 bytes; whether those of others do
is known of the row, else they are loaded from any address, and stored one by one.
"""

from __future__ import annotations

from contextlib import nullcontext

from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.storage import Space, c_type
from selector.gpu.codegen.threads.lanes import LANE, one_lane
from selector.gpu.codegen.threads.needs import Needs
from selector.gpu.codegen.threads.vectors import Vectors, vectors_of
from selector.gpu.codegen.threads.windows import Window, Windows, widest
from selector.gpu.ir.expressions import (
    FALSE,
    behind,
    both,
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
from selector.ir.nodes import (
    Block,
    Broadcast,
    Call,
    Cast,
    Expr,
    For,
    IntImm,
    LetStmt,
    Load,
    Store,
    Var,
)
from selector.ir.types import BOOL, INT32, UINT64
from selector.lowering.kept_rows import KEPT
from selector.lowering.row_marks import ALIGNED, ALL, ANYWHERE, FIRST, TOGETHER
from selector.targets import VECTOR_BYTES


def emit_row_number(s: LetStmt, context: KernelContext) -> bool:
    """Declare how many elements of a row are before a multiple, or whether it begins at one; False
    for other numbers.
    """
    match s.value:
        case Call(_, name, args) if name in (FIRST, ALIGNED, TOGETHER):
            pass
        case _:
            return False
    own, value = context.names.get(s.name), None
    for begin, per in zip(args[::2], args[1::2], strict=True):
        assert isinstance(begin, Load)
        assert isinstance(per, IntImm)
        if name == TOGETHER:
            start = to_affine(begin.index)
            alike = context.is_multiple(start, per.value, begin.buffer)
            flag = context.aligned_flag(begin.buffer, per.value) if alike else FALSE
            value = flag if value is None else both(value, flag)
            continue
        over = _over(begin, per.value, context)
        if name == FIRST:
            size = begin.type.bytes.bit_length() - 1
            value = masked(minus(per.value, shifted(over, size)), per.value - 1)
        else:
            context.facts.rows[begin.buffer] = Var(own, BOOL)
            value = equal(over, 0) if value is None else both(value, equal(over, 0))
    assert value is not None
    context.writer.add(Let(c_type(s.value.type), (own,), (value,)))
    return True


def _over(begin: Load, per: int, context: KernelContext) -> Expr:
    """Bytes that an element is behind a multiple of so many elements."""
    storage, at = context.storages[begin.buffer], context.scalar.number(begin.index)
    start = Cast(UINT64, behind(pointer(storage.base), storage.start, at))
    mask = IntImm(per * storage.type.bytes - 1, UINT64)
    return Cast(INT32, Call(UINT64, "bitwise_and", (start, mask)))


def holds_row_vectors(s: For) -> bool:
    """Whether a loop does but such statements."""
    match s.body:
        case Block((Store(predicate=there),)):
            return there is not None and there == Broadcast(ALL, there.type.lanes)
        case _:
            return False


def emit_row_vectors(s: Store, context: KernelContext) -> bool:
    """Write a statement on whole vectors of rows, if it is one."""
    lanes, there = s.value.type.lanes, s.predicate
    if there not in (Broadcast(ALL, lanes), Broadcast(ANYWHERE, lanes)):
        return False
    one = one_lane(Store(s.buffer, s.index, s.value))
    v = vectors_of(one, lanes, Windows(context, Needs(lanes), anywhere=True))
    assert v is not None
    w = context.writer
    with w.block():
        if s.buffer.startswith(KEPT) and isinstance(s.value, Load):
            (window,) = v.windows
            own = context.scalar.number(to_affine(v.lane.index).rest(LANE).to_expr())
            to = pointer(context.storages[s.buffer].base)
            _load(window, to, own, context, aligned=there == Broadcast(ALL, lanes))
            return True
        groups = dict[Expr | None, list[Window]]()
        for window in v.windows:
            kind, bytes_ = c_type(window.storage.type), window.storage.type.bytes
            w.add(Array(window.name, kind, lanes, min(VECTOR_BYTES, lanes * bytes_)))
            groups.setdefault(context.facts.rows.get(window.buffer), []).append(window)
        for flag, group in groups.items():
            with nullcontext() if flag is None else w.when(flag):
                for window in group:
                    _load(window, pointer(window.name), number(0), context, aligned=True)
            with nullcontext() if flag is None else w.otherwise():
                for window in group if flag is not None else ():
                    _load(window, pointer(window.name), number(0), context, aligned=False)
        _computed(v, context)
    return True


def _load(window: Window, to: Expr, own: Expr, context: KernelContext, *, aligned: bool) -> None:
    """What a window holds to element ``own`` of an array on, as vectors or from anywhere."""
    w, storage, lanes = context.writer, window.storage, window.high - window.low
    size, per = storage.type.bytes, widest(window.storage, lanes)
    at = context.scalar.number((window.start + window.low).to_expr())
    source = behind(pointer(storage.base), storage.start, at)
    if not aligned:
        w.add(LoadVector(to, own, source, lanes * size, "anywhere"))
        return
    for k in range(0, lanes, per):
        further = (behind(source, IntImm(k)), plus(own, k)) if k else (source, own)
        w.add(LoadVector(to, further[1], further[0], per * size))


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
    start, flag = to_affine(s.index).rest(LANE), context.facts.rows.get(s.buffer)
    with nullcontext() if flag is None else w.when(flag):
        for k in range(0, lanes, per):
            at = storage.place(scalar.number((start + k).to_expr()))
            to = behind(pointer(storage.base), storage.start, at)
            w.add(StoreVector(to, pointer(run), k, per * storage.type.bytes))
    if flag is not None:
        with w.otherwise(), w.loop(name, number(0), number(lanes), "unrolled"):
            w.store(scalar.access(storage, s.index), own)
