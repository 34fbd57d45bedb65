"""Which form a staged copy has: decided here, once, and written by the module that has the form.

Rows by the copy engine (``copies.bulk``), where a barrier waits for them; rows that start anywhere
as shifted chunks (``shifted_copies``), where threads have registers for these; else chunks of 16
bytes and single elements (``copies.code``). Before that a pipeline asks for boxes of tensor maps
(``warpgroups.boxes``): what comes here is what threads do.
"""

from __future__ import annotations

from collections.abc import Container

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.copies.bulk import emit_rows, emit_rows_by_warp, takes_rows
from selector.gpu.codegen.copies.code import UNROLL_COPIES, Way, emit_copy, emit_part
from selector.gpu.codegen.copies.recognise import Copy
from selector.gpu.codegen.warpgroups.shifted_copies import emit_shifted, starts_inside
from selector.ir.nodes import Expr
from selector.lowering.predicates import TRUE


@dataclass(frozen=True, slots=True)
class Shifting:
    """How rows that start anywhere may be copied: so many chunks of a thread are on their way at
    once, where ``counted`` variables are never negative. ``boxed``: rows that are aligned come as
    boxes anyway; ``few``: threads have registers for one chunk.
    """

    together: int
    counted: Container[str]
    boxed: bool
    few: bool


def write_copy(
    copy: Copy,
    context: KernelContext,
    thread: Expr,
    size: int,
    *,
    full: Expr | None = None,
    unroll: int = UNROLL_COPIES,
    shifting: Shifting | None = None,
) -> None:
    """Write a copy, spread over ``size`` threads numbered ``thread``, which have yet to arrive at
    the barrier ``full``; None: the engine brings nothing. Up to ``unroll`` steps are unrolled.
    """
    if full is not None and takes_rows(copy, context):
        emit_rows(copy, context, thread, size, full)
        return
    between: Way | None = None
    if shifting is not None:
        starts, most = starts_inside(copy, context, shifting.counted), shifting.together
        if starts == TRUE and shifting.boxed:
            emit_shifted(copy, context, thread, size, 1 if shifting.few else most)
            return
        if starts is not None and not shifting.few:
            inside = context.condition(starts)
            between = inside, lambda: emit_shifted(copy, context, thread, size, most)
    emit_copy(copy, context, thread, size, unroll, between)


def write_part(copy: Copy, context: KernelContext, full: Expr, limit: Expr | None) -> None:
    """Write at most 32 rows of a copy, of which only the first ``limit`` are there, by one warp."""
    if takes_rows(copy, context):
        emit_rows_by_warp(copy, context, full, limit)
    else:
        emit_part(copy, context, limit)
