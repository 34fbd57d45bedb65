"""Accumulators in tensor memory (tcgen05): where they lie there, the products that one thread asks
for, and how a group gets them into its registers.

What a run of accumulate statements adds up lies in tensor memory; each group loads its part and
adds it to its registers, where fills have left their values: what reads these is the same as of a
group that multiplies itself. A block has room for the sums of two runs, if 512 columns hold them.

A load gives registers as an m16n8 accumulator has them. Of instructions of 128 rows each warp has
32 rows that follow each other, of those of 64 rows it has the 16 that it has of wgmma.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby

from selector.dataclass import dataclass
from selector.diagnostics import ScheduleError, Where
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.instructions import group_record
from selector.gpu.codegen.pipelines.pipeline import Pipeline
from selector.gpu.codegen.unwritten import settled
from selector.gpu.codegen.warpgroups.products import GROUP_M, GroupEmitter, Matrix, Product
from selector.gpu.ir.expressions import (
    FIRST_LANE,
    WARP_OF_GROUP,
    mixed_radix,
    number,
    plus,
    quotient,
    remainder,
    times,
)
from selector.gpu.ir.nodes import Assign, Drain, Fence, Let, Sync
from selector.gpu.ir.products import InMemory, LoadFragment, Mma, Pin, Register
from selector.gpu.ir.tensor import (
    COLUMNS,
    LANE,
    LOADED_LANES,
    MOST_PIECES,
    PIECE,
    WARP_LANES,
    TensorTile,
)
from selector.ir.affine import Affine
from selector.ir.nodes import Expr, Stmt, Store
from selector.ir.traverse import walk_stmt
from selector.lowering.structure import in_order, thread_regions
from selector.lowering.tiles import Accumulate, as_accumulate

LEAST = 32  # columns that can be allocated
MEMORY, TILE, STAGE, BEFORE = "tensor", "tile", "stage", "before"


@dataclass(frozen=True, slots=True)
class Columns:
    """Where sums lie: ``stages`` times those of ``groups``, each of which has so many columns of an
    accumulator, from a number on.
    """

    starts: dict[str, int]
    each: int
    groups: int
    stages: int

    @property
    def allocated(self) -> int:
        """A power of two."""
        return max(LEAST, 1 << (self.stages * self.groups * self.each - 1).bit_length())

    def start(self, group: Expr) -> Expr:
        """Those of a group in the stage at hand."""
        return plus(times(STAGE, self.groups * self.each), times(group, self.each))


def columns_of(c: KernelContext) -> Columns:
    """Of a kernel; ``ScheduleError`` if tensor memory does not hold its accumulators."""
    starts: dict[str, int] = {}
    each = 0
    for name, a in c.registers.accumulators.items():
        starts[name] = each
        each += a.fragments * PIECE * GROUP_M // rows_of(c)
    if each * c.block.warps > COLUMNS:
        raise ScheduleError(
            f"the accumulators of `{c.name}` take {each * c.block.warps} columns of tensor memory",
            f"a block has {COLUMNS}, of {rows_of(c)} rows here",
            "use smaller tiles, or fewer groups",
        )
    found = Columns(starts, each, c.block.warps, 2)
    if found.allocated * c.block.persistent <= COLUMNS:  # of all blocks of a multiprocessor
        return found
    return replace(found, stages=1)


def rows_of(c: KernelContext) -> int:
    """Of an instruction."""
    return 2 * GROUP_M if c.block.tall else GROUP_M


@dataclass(frozen=True, slots=True)
class Sums:
    """A run of accumulate statements of all groups, whose loops these are, innermost first."""

    loops: tuple[tuple[str, int], ...]
    statements: tuple[Accumulate, ...]


class TensorEmitter(GroupEmitter):
    """Writes products in tensor memory for the thread that asks for them, and, in the place of a
    run's products, the loads of the groups.
    """

    version = 1

    def __init__(self, context: KernelContext, fill: Callable[[Store], None]) -> None:
        super().__init__(context, fill)
        self.columns = columns_of(context)
        stages = self.columns.stages
        self.pipeline = Pipeline(
            context, stages, full="sums", free="read", slot=STAGE, phase=BEFORE
        )
        self.loaded: list[tuple[Accumulate, ...]] = []  # runs, in the order of the text
        self.fresh: frozenset[str] = frozenset()  # accumulators whose registers hold zeros then
        self.address = 0  # in shared memory, of what the address of tensor memory is written to

    # ------------------------------------------------------------------ products

    def multiply(self, sums: Sums, how: str) -> None:
        """The products of a run; ``how`` those that are the first of their columns add to them."""
        w, total = self.context.writer, self.columns.groups
        with w.loop("part", number(0), number(total), "unrolled"):
            digits = mixed_radix("part", [extent for _, extent in sums.loops[:-1]])
            for (name, _), digit in zip(sums.loops, digits, strict=True):
                w.add(Let("int", (self.context.names.get(name),), (digit,)))
            start = self.columns.start(number("part"))
            w.add(TensorTile("to", MEMORY, start, self.columns.each))
            statements = [settled(s, self.context) for s in sums.statements]
            known: dict[tuple[str, Affine, bool], str] = {}
            products = self.run(statements)
            for p in products:
                for matrix in (p.a, p.b):
                    assert isinstance(matrix, Matrix)
                    self._descriptor(matrix, known)
            for p, first in zip(products, self._firsts(products), strict=True):
                self._ask(p, known, how if first else "add")

    def run(self, statements: list[Accumulate]) -> list[Product]:
        """The products of some statements."""
        return self._merged([p for s in statements for p in self._products(s)])

    def _firsts(self, products: list[Product]) -> Iterator[bool]:
        """Which of them find nothing in their columns."""
        written: set[int] = set()
        for p in products:
            own = set(self._pieces(p))
            yield not own & written
            if own & written and not own <= written:
                raise ScheduleError(
                    f"the products of `{p.accumulator}` overlap in part",
                    "sums in tensor memory begin with the first product of each of their columns",
                    "give all updates of the accumulator the same tile",
                    Where(func=p.accumulator),
                )
            written |= own

    def _pieces(self, p: Product) -> range:
        """Of the columns of a group."""
        scaled = p.first * GROUP_M // p.instruction.m
        first = self.columns.starts[p.accumulator] // PIECE + scaled
        return range(first, first + p.n // PIECE)

    def _ask(self, p: Product, known: dict[tuple[str, Affine, bool], str], how: str) -> None:
        a, b = (
            InMemory(self._descriptor(x, known), x.offset, not x.along)
            for x in (p.a, p.b)
            if isinstance(x, Matrix)
        )
        record = group_record(p.instruction, p.n)
        self.context.writer.add(Mma(how, record, "to", self._pieces(p)[0], a, b))

    # ------------------------------------------------------------------ loads

    def accumulate(self, statements: list[Accumulate]) -> None:
        """What a group does instead of the products of a run."""
        self.write_zeros()
        self.loaded.append(tuple(statements))
        self.load(statements, None)

    def load(self, statements: list[Accumulate], condition: Expr | None) -> None:
        """Wait for the sums of a run, if any were made, and take them out of tensor memory."""
        w = self.context.writer
        products = self.run([settled(s, self.context) for s in statements])
        names = list(dict.fromkeys(p.accumulator for p in products))
        with w.block():
            self.open_stage()
            self.pipeline.wait()
            w.add(Fence("tensor_after"))
            own = plus(self.columns.start(number("group")), times(WARP_OF_GROUP, WARP_LANES * LANE))
            w.add(TensorTile("own", MEMORY, own, self.columns.each))
            if condition is None:
                self._load(products)
            else:
                with w.when(condition):
                    self._load(products)
            for name in names:
                w.add(Pin(self.context.registers.accumulators[name].register))
            w.add(Fence("tensor_before"))
            w.add(Sync("warp"))
            with w.when(FIRST_LANE):
                self.pipeline.release()
            w.add(Assign(TILE, plus(TILE, 1)))

    def open_stage(self) -> None:
        """The stage of the next run's sums, and how often it was used before."""
        values = remainder(TILE, self.columns.stages), quotient(TILE, self.columns.stages)
        self.context.writer.add(Let("int", (STAGE, BEFORE), values))

    def _load(self, products: list[Product]) -> None:
        """All columns that products have written, of both halves of 32 rows."""
        w = self.context.writer
        written: dict[str, set[int]] = {}
        for p in products:
            written.setdefault(p.accumulator, set()).update(self._pieces(p))
        for name, pieces in written.items():
            fragments = self._fragments(name)
            register = self.context.registers.accumulators[name].register
            how = "tensor" if name in self.fresh else "tensor_add"
            for first, count in _powers(sorted(pieces)):
                for half in range(rows_of(self.context) // GROUP_M):
                    tiles = (fragments[first + i, half] for i in range(count))
                    at = first * PIECE + half * LOADED_LANES * LANE
                    registers = tuple(Register(register, tile) for tile in tiles)
                    w.add(LoadFragment(registers, how, "own", at))
        w.add(Drain("tensor", 0))

    def _fragments(self, name: str) -> dict[tuple[int, int], int]:
        """By a piece of the columns, and the half of the rows, the fragment that lies there."""
        halves = rows_of(self.context) // GROUP_M
        found: dict[tuple[int, int], int] = {}
        for region in self.context.registers.accumulators[name].regions.values():
            first = self.columns.starts[name] // PIECE + region.first // halves
            rows, columns = region.tiles
            for i in range(rows):
                for j in range(columns):
                    piece = first + i // halves * columns + j
                    found[piece, i % halves] = region.fragment(i, j)
        return found


def _powers(pieces: list[int]) -> Iterator[tuple[int, int]]:
    """Pieces that follow each other, the first and how many: a power of two."""
    while pieces:
        whole = next((i for i, x in enumerate(pieces) if x != pieces[0] + i), len(pieces))
        part = min(MOST_PIECES, 1 << whole.bit_length() - 1)
        yield pieces[0], part
        pieces = pieces[part:]


def sums_of(stmts: list[Stmt], c: KernelContext) -> list[Sums]:
    """The runs of accumulate statements in regions of groups: those that follow each other.
    ``ScheduleError`` where it differs how often one comes.
    """
    found: list[Sums] = []
    for s in stmts:
        for loops, body in thread_regions(s):
            statements = [_product(x, c) for x in in_order(body)]
            for _, run in groupby(statements, key=lambda x: x is None):
                products = tuple(x for x in run if x is not None)
                found += [Sums(tuple(loops), products)] if products else []
    return found


def _product(s: Stmt, c: KernelContext) -> Accumulate | None:
    """The product that a statement adds, if that is all it does."""
    if isinstance(s, Store):
        return c.as_accumulate(s)
    if any(isinstance(x, Store) and as_accumulate(x) for x in walk_stmt(s)):
        raise ScheduleError(
            "products that add to tensor memory stand in a loop or condition",
            "one thread asks for all of an iteration, in order",
            "unroll the loops over an accumulator's tiles and inside the pipelined loop",
        )
    return None
