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
from selector.ir.nodes import Expr, IntImm

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
    source = context.storages[copy.source.buffer].param
    ends = source is not None and not copy.carries(source)
    cut = ends and copy.predicate is None and not copy.clamped[0]  # a row, where the source ends
    condition = context.aligned_flag(copy.source.buffer, copy.per)
    if not cut:
        condition = whole_inside(copy, context) or "false"
    rows = prod(d.count or 1 for d in copy.rows)
    with w.block(f"if ({condition})"), spread(context, rank, size, rows, unroll=False):
        values: dict[str, Expr] = {copy.x.var.name: IntImm(0)}
        addresses(copy, context, values | decode_rows(copy, context, "i"))
        if cut:
            _cut_row(copy, context, barrier)
        else:
            bytes_ = copy.chunks * CHUNK_BYTES
            w.line(f"bulk_copy(shared_address(to), from, {bytes_}, {barrier});")
    with w.block("else"):
        emit_border(copy, context, rank, size, unroll=False)
    w.line("async_fence();  // the copy engine may be the next to write there")


def _cut_row(copy: Copy, context: KernelContext, barrier: str) -> None:
    """The part of a row that lies inside its source, zeros around it."""
    w, source = context.writer, context.storages[copy.source.buffer]
    assert source.param is not None
    extents = [context.scalar.index(d.extent) for d in source.param.dims]
    length, per = copy.chunks * copy.per, copy.per
    inside = " && ".join(f"(u32)c{n} < (u32){e}" for n, e in enumerate(extents) if n)
    last = f"min({extents[0]} - c0, {length})"
    w.line(f"const int first = min(max(-c0, 0), {length});")
    w.line(f"const int last = max({f'{inside} ? {last} : 0' if inside else last}, first);")
    w.line(f"const int whole = first + (last - first) / {per} * {per};")
    bytes_ = copy.source.type.bytes
    there = f"shared_address(to + first), from + first, (whole - first) * {bytes_}, {barrier}"
    w.line(f"if (whole > first) bulk_copy({there});")
    zero = f"{element_type(copy, context)}{{}}"
    w.line("#pragma unroll 1")
    with w.block(f"for (int x = 0; x < {length}; x += {per})"):
        w.line("if (x == first) x = whole;")
        w.line(f"if (x >= {length}) break;")
        w.line(
            "if (x < first || x >= last) { *(uint4*)(to + x) = make_uint4(0, 0, 0, 0); continue; }"
        )
        w.line("#pragma unroll")
        w.line(f"for (int e = 0; e < {per}; ++e) to[x + e] = x + e < last ? from[x + e] : {zero};")
