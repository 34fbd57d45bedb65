"""Clusters: neighbours along the innermost block loop bring each other what they all read.

Each block asks the copy engine for its part of a box that is the same for all of them, and has it
written to the same place in the shared memory of every one (multicast); the bytes arrive at the
same barrier of each. A stage is therefore free when the groups of all blocks have said so. Boxes of
which the blocks need different ones are each block's own.

Source: PTX ISA, ``cp.async.bulk.tensor`` (.multicast::cluster), ``mapa``, ``barrier.cluster``.
"""

from __future__ import annotations

from collections.abc import Iterable

from selector.diagnostics import ScheduleError
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.pipelines.pipeline import Pipeline
from selector.gpu.codegen.warpgroups.boxes import RANK, READY, Boxes, same_in_cluster
from selector.gpu.ir.expressions import (
    THREAD_OF_GROUP,
    Number,
    both,
    chosen,
    flag,
    least,
    less,
    minus,
)
from selector.gpu.ir.layouts import GROUP_ROWS
from selector.gpu.ir.nodes import Let
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Binary, BinaryOp, Call, Expr, For, IntImm
from selector.ir.simplify import mul
from selector.ir.traverse import free_vars
from selector.ir.types import INT32
from selector.lowering.kernels import GridLoop

EARLY_STAGES = 2  # before the blocks have met, each brings everything for itself


def whole_clusters(extent: Expr, context: KernelContext) -> Expr:
    """Blocks along the innermost loop, rounded up to whole clusters; the extent itself where it is
    known to be a multiple.
    """
    size = context.block.cluster
    if to_affine(extent).divided_by(size) is not None:
        return extent
    above = (Affine.of(extent) + (size - 1)).to_expr()
    return mul(Binary(BinaryOp.DIV, above, IntImm(size)), IntImm(size))


def clamped(number: Expr, loop: GridLoop, context: KernelContext) -> Expr:
    """The number of a block along the innermost loop: who is too many does what the last does."""
    if whole_clusters(loop.extent, context) == loop.extent:
        return number
    return least(number, minus(context.host_value(loop.extent), 1))


def from_the_end(number: Expr, loop: GridLoop, context: KernelContext) -> Expr:
    """The number of a block along a loop whose last blocks go first."""
    return minus(minus(context.host_value(loop.extent), 1), number)


class Sharing:
    """What the blocks of a cluster bring each other of the boxes of a pipeline."""

    def __init__(self, boxes: list[Boxes], loop: For, context: KernelContext) -> None:
        alike = same_in_cluster((loop.min, loop.extent), context)
        if context.block.persistent:
            alike = alike and free_vars(loop.extent) <= context.host.sizes
        self.context = context
        self.shared = [b for b in boxes if alike and _can_share(b, context)]
        if not self.shared:
            raise ScheduleError(
                f"the blocks of `{context.name}` that form a cluster have nothing to share",
                "no operand is staged by the copy engine and the same for "
                f"{context.block.cluster} neighbours along `{context.block.neighbours}`",
                "make the loop along which an operand stays the same the innermost block loop",
            )
        context.writer.add(Let("int", (RANK,), (Call(INT32, "cluster_rank", ()),)))

    def releases(self) -> Expr:
        """Arrivals that free a stage: one of each group of all blocks."""
        c = self.context
        return chosen(flag(READY), c.block.warps * c.block.cluster, c.block.warps)

    def release(self, pipeline: Pipeline, free: Expr | None, used: Expr | None, last: Expr) -> None:
        """A group does not need a stage any more, if it has ``used`` it, which all blocks have to
        know. ``last`` counts the stages that the group has used before. Nobody waits for the last
        of all: said of those, it could meet a block that is not there any more.
        """
        w, size = self.context.writer, self.context.block.cluster
        tell = less(THREAD_OF_GROUP, chosen(flag(READY), size, 1))
        with w.when(both(used, less(last, "refilled"), tell)):
            pipeline.release(free=free, block=chosen(flag(READY), THREAD_OF_GROUP, RANK))


def ask(
    boxes: Iterable[Boxes],
    pipeline: Pipeline,
    context: KernelContext,
    sharing: Sharing | None = None,
    slot: Number | None = None,
) -> None:
    """All boxes of a stage, by one thread; of what blocks share, this one's part."""
    pipeline.expect(sum(b.bytes for b in boxes), slot)
    for b in boxes:
        shared = sharing is not None and b in sharing.shared
        b.write(context, pipeline.filled(slot), context.block.cluster if shared else 1)


def _can_share(boxes: Boxes, context: KernelContext) -> bool:
    """Whether all blocks of a cluster want the same, and it has as many equal parts."""
    rows = boxes.rows // context.block.cluster
    parts = boxes.panels.count % context.block.cluster == 0 or (
        boxes.rows % context.block.cluster == 0
        and rows % boxes.box_rows == 0
        and rows * boxes.inner % GROUP_ROWS == 0
    )
    return parts and same_in_cluster(boxes.first, context)
