"""Tiles that stay in a warp's registers from one product to the next.

Half of an m16n8 accumulator tile, rounded to 16 bits, is a block of 8 x 8 elements with elements
(g, 2q) and (g, 2q+1) in lane 4*g + q: just as operands A and B want their blocks (PTX ISA, "Matrix
Fragments for mma.m16n8k16"; rows are those of A, or the columns of B). So a Func that is stored in
``Register`` inside a warp, written by read-outs of accumulators alone and read as an operand alone,
needs no memory: a read-out leaves each block in a register, and the instruction takes it from
there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from selector.dataclass import dataclass
from selector.diagnostics import EmitError, ScheduleError, Where
from selector.gpu.ir.expressions import element, pointer
from selector.gpu.ir.products import Register
from selector.intrinsics import records
from selector.ir.affine import Affine
from selector.ir.contents import holds, loaded
from selector.ir.nodes import (
    Allocate,
    Call,
    Expr,
    ExprVar,
    Load,
    Memory,
    Stmt,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.traverse import map_expr, stmt_exprs, walk_stmt
from selector.ir.types import UINT32
from selector.lowering.fragments import BLOCK_ROWS, Block
from selector.lowering.normalize import is_read_out
from selector.lowering.structure import constant_elements, outside_threads, thread_regions
from selector.lowering.tiles import Access

BLOCK_ELEMENTS = BLOCK_ROWS * BLOCK_ROWS
Place = tuple[int, int, int]  # index of element (0, 0), strides of its rows and of its columns


@dataclass(slots=True)
class RegisterTiles:
    """Registers of one allocation: ``name[number]`` holds the block that was stored at a place."""

    func: str
    name: str
    size: int
    numbers: dict[Place, int] = field(default_factory=dict[Place, int])

    def put(self, origin: Affine, rows: Affine, columns: Affine) -> Expr:
        """The register for a block that a read-out stores."""
        place = self._place(origin, rows, columns)
        number = self.numbers.setdefault(place, len(self.numbers))
        if number >= self.size:
            raise self._misfit("its parts overlap")
        return self._register(number)

    def get(self, block: Block) -> Register:
        """The register that holds a block of an operand."""
        o = block.operand
        assert isinstance(o, Access)
        if o.predicate is not None or block.ragged:
            raise self._misfit("a part of it is masked where it is read")
        return self.named(block.origin, o.row_stride, o.depth_stride)

    def named(self, origin: Affine, rows: Affine, columns: Affine) -> Register:
        """The register that holds the block at a place of an operand, for an instruction."""
        return Register(self.name, self._number(origin, rows, columns))

    def at(self, origin: Affine, rows: Affine, columns: Affine) -> Expr:
        """The same, for an expression."""
        return self._register(self._number(origin, rows, columns))

    def _register(self, number: int) -> Expr:
        return element(UINT32, pointer(self.name), number)

    def _number(self, origin: Affine, rows: Affine, columns: Affine) -> int:
        place = self._place(origin, rows, columns)
        if place not in self.numbers:
            raise self._misfit(
                "an accumulator keeps neighbours along its columns together, and an operand along "
                "its depth; or its tiles start elsewhere where it is written"
            )
        return self.numbers[place]

    def _place(self, origin: Affine, rows: Affine, columns: Affine) -> Place:
        parts = (origin.constant, rows.constant, columns.constant)
        if None in parts:
            raise EmitError(
                f"`{self.func}` is kept in registers, which are only ever indexed by constants",
                hint="unroll the loops over its tiles",
            )
        return parts[0] or 0, parts[1] or 0, parts[2] or 0

    def _misfit(self, why: str) -> ScheduleError:
        return ScheduleError(
            f"`{self.func}` cannot go from product to product in registers",
            why,
            f"transpose the product, or store `{self.func}` in GPUShared",
            Where(func=self.func),
        )


def register_names(body: Stmt) -> frozenset[str]:
    """Allocations in ``Register`` inside warps that only read-outs write and only products
    read, and sums over their rows.
    """
    warps = [region for _, region in thread_regions(body)] or [body]
    found = {
        x.name
        for region in warps
        for x in walk_stmt(region)
        if isinstance(x, Allocate) and x.memory is Memory.REGISTER and x.type.bits == 16
    }
    elsewhere = {x.name for x in outside_threads(body) if isinstance(x, Allocate)}
    if warps != [body]:
        found -= elsewhere
    for s in walk_stmt(body):
        if isinstance(s, Store) and s.buffer in found and not _fills(s):
            found.discard(s.buffer)
    return frozenset(found) - _read_otherwise(body) if found else frozenset()


def allocate(s: Allocate, name: str, warps: int) -> RegisterTiles:
    """Room for an allocation's blocks, of which each of ``warps`` has its rows of a tile."""
    return RegisterTiles(s.name, name, -(-constant_elements(s) // (BLOCK_ELEMENTS * warps)))


def _fills(s: Store) -> bool:
    return is_read_out(s) and s.predicate is None


def _read_otherwise(body: Stmt) -> set[str]:
    """Buffers of loads that are no operand of an instruction."""
    found: set[str] = set()
    for s in walk_stmt(body):
        for e in map(_without_sums, stmt_exprs(s)):
            found = found.union(*map(loaded, _without_operands(e)))
    return found


def _without_sums(e: Expr) -> Expr:
    """The expression without reductions, which take a tile's elements where they lie."""
    if isinstance(e, VectorReduce):
        return Var("$sum", e.type)
    return map_expr(e, _without_sums) if holds(e, VectorReduce) else e


def _without_operands(e: Expr) -> Iterator[Expr]:
    match e:
        case Call(_, name, (_, _, _, accumulator, a, b)) if _block_operands(name):
            yield accumulator
            taken = _block_operands(name)
            for number, operand in enumerate((a, b)):
                inner = operand.value if isinstance(operand, ExprVar) else operand
                if number < taken:
                    yield inner.index if isinstance(inner, Load) else inner
                else:
                    yield inner
        case _:
            yield e


def _block_operands(name: str) -> int:
    """How many operands may come in registers: both of an instruction of one warp, the first of one
    of a warpgroup, which reads the other from shared memory.
    """
    instruction = records.find(name)
    families = {"mma": 2, "wmma": 2, "tf32": 2, "wgmma": 1}
    return 0 if instruction is None else families.get(instruction.family, 0)
