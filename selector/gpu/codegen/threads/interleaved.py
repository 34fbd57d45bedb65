"""Vector stores of one thread that are the elements of its pixels, one statement for each.

    out[3 l]     = a[...]        for lanes l, if the stride of pixels of ``out`` is 3
    out[3 l + 1] = b[...]
    out[3 l + 2] = c[...]

All that they load is loaded once, and what they store lies side by side: it is stored as vectors,
or pixel by pixel where rows of it are not aligned and a pixel is one vector. A thread of which some
pixels are outside stores its own one by one; where pixels are not aligned either, neighbouring
threads store neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.storage import Space, c_type
from selector.gpu.codegen.threads.ends import deal_out, whole_block
from selector.gpu.codegen.threads.exchange import store_exchanged
from selector.gpu.codegen.threads.lanes import LANE, goes_on, one_lane
from selector.gpu.codegen.threads.needs import Needs
from selector.gpu.codegen.threads.nests import vector_digits
from selector.gpu.codegen.threads.sums import ThreadStatements
from selector.gpu.codegen.threads.vector_code import condition_of, load_windows
from selector.gpu.codegen.threads.vectors import Vectors, vectors_of
from selector.gpu.codegen.threads.windows import VECTOR_BYTES, Windows, widest
from selector.gpu.ir.expressions import (
    all_of,
    behind,
    either,
    element,
    number,
    plus,
    pointer,
    times,
)
from selector.gpu.ir.memory import Array, StoreVector
from selector.ir.affine import Affine, carries, split_by_strides, to_affine
from selector.ir.nodes import Compare, CompareOp, Expr, IntImm, Stmt, Store, Var
from selector.lowering.structure import loaded_names


@dataclass(frozen=True, slots=True)
class _Pixels:
    """Statements by their element of a pixel, and the stride from one pixel to the next."""

    stores: tuple[Store, ...]
    stride: Var
    thread: str
    vectors: tuple[Vectors, ...]


def emit_interleaved(stmts: Sequence[Stmt], code: ThreadStatements) -> bool:
    """Write some statements if they are such."""
    stores = [s for s in stmts if isinstance(s, Store)]
    found = _pixels(stores, code) if 1 < len(stores) == len(stmts) else None
    if found is None:
        return False
    w, context, last = code.context.writer, code.context, found.vectors[-1]
    stride, count = found.stride.name, len(found.stores)
    dense = Compare(CompareOp.EQ, found.stride, IntImm(count))
    given = (dense, *(e for e in last.given if e != dense))
    pixel, per = _at_once(found, context)
    aligned = context.aligned_flag(last.lane.buffer, pixel, frozenset({stride}))
    flags = all_of((aligned, *map(context.scalar.legal, given)))
    condition = condition_of(last.needs, (), context)
    whole = whole_block(last.needs, code.alone, context) if _exchanges(found, per, code) else None
    joined = condition if condition is None or whole is None else either(whole, condition)
    assert flags is not None
    with w.when(all_of((flags, joined)) or flags):
        _store(found, pixel, per, whole, context)
    with w.otherwise(), ExitStack() as unaligned:
        if condition is not None:
            with w.when(flags):
                for s in found.stores:
                    code.each(s, vector_digits(last.needs.lanes, s.index), "rolled")
            unaligned.enter_context(w.otherwise())
        for s in found.stores:
            deal_out(s, found.thread, code)
    return True


def _at_once(found: _Pixels, context: KernelContext) -> tuple[int, int]:
    """Elements of a vector where pixels, but not rows of them, begin at multiples, if that is any;
    and where rows do.
    """
    last, count = found.vectors[-1], len(found.stores)
    per = widest(context.storages[last.lane.buffer], count * last.needs.lanes)
    return (count if per % count == 0 else per), per


def _exchanges(found: _Pixels, per: int, code: ThreadStatements) -> bool:
    """Whether a warp's threads have several vectors of a row each."""
    last = found.vectors[-1]
    lanes, storage = last.needs.lanes, code.context.storages[last.lane.buffer]
    several = per * storage.type.bytes == VECTOR_BYTES and len(found.stores) * lanes > per
    return several and code.lane == found.thread


def _pixels(stores: Sequence[Store], code: ThreadStatements) -> _Pixels | None:
    context, buffer, lanes = code.context, stores[0].buffer, stores[0].value.type.lanes
    storage, alike = context.storages[buffer], {(s.buffer, s.value.type) for s in stores}
    if lanes == 1 or len(alike) > 1 or storage.space is not Space.GLOBAL or storage.param is None:
        return None
    if carries(storage.param.dims) or any(buffer in loaded_names(s) for s in stores):
        return None
    ones, found = [one_lane(s) for s in stores], dict[int, Store]()
    strides = [d.stride for d in storage.param.dims[1:2] if isinstance(d.stride, Var)]
    for s, one in zip(stores, ones, strict=True):
        place = split_by_strides(one.index, storage.param.dims)
        element_ = None if place is None else to_affine(place[0]).constant
        steps = [to_affine(one.index).coefficient(LANE) - Affine.of(v) for v in strides]
        if element_ is None or not steps or steps[0].constant != 0:
            return None
        found[element_] = s
    if sorted(found) != list(range(len(stores))):
        return None
    ordered = tuple(found[n] for n in range(len(stores)))
    windows = Windows(context, Needs(lanes), rows=True)
    windows.enter(*(one.value for one in ones))
    vectors = [vectors_of(one_lane(s), lanes, windows) for s in ordered]
    whole = tuple(v for v in vectors if v is not None)
    threads = [t for t in code.alone if all(goes_on(one, t, lanes) for one in ones)]
    if len(whole) < len(ordered) or not windows.found or not threads:
        return None
    return _Pixels(ordered, strides[0], threads[0], whole)


def _store(
    found: _Pixels, pixel: int, per: int, whole: Expr | None, context: KernelContext
) -> None:
    """Load, compute and store them; ``whole``: where all threads of a block do."""
    w, scalar, last = context.writer, context.scalar, found.vectors[-1]
    storage, count, lanes = context.storages[last.lane.buffer], len(found.stores), last.needs.lanes
    load_windows(last, context)
    run, name = context.names.fresh("run"), context.names.get(LANE.name)
    w.add(Array(run, c_type(storage.type), count * lanes, per * storage.type.bytes))
    with w.loop(name, number(0), number(lanes), "unrolled"):
        for n, v in enumerate(found.vectors):
            own = element(storage.type, pointer(run), plus(times(name, count), n))
            w.store(own, scalar.legal(v.lane.value))
    if pixel == per:
        _rows(found, run, per, whole, context)
        return
    flag = context.aligned_flag(last.lane.buffer, per, frozenset({found.stride.name}))
    with w.when(flag):
        _rows(found, run, per, whole, context)
    with w.otherwise():
        _vectors(found, run, pixel, context)


def _rows(found: _Pixels, run: str, per: int, whole: Expr | None, context: KernelContext) -> None:
    """What is in the thread's array, as vectors of rows that begin at multiples."""
    if whole is None:
        _vectors(found, run, per, context)
        return
    w, last, lane = context.writer, found.vectors[-1], Var(found.thread)
    elements, storage = len(found.stores) * last.needs.lanes, context.storages[last.lane.buffer]
    start = to_affine(found.vectors[0].lane.index).rest(LANE)
    with w.when(whole):
        first = _dense(start, found.stride, len(found.stores)).rest(lane)
        store_exchanged(run, lane, first, elements, storage, context)
    with w.otherwise():
        _vectors(found, run, per, context)


def _vectors(found: _Pixels, run: str, per: int, context: KernelContext) -> None:
    """What is in the thread's array, as vectors of so many elements."""
    count, last = len(found.stores), found.vectors[-1]
    storage = context.storages[last.lane.buffer]
    start = to_affine(found.vectors[0].lane.index).rest(LANE)
    for k in range(0, count * last.needs.lanes, per):
        at = storage.place(
            context.scalar.number((_dense(start, found.stride, count) + k).to_expr())
        )
        to = behind(pointer(storage.base), storage.start, at)
        context.writer.add(StoreVector(to, pointer(run), k, per * storage.type.bytes))


def _dense(start: Affine, stride: Var, count: int) -> Affine:
    """The same where the stride of pixels is their number of elements."""
    return start.rest(stride) + start.coefficient(stride) * count
