"""Read-outs that reduce the rows of an accumulator: sums, largest elements, in registers.

``out[m] = g(reduce over n of f(tile.read(accumulator)[n, m]))``: a lane holds two neighbours of two
rows of every m16n8 tile, and the four lanes of a row (PTX ISA, "Matrix Fragments for
mma.m16n8k16") have neighbouring numbers. Each lane reduces what it holds of a row, two shuffles
join the four, and one of them stores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from selector.diagnostics import EmitError
from selector.emit.context import KernelContext, Region
from selector.emit.scalar import c_type
from selector.emit.threads import COMBINE
from selector.ir.lanes import Digits, lane
from selector.ir.nodes import Broadcast, Call, Expr, Load, Store, Var, VectorReduce
from selector.ir.traverse import map_expr, walk_expr

ElementText = Callable[[Expr, Region, Digits], Callable[[tuple[int, int, int]], str]]
Covered = list[tuple[Region, Digits]]


@dataclass(frozen=True, slots=True)
class RowSum:
    """A reduction of a read-out: its node, and the accumulator load that gives its order."""

    node: VectorReduce
    source: Load


def row_sums(s: Store) -> list[RowSum]:
    """The reductions over accumulators in a read-out, in the order of the expression."""
    found: list[RowSum] = []
    for e in walk_expr(s.value):
        if not isinstance(e, VectorReduce):
            continue
        reads = [x for x in walk_expr(e.value) if isinstance(x, Call) and x.name == "tile.read"]
        if reads and isinstance(reads[0].args[0], Load):
            found.append(RowSum(e, reads[0].args[0]))
    return found


class RowSumCode:
    """Writes one read-out with reductions. ``element`` gives the text of an element of a value."""

    def __init__(self, context: KernelContext, element: ElementText) -> None:
        self.context = context
        self.element = element

    def write(self, s: Store, sums: list[RowSum], covered: Covered) -> None:
        """The whole statement; ``covered`` are the blocks that every one of the sums reads."""
        for region, outer in covered:
            self._check(s, sums, region, len(covered))
            with self.context.writer.block(""):
                texts = [self.element(x.node.value, region, outer) for x in sums]
                for i in range(region.tiles[0]):
                    for half in (0, 2):
                        self._row(s, sums, texts, region, outer, i, half)

    def _check(self, s: Store, sums: list[RowSum], region: Region, blocks: int) -> None:
        buffer = sums[0].source.buffer
        for x in sums:
            if region.swapped or x.node.lanes != region.m * blocks:
                raise EmitError(
                    f"a reduction over `{buffer}` is not one over the columns of its tiles",
                    f"its tiles are {region.m} rows of {region.n} columns, and it leaves "
                    f"{x.node.lanes} results",
                    "reduce along the dimension that is innermost in the accumulator, whole tiles",
                )
            if x.node.type.element.bits != 32:
                raise EmitError(f"a reduction over `{buffer}` is not one of 32-bit values")
        if any(x.source.index != sums[0].source.index for x in sums):
            raise EmitError(f"`{s.buffer}` is made of reductions of several accumulators")

    def _row(
        self,
        s: Store,
        sums: list[RowSum],
        texts: list[Callable[[tuple[int, int, int]], str]],
        region: Region,
        outer: Digits,
        i: int,
        half: int,
    ) -> None:
        """Rows ``rows * i + 4 * half + g`` of a block."""
        w, names = self.context.writer, self.context.names
        totals: dict[VectorReduce, Expr] = {}
        with w.block(""):
            for x, text in zip(sums, texts, strict=True):
                total = names.fresh("total")
                self._reduce(x, text, total, region, i, half)
                totals[x.node] = Broadcast(
                    Var(names.verbatim(total), x.node.type.element), x.node.lanes
                )
            m = Var("$m")
            names.bind("$m", f"(g + {region.rows * i + 4 * half})" if i or half else "g")
            digits = ((m, region.m), *outer)
            value = lane(_with_totals(s.value, totals), digits)
            tests = ["q == 0"]
            if s.predicate is not None:
                p = s.predicate
                tests.append(self.context.scalar.expr(p if p.type.lanes == 1 else lane(p, digits)))
            target = self.context.scalar.address(
                self.context.storages[s.buffer], lane(s.index, digits)
            )
            w.line(f"if ({' && '.join(tests)}) {target} = {self.context.scalar.expr(value)};")

    def _reduce(
        self,
        x: RowSum,
        text: Callable[[tuple[int, int, int]], str],
        total: str,
        region: Region,
        i: int,
        half: int,
    ) -> None:
        """Declare ``total``: what the four lanes of a row make of its elements."""
        w, combine = self.context.writer, COMBINE[x.node.op]
        elements = [text((i, j, e)) for j in range(region.tiles[1]) for e in (half, half + 1)]
        w.line(f"{c_type(x.node.type.element)} {total} = {elements[0]};")
        for element in elements[1:]:
            w.line(f"{total} = {combine.format(total, element)};")
        for step in (1, 2):
            other = f"__shfl_xor_sync(0xffffffffu, {total}, {step})"
            w.line(f"{total} = {combine.format(total, other)};")


def _with_totals(e: Expr, totals: dict[VectorReduce, Expr]) -> Expr:
    if isinstance(e, VectorReduce) and e in totals:
        return totals[e]
    return map_expr(e, lambda x: _with_totals(x, totals))
