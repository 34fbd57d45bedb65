"""Staged copies by the copy engine, row by row (sm_90).

A row of a staged copy is one instruction of one thread instead of a chunk for each lane; where only
a part of it lies inside the source, that part is, and the thread writes the zeros around it. The
bytes are reported to the barrier of the stage that the copy fills.
"""

from __future__ import annotations

from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.copies.chunks import (
    LANE,
    TO,
    addresses,
    decode_rows,
    element_type,
    emit_border,
    provably_aligned,
    spread,
    whole_inside,
)
from selector.gpu.codegen.copies.code import one_of
from selector.gpu.codegen.copies.recognise import CHUNK_BYTES, Copy
from selector.gpu.ir.expressions import (
    FALSE,
    address,
    at_least,
    below,
    both,
    chosen,
    either,
    equal,
    flag,
    greater,
    least,
    less,
    minus,
    most,
    negated,
    number,
    plus,
    quotient,
    times,
)
from selector.gpu.ir.memory import CopyElement, CopyRun, StoreWords
from selector.gpu.ir.nodes import Assign, Fence, Leave, Let, State
from selector.gpu.ir.views import View
from selector.ir.nodes import Call, Expr, IntImm
from selector.ir.types import BOOL, UINT32

FEW_CHUNKS = 6
ANY_PART = Call(BOOL, "__any_sync", (IntImm(0xFFFFFFFF, UINT32), flag("part")))
ENGINE_BYTES = 256  # of a row, for which one instruction is less than a chunk for each lane


def takes_rows(copy: Copy, context: KernelContext) -> bool:
    """Whether the copy engine can take the rows: long ones that start at multiples of 16 bytes."""
    to = context.storages[copy.to]
    whole = copy.rounded or copy.length % copy.per == 0
    plain = to.strips is None and to.panels is None and provably_aligned(copy)
    return whole and plain and copy.chunks * CHUNK_BYTES >= ENGINE_BYTES


def emit_rows(copy: Copy, context: KernelContext, thread: Expr, size: int, barrier: Expr) -> None:
    """Write a copy that ``takes_rows``; the threads have yet to arrive at this phase of
    ``barrier``. Rows at other addresses, and edges that go on, are copied chunk by chunk.
    """
    w = context.writer
    condition, cut = _condition(copy, context)

    def rows() -> None:
        with spread(context, thread, size, copy.count, unroll=False):
            _place_row(copy, context, cut)
            if cut:
                _inside(copy, context)
                _copied(copy, context, barrier)
                _outside(copy, context)
            else:
                w.add(_whole_row(copy, barrier))

    def border() -> None:
        emit_border(copy, context, thread, size, unroll=False)

    one_of(w, [(condition, rows)], border)
    w.add(Fence("proxy", "the copy engine may be the next to write there"))


def emit_rows_by_warp(
    copy: Copy, context: KernelContext, barrier: Expr, limit: Expr | None
) -> None:
    """The same by one warp, for at most 32 rows, of which only the first ``limit`` are there: a
    lane asks for each; where much of one lies outside of the source, all of them write that.
    """
    w = context.writer
    condition, cut = _condition(copy, context)
    count = number(copy.count)

    def rows() -> None:
        w.add(Let("int", ("rows",), (count if limit is None else least(count, limit),)))
        if cut:
            w.add(State("bool", ("part",), (FALSE,)))
        with w.when(less("lane", "rows")):
            w.add(Let("int", ("i",), (LANE,)))
            _place_row(copy, context, cut)
            if cut:
                _inside(copy, context)
                _copied(copy, context, barrier)
                w.add(Assign("part", less(minus("whole", "first"), _mostly(copy))))
                with w.when(negated(flag("part"))):
                    _outside(copy, context)
            else:
                w.add(_whole_row(copy, barrier))
        if cut:
            _rest_by_warp(copy, context)

    def border() -> None:
        emit_border(copy, context, LANE, 32, unroll=False, limit=limit)

    one_of(w, [(condition, rows)], border)
    w.add(Fence("proxy", "the copy engine may be the next to write there"))


def _rest_by_warp(copy: Copy, context: KernelContext) -> None:
    """What is outside of the rows of which a ``part`` is."""
    w = context.writer
    with w.loop("i", number(0), number("rows"), "rolled", also=ANY_PART):
        _place_row(copy, context, cut=True)
        _inside(copy, context)
        with w.when(at_least(minus("whole", "first"), _mostly(copy))):
            w.add(Leave("iteration"))
        _outside(copy, context, 32)


def _condition(copy: Copy, context: KernelContext) -> tuple[Expr, bool]:
    """When rows go by the copy engine, and whether they are cut where the source ends."""
    source = context.storages[copy.source.buffer].param
    ends = source is not None and not copy.carries(source)
    if ends and copy.predicate is None and copy.ends(0):
        return context.aligned_flag(copy.source.buffer, copy.per), True
    return whole_inside(copy, context) or FALSE, False


def _mostly(copy: Copy) -> int:
    """Elements of a row, with which few are missing: one lane writes those, beside others."""
    return (copy.chunks - FEW_CHUNKS) * copy.per


def _place_row(copy: Copy, context: KernelContext, cut: bool) -> None:
    values: dict[str, Expr] = {copy.x.var.name: IntImm(0)}
    values |= decode_rows(copy, context, number("i"))
    addresses(copy, context, values, inside=not cut)


def _whole_row(copy: Copy, barrier: Expr) -> CopyRun:
    return CopyRun(TO, number("from"), number(copy.chunks * CHUNK_BYTES), barrier)


def _copied(copy: Copy, context: KernelContext, barrier: Expr) -> None:
    bytes_ = times(minus("whole", "first"), copy.source.type.bytes)
    with context.writer.when(greater("whole", "first")):
        to, source = address("to", number("first")), plus("from", "first")
        context.writer.add(CopyRun(to, source, bytes_, barrier))


def _inside(copy: Copy, context: KernelContext) -> None:
    """Declare where the part of a row begins and ends that lies inside its source, and where the
    last whole chunk of it does.
    """
    w, source = context.writer, context.storages[copy.source.buffer]
    assert source.param is not None
    extents = [context.scalar.number(d.extent) for d in source.param.dims]
    length, per = copy.chunks * copy.per, copy.per
    inside = [below(f"c{n}", e) for n, e in enumerate(extents) if n]
    last = least(minus(extents[0], "c0"), length)
    last = chosen(both(*inside), last, 0) if inside else last
    first = least(most(minus(0, "c0"), 0), length)
    chunks = quotient(minus("last", "first"), per)
    w.add(Let("int", ("first",), (first,)))
    w.add(Let("int", ("last",), (most(last, "first"),)))
    w.add(Let("int", ("whole",), (plus("first", times(chunks, per)),)))


def _outside(copy: Copy, context: KernelContext, lanes: int = 1) -> None:
    """What is not whole chunks of the source, and zeros; spread over so many ``lanes``."""
    w, length, per = context.writer, copy.chunks * copy.per, copy.per
    start = times(LANE, per) if lanes > 1 else number(0)
    with w.loop("x", start, number(length), "rolled", number(per * lanes)):
        if lanes == 1:
            with w.when(equal("x", "first")):
                w.store(number("x"), number("whole"))
            with w.when(at_least("x", length)):
                w.add(Leave("loop"))
        else:
            with w.when(both(at_least("x", "first"), less("x", "whole"))):
                w.add(Leave("iteration"))
        with w.when(either(less("x", "first"), at_least("x", "last"))):
            w.add(StoreWords(View("to", index=number("x")), (number(0),) * (CHUNK_BYTES // 4)))
            w.add(Leave("iteration"))
        with w.loop("e", number(0), number(per), "unrolled"):
            kind, at = element_type(copy, context), plus("x", "e")
            w.add(CopyElement("to", kind, at, "from", at, less(at, "last")))
