"""What the threads of a row have found of it, joined: ``p[0] = row.max(p[0], threads)``
(``lowering.joined_rows``).

The lanes of a warp join by shuffles, after which all have the result. Of a row of several warps
each leaves its own in shared memory, and behind a barrier every warp joins those of all. Of a row
of several blocks each stores its own in the shared memory of all of them, and behind a barrier of
the cluster every warp joins them.
"""

from __future__ import annotations

from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.legal import computed
from selector.gpu.codegen.scalars.storage import c_type
from selector.gpu.ir.expressions import (
    THREAD,
    element,
    equal,
    less,
    masked,
    of_lane,
    plus,
    pointer,
    shifted,
    signed,
    times,
)
from selector.gpu.ir.memory import StoreThere
from selector.gpu.ir.nodes import State, Sync
from selector.ir.nodes import BinaryOp, Call, Expr, IntImm, Stmt, Store, Var
from selector.ir.traverse import walk_all_exprs
from selector.ir.types import INT32
from selector.lowering.joined_rows import BLOCKS, ROW_JOIN, WARPS
from selector.lowering.row_folds import WARP


def holds_row_join(s: Stmt) -> bool:
    """Whether threads of a statement join what they have found."""
    return any(isinstance(e, Call) and e.name.startswith(ROW_JOIN) for e in walk_all_exprs(s))


def join_row(s: Store, context: KernelContext) -> bool:
    """Write a statement that is such a join; whether it is one."""
    match s.value:
        case Call(_, name, (own, IntImm(threads))) if name.startswith(ROW_JOIN):
            op = BinaryOp[name.removeprefix(ROW_JOIN)]
        case _:
            return False
    w, t = context.writer, own.type
    total = Var(context.names.fresh("total"), t)
    with w.block():
        w.add(State(c_type(t), (total.name,), (context.scalar.legal(own),)))
        _shuffled(total, op, min(threads, WARP), context)
        blocks = context.block.cluster
        threads //= blocks
        warps = threads // WARP
        if warps > 1:
            base = pointer(context.storages[s.buffer + WARPS].base)
            lane, warp = masked(THREAD, WARP - 1), shifted(THREAD, WARP.bit_length() - 1)
            with w.when(equal(lane, 0)):
                w.store(element(t, base, signed(warp)), total)
            w.add(Sync("block"))
            first = times(shifted(THREAD, threads.bit_length() - 1), warps)
            w.store(total, element(t, base, signed(plus(first, masked(THREAD, warps - 1)))))
            _shuffled(total, op, warps, context)
        if blocks > 1:
            _met(total, op, s.buffer, context)
        w.store(context.scalar.access(context.storages[s.buffer], s.index), total)
    return True


def _met(total: Var, op: BinaryOp, buffer: str, context: KernelContext) -> None:
    """Join what the blocks of a row have found: each tells all of them."""
    w, blocks = context.writer, context.block.cluster
    base = pointer(context.storages[buffer + BLOCKS].base)
    rank = Call(INT32, "cluster_rank", ())
    with w.when(less(signed(THREAD), blocks)):
        w.add(StoreThere(element(total.type, base, rank), total, THREAD))
    w.add(Sync("cluster_data"))
    w.store(total, element(total.type, base, signed(masked(THREAD, blocks - 1))))
    _shuffled(total, op, blocks, context)


def _shuffled(total: Expr, op: BinaryOp, lanes: int, context: KernelContext) -> None:
    """Join the numbers of so many lanes."""
    step = 1
    while step < lanes:
        joined = computed(op, total, of_lane(total, step), total.type)
        context.writer.store(total, joined)
        step *= 2
