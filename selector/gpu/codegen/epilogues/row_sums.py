"""Read-outs that reduce the rows of an accumulator: sums, largest elements, in registers.

``out[m] = g(reduce over n of f(tile.read(accumulator)[n, m]))``: a lane holds two neighbours of two
rows of every m16n8 tile, and the four lanes of a row have neighbouring numbers. Each lane reduces
what it holds of a row, two shuffles join the four, and one of them stores.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator

from selector.dataclass import dataclass
from selector.diagnostics import EmitError
from selector.gpu.codegen.context import KernelContext, thread_part
from selector.gpu.codegen.epilogues.elements import ROW, ElementScalar
from selector.gpu.codegen.epilogues.regions import Element, Region
from selector.gpu.codegen.epilogues.row_registers import with_rows
from selector.gpu.codegen.scalars.legal import computed
from selector.gpu.codegen.scalars.storage import c_type
from selector.gpu.ir.expressions import both, equal, of_lane
from selector.gpu.ir.lane_maps import PAIRS
from selector.gpu.ir.nodes import State
from selector.ir.affine import to_affine
from selector.ir.lanes import Digits, lane
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Call,
    Expr,
    FloatImm,
    Load,
    Stmt,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.traverse import map_expr, replaced_all, walk_expr

CHAINS = 4  # of a long reduction: an instruction takes as many cycles to be there for the next

Covered = list[tuple[Region, Digits]]


@dataclass(frozen=True, slots=True)
class RowSum:
    """A reduction of a read-out: its node, and the accumulator load that gives its order."""

    node: VectorReduce
    source: Load


Elements = Callable[[Element], Expr]
ElementsOf = Callable[[RowSum, Region, Digits], Elements]
Term = tuple[RowSum, Elements, Region]
Part = tuple[Store, list[RowSum], Covered]


def row_sums(s: Store, tiles: Container[str] = ()) -> list[RowSum]:
    """The reductions over accumulators in a read-out, or over ``tiles`` in registers, in the order
    of the expression.
    """
    found: list[RowSum] = []
    for e in walk_expr(s.value):
        if not isinstance(e, VectorReduce):
            continue
        reads = [x for x in walk_expr(e.value) if isinstance(x, Call) and x.name == "tile.read"]
        if reads and isinstance(reads[0].args[0], Load):
            found.append(RowSum(e, reads[0].args[0]))
            continue
        kept = [x for x in walk_expr(e.value) if isinstance(x, Load) and x.buffer in tiles]
        if kept:
            found.append(RowSum(e, kept[0]))
    return found


def joined_sums(
    stmts: Iterable[Stmt], context: KernelContext
) -> Iterator[Stmt | tuple[Store, ...]]:
    """Statements in order; those that take one sum of rows further as one: lanes join once."""
    run: list[Store] = []
    for s in stmts:
        further = s if isinstance(s, Store) and _takes_further(s, context) else None
        if further is not None and run and _same_sum(run[-1], further):
            run.append(further)
            continue
        yield from [tuple(run)] if len(run) > 1 else run
        run = [] if further is None else [further]
        if further is None:
            yield s
    yield from [tuple(run)] if len(run) > 1 else run


def _takes_further(s: Store, context: KernelContext) -> bool:
    """Whether a statement is ``t = t op c*reduce(x)``, t being in registers and c above 0."""
    sums = row_sums(s, context.registers.tiles) if s.buffer in context.registers.rows else []
    match s.value:
        case Binary(op, a, b) if len(sums) == 1 and s.predicate is None:
            pass
        case _:
            return False
    own = [isinstance(x, Load) and (x.buffer, x.index) == (s.buffer, s.index) for x in (a, b)]
    term = b if own[0] else a
    if not any(own) or sums[0].node.op.joins is not op:
        return False
    match term:
        case VectorReduce():
            return True
        case Binary(BinaryOp.MUL, Broadcast(FloatImm(factor)), VectorReduce()):
            return op is not BinaryOp.ADD and factor > 0
        case _:
            return False


def _same_sum(a: Store, b: Store) -> bool:
    return (a.buffer, a.index, _shape(a.value)) == (b.buffer, b.index, _shape(b.value))


def _shape(e: Expr) -> Expr:
    """A value without what is reduced."""
    return Var(e.op.value, e.type) if isinstance(e, VectorReduce) else map_expr(e, _shape)


class RowSumCode:
    """Writes read-outs with reductions. ``elements`` gives those of what a reduction reduces."""

    def __init__(self, context: KernelContext, elements: ElementsOf) -> None:
        self.context = context
        self.elements = elements

    def write(self, parts: list[Part]) -> None:
        """One statement, or several that take the same sums further; the blocks of every one are
        those that its reductions read.
        """
        covered = parts[0][2]
        for number, (region, outer) in enumerate(covered):
            for s, sums, blocks in parts:
                self._check(s, sums, region, len(blocks))
            with self.context.writer.block():
                terms = [
                    [
                        (x, self.elements(x, *block), block[0])
                        for x in sums
                        for block in (blocks[number],)
                    ]
                    for _, sums, blocks in parts
                ]
                for i in range(region.tiles[0]):
                    for half in PAIRS:
                        self._row(parts[-1][0], terms, region, outer, i, half)

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
        terms: list[list[Term]],
        region: Region,
        outer: Digits,
        i: int,
        half: int,
    ) -> None:
        """The rows of a block whose elements begin in register ``half`` of tiles ``i``."""
        w, names = self.context.writer, self.context.names
        scalar = ElementScalar(self.context, region).at((i, 0, half))
        totals: dict[VectorReduce, Expr] = {}
        with w.block():
            for parts in zip(*terms, strict=True):
                total, node = names.fresh("total"), parts[-1][0].node
                elements = [
                    element((i, j, e))
                    for _, element, block in parts
                    for j in range(block.tiles[1])
                    for e in (half, half + 1)
                ]
                self._reduce(node, elements, total)
                totals[node] = Broadcast(names.variable(total, node.type.element), node.lanes)
            digits = ((ROW, region.m), *outer)
            value = with_rows(lane(replaced_all(s.value, totals), digits), scalar)
            kept = self.context.registers.rows.get(s.buffer)
            if kept is not None:
                first = to_affine(lane(s.index, digits)).rest(ROW)
                start = (first - thread_part(first, self.context)).constant
                assert start is not None
                w.store(kept.at(start + scalar.here.down, value.type), scalar.value(value))
                return
            p, test = s.predicate, equal("q", 0)
            if p is not None:
                test = both(test, scalar.value(p if p.type.lanes == 1 else lane(p, digits)))
            place = scalar.access(self.context.storages[s.buffer], lane(s.index, digits))
            target = scalar.filled(place)
            with w.when(test):
                w.store(target, scalar.value(value))

    def _reduce(self, node: VectorReduce, elements: list[Expr], total: str) -> None:
        """Declare ``total``: what the four lanes of a row make of its elements."""
        w, t, join = self.context.writer, node.type.element, node.op.joins
        chains = CHAINS if len(elements) >= 4 * CHAINS else 1
        names = [total, *(self.context.names.fresh("total") for _ in range(chains - 1))]
        totals = [Var(name, t) for name in names]
        for name, element in zip(names, elements, strict=False):
            w.add(State(c_type(t), (name,), (element,)))
        for n, element in enumerate(elements[chains:]):
            one = totals[n % chains]
            w.store(one, computed(join, one, element, t))
        while len(totals) > 1:
            for one, other in zip(totals, totals[len(totals) // 2 :], strict=False):
                w.store(one, computed(join, one, other, t))
            totals = totals[: len(totals) // 2]
        (one,) = totals
        for step in (1, 2):
            w.store(one, computed(join, one, of_lane(one, step), t))
