"""Clusters: neighbours along the innermost block loop bring each other what they all read.

Each block asks the copy engine for its part of a box that is the same for all of them, and has it
written to the same place in the shared memory of every one (multicast); the bytes arrive at the
same barrier of each. A slot is therefore free when the groups of all blocks have said so. Boxes of
which the blocks need different ones are each block's own.

Source: PTX ISA, ``cp.async.bulk.tensor`` (.multicast::cluster), ``mapa``, ``barrier.cluster``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from selector.emit.context import KernelContext
from selector.emit.warpgroups.panels import GROUP_ROWS
from selector.ir.affine import Affine
from selector.ir.nodes import Binary, BinaryOp, Expr, IntImm, Var
from selector.ir.traverse import free_vars, map_expr

if TYPE_CHECKING:
    from selector.emit.warpgroups.boxes import Boxes

RANK = "rank"  # of a block in its cluster


def same_in_cluster(exprs: Iterable[Expr], context: KernelContext) -> bool:
    """Whether values are the same for all blocks of a cluster, whose first one is at a multiple of
    its size: the number of a block occurs in them only divided by multiples of that.
    """
    x, size = context.neighbours, context.cluster

    def without(e: Expr) -> Expr:
        match e:
            case Binary(BinaryOp.DIV, Var(name, _), IntImm(n, _)) if name == x and n % size == 0:
                return IntImm(0)
            case _:
                return map_expr(e, without)

    return all(x not in free_vars(without(e)) for e in exprs)


def can_share(boxes: Boxes, context: KernelContext) -> bool:
    """Whether all blocks of a cluster want the same, and it has as many equal parts."""
    rows = boxes.rows // context.cluster
    parts = boxes.panels.count % context.cluster == 0 or (
        boxes.rows % context.cluster == 0
        and rows % boxes.box_rows == 0
        and rows * boxes.inner % GROUP_ROWS == 0
    )
    return parts and same_in_cluster(boxes.first, context)


def write_share(boxes: Boxes, context: KernelContext, barrier: str) -> None:
    """This block's part, for all of them."""
    w, scalar, p, size = context.writer, context.scalar, boxes.panels, context.cluster
    whole = p.count % size == 0  # panels, or else rows of every panel
    columns = p.count // size if whole else p.count
    rows = boxes.rows if whole else boxes.rows // size
    rank = Affine.of(Var(context.names.verbatim(RANK)))
    pointer = context.storages[boxes.to].pointer
    for number in range(columns):
        for step in range(0, rows, boxes.box_rows):
            panel = rank * columns + number if whole else Affine.of(IntImm(number))
            row = Affine.of(IntImm(step)) if whole else rank * rows + step
            at = [*boxes.first]
            at[0] = (Affine.of(at[0]) + panel * p.width).to_expr()
            at[boxes.along] = (Affine.of(at[boxes.along]) + row).to_expr()
            offset = scalar.index(
                (panel * p.panel_bytes + row * (boxes.inner * p.row_bytes)).to_expr()
            )
            places = ", ".join(scalar.index(c) for c in at)
            w.line(
                f"tensor_share{len(at)}(shared_address({pointer}) + {offset}, &{boxes.map}, "
                f"{places}, {barrier}, {(1 << size) - 1});"
            )
