"""Which blocks of the grid a block does the work of, one after the other: they are numbered along
the innermost loop first, and a block of ``gridDim.x`` takes every ``gridDim.x``-th of them.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import reduce

from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.storage import c_type
from selector.gpu.codegen.warpgroups.clusters import clamped, from_the_end, whole_clusters
from selector.gpu.ir.expressions import (
    BLOCK,
    BLOCKS,
    given,
    greater,
    mixed_radix,
    moved,
    plus,
    times,
)
from selector.gpu.ir.nodes import Let
from selector.ir.nodes import Expr, LetStmt, Stmt, Var
from selector.ir.simplify import mul
from selector.ir.traverse import walk_all_exprs
from selector.lowering.kernels import GridLoop


class Turns:
    """The blocks of the grid whose work a block does. ``lets`` are bound outside of the pipelined
    loop.
    """

    def __init__(
        self, grid: tuple[GridLoop, ...], lets: tuple[LetStmt, ...], context: KernelContext
    ) -> None:
        self.grid, self.lets, self.context = grid[::-1], lets, context
        self.name = context.names.fresh("turn")
        self.extents = [loop.extent for loop in self.grid]
        self.extents[0] = whole_clusters(self.extents[0], context)
        total = self.extents[0]
        for extent in self.extents[1:]:
            total = mul(total, extent)
        self.total = given(context.host_value(total))

    @contextmanager
    def each(self, *, lets: bool = False, teams: int = 1) -> Generator[None]:
        """The loop over them, or over those of one team."""
        first, step = BLOCK, BLOCKS
        if teams > 1:
            first, step = plus(BLOCK, times("team", BLOCKS)), times(teams, BLOCKS)
        with self.context.writer.loop(self.name, first, self.total, "rolled", step):
            self.decode(lets=lets)
            yield

    def first(self) -> None:
        """Declare the variables of the first one."""
        self.context.writer.add(Let("int", (self.name,), (BLOCK,)))
        self.decode(lets=True)

    def decode(self, *, lets: bool) -> None:
        """Declare the variables of the grid's loops."""
        w, scalar, names = self.context.writer, self.context.scalar, self.context.names
        extents = (self.context.host_value(e) for e in self.extents[:-1])
        digits = mixed_radix(self.name, extents)
        for place, (loop, value) in enumerate(zip(self.grid, digits, strict=True)):
            if place == 0:
                value = clamped(value, loop, self.context)
            if loop.descending and self.context.block.cluster == 1:
                value = from_the_end(value, loop, self.context)
            value = moved(value, scalar.number(loop.min))
            w.add(Let("int", (names.get(loop.name),), (value,)))
        for let in self.lets if lets else ():
            kind = c_type(let.value.type)
            w.add(Let(kind, (names.get(let.name),), (scalar.legal(let.value),)))

    def differing(self, stmts: Sequence[Stmt]) -> Expr | None:
        """Whether what statements do is not what they do in other turns: where there are several
        blocks along the loops of the grid that they mention. None where they mention all of these,
        or what is bound around the pipeline.
        """
        mentioned = {e.name for s in stmts for e in walk_all_exprs(s) if isinstance(e, Var)}
        pairs = zip(self.grid, self.extents, strict=True)
        extents = [extent for loop, extent in pairs if loop.name in mentioned]
        if len(extents) in (0, len(self.grid)) or any(x.name in mentioned for x in self.lets):
            return None
        return greater(given(self.context.host_value(reduce(mul, extents))), 1)
