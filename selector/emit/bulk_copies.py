"""Staged copies by the copy engine, row by row (sm_90).

A row of a staged copy is one instruction of one thread instead of a chunk for each lane; where only
a part of it lies inside the source, that part is, and the thread writes the zeros around it. The
bytes are reported to the barrier of the slot that the copy fills.
"""

from __future__ import annotations

from math import prod

from selector.emit.context import KernelContext
from selector.emit.copies import CHUNK_BYTES, Copy
from selector.emit.copy_code import (
    addresses,
    decode_rows,
    element_type,
    emit_border,
    provably_aligned,
    spread,
    whole_inside,
)
from selector.gpu.ir.nodes import Fence
from selector.ir.nodes import Expr, IntImm

FEW_CHUNKS = 6
ENGINE_BYTES = 256  # of a row, for which one instruction is less than a chunk for each lane


def takes_rows(copy: Copy, context: KernelContext) -> bool:
    """Whether the copy engine can take the rows: long ones that start at multiples of 16 bytes."""
    to = context.storages[copy.to]
    whole = copy.rounded or copy.length % copy.per == 0
    plain = to.strips is None and to.panels is None and provably_aligned(copy)
    return whole and plain and copy.chunks * CHUNK_BYTES >= ENGINE_BYTES


def emit_rows(copy: Copy, context: KernelContext, rank: str, size: int, barrier: str) -> None:
    """Write a copy that ``takes_rows``; the threads have yet to arrive at this phase of
    ``barrier``. Rows at other addresses, and edges that go on, are copied chunk by chunk.
    """
    w = context.writer
    condition, cut = _condition(copy, context)
    with w.block(f"if ({condition})"), spread(context, rank, size, _rows(copy), unroll=False):
        _place_row(copy, context)
        if cut:
            _inside(copy, context)
            w.line(f"if (whole > first) {_copied(copy, barrier)}")
            _outside(copy, context)
        else:
            w.line(_whole_row(copy, barrier))
    with w.block("else"):
        emit_border(copy, context, rank, size, unroll=False)
    w.add(Fence("proxy", "the copy engine may be the next to write there"))


def emit_rows_by_warp(copy: Copy, context: KernelContext, barrier: str, limit: str = "") -> None:
    """The same by one warp, for at most 32 rows, of which only the first ``limit`` are there: a
    lane asks for each; where much of one lies outside of the source, all of them write that.
    """
    w = context.writer
    condition, cut = _condition(copy, context)
    rows = f"min({_rows(copy)}, {limit})" if limit else str(_rows(copy))
    with w.block(f"if ({condition})"):
        w.line(f"const int rows = {rows};")
        if cut:
            w.line("bool part = false;")
        with w.block("if (lane < rows)"):
            w.line("const int i = lane;")
            _place_row(copy, context)
            if cut:
                _inside(copy, context)
                w.line(f"if (whole > first) {_copied(copy, barrier)}")
                w.line(f"part = whole - first < {_mostly(copy)};")
                with w.block("if (!part)"):
                    _outside(copy, context)
            else:
                w.line(_whole_row(copy, barrier))
        if cut:
            head = "for (int i = 0; __any_sync(0xffffffffu, part) && i < rows; ++i)"
            w.line("#pragma unroll 1")
            with w.block(head):
                _place_row(copy, context)
                _inside(copy, context)
                w.line(f"if (whole - first >= {_mostly(copy)}) continue;")
                _outside(copy, context, "lane", 32)
    with w.block("else"):
        emit_border(copy, context, "lane", 32, unroll=False, limit=limit)
    w.add(Fence("proxy", "the copy engine may be the next to write there"))


def _condition(copy: Copy, context: KernelContext) -> tuple[str, bool]:
    """When rows go by the copy engine, and whether they are cut where the source ends."""
    source = context.storages[copy.source.buffer].param
    ends = source is not None and not copy.carries(source)
    if ends and copy.predicate is None and not copy.clamped[0]:
        return context.aligned_flag(copy.source.buffer, copy.per), True
    return whole_inside(copy, context) or "false", False


def _mostly(copy: Copy) -> int:
    """Elements of a row, with which few are missing: one lane writes those, beside others."""
    return (copy.chunks - FEW_CHUNKS) * copy.per


def _rows(copy: Copy) -> int:
    return prod(d.count or 1 for d in copy.rows)


def _place_row(copy: Copy, context: KernelContext) -> None:
    values: dict[str, Expr] = {copy.x.var.name: IntImm(0)}
    addresses(copy, context, values | decode_rows(copy, context, "i"))


def _whole_row(copy: Copy, barrier: str) -> str:
    return f"bulk_copy(shared_address(to), from, {copy.chunks * CHUNK_BYTES}, {barrier});"


def _copied(copy: Copy, barrier: str) -> str:
    bytes_ = f"(whole - first) * {copy.source.type.bytes}"
    return f"bulk_copy(shared_address(to + first), from + first, {bytes_}, {barrier});"


def _inside(copy: Copy, context: KernelContext) -> None:
    """Declare where the part of a row begins and ends that lies inside its source, and where the
    last whole chunk of it does.
    """
    w, source = context.writer, context.storages[copy.source.buffer]
    assert source.param is not None
    extents = [context.scalar.index(d.extent) for d in source.param.dims]
    length, per = copy.chunks * copy.per, copy.per
    inside = " && ".join(f"(u32)c{n} < (u32){e}" for n, e in enumerate(extents) if n)
    last = f"min({extents[0]} - c0, {length})"
    w.line(f"const int first = min(max(-c0, 0), {length});")
    w.line(f"const int last = max({f'{inside} ? {last} : 0' if inside else last}, first);")
    w.line(f"const int whole = first + (last - first) / {per} * {per};")


def _outside(copy: Copy, context: KernelContext, rank: str = "", size: int = 1) -> None:
    """What is not whole chunks of the source, and zeros; spread over ``size`` threads."""
    w, length, per = context.writer, copy.chunks * copy.per, copy.per
    zero = f"{element_type(copy, context)}{{}}"
    start = f"{rank} * {per}" if rank else "0"
    w.line("#pragma unroll 1")
    with w.block(f"for (int x = {start}; x < {length}; x += {per * size})"):
        if size == 1:
            w.line("if (x == first) x = whole;")
            w.line(f"if (x >= {length}) break;")
        else:
            w.line("if (x >= first && x < whole) continue;")
        w.line(
            "if (x < first || x >= last) { *(uint4*)(to + x) = make_uint4(0, 0, 0, 0); continue; }"
        )
        w.line("#pragma unroll")
        w.line(f"for (int e = 0; e < {per}; ++e) to[x + e] = x + e < last ? from[x + e] : {zero};")
