"""Tile statements of a selected program, taken apart for the C emitter: products and the matrices
that they read, in the order in which tile registers hold them.

Operand A has a row for each m, its elements run along k. Operand B has a row for each group of
``packing`` consecutive k, its elements run along (n, k % packing): VNNI order.
"""

from __future__ import annotations

from functools import cached_property

from selector.cpu.lanes import scalar_lane
from selector.cpu.limits import in_rows
from selector.dataclass import dataclass
from selector.diagnostics import EmitError
from selector.gpu.codegen.scalars.storage import Storage
from selector.intrinsics import records
from selector.ir.affine import Affine, to_affine
from selector.ir.lanes import Digits
from selector.ir.nodes import Call, Expr, IntImm, Load, Store, Var
from selector.ir.traverse import free_vars
from selector.ir.types import Type
from selector.lowering.tiles import first_lane

ROW, COLUMN, INNER = Var("$row"), Var("$column"), Var("$inner")
TILE_ROWS, TILE_BYTES = 16, 64


@dataclass(frozen=True, slots=True)
class Dense:
    """Rows of adjacent elements: element (row, c) is ``buffer[base + row * step + c]``.

    ``predicate`` is a condition over ``ROW``, ``COLUMN`` and ``INNER``.
    """

    buffer: str
    base: Affine
    step: Affine
    predicate: Expr | None


@dataclass(frozen=True)
class Matrix:
    """An operand of ``rows`` x ``columns`` x ``packing`` elements; ``packing`` is 1 for A."""

    value: Expr
    rows: int
    columns: int
    packing: int

    @property
    def type(self) -> Type:
        return self.value.type.element

    @property
    def digits(self) -> Digits:
        return ((INNER, self.packing), (COLUMN, self.columns), (ROW, self.rows))

    @cached_property
    def element(self) -> Expr:
        """The element at (``ROW``, ``COLUMN``, ``INNER``)."""
        return scalar_lane(self.value, self.digits)

    @cached_property
    def dense(self) -> Dense | None:
        """Where the matrix lies, if its rows are adjacent elements of a buffer."""
        match self.element:
            case Load(_, buffer, index, predicate):
                place = to_affine(index)
            case _:
                return None
        parts = place.parts(ROW, COLUMN, INNER)
        if parts is None:
            return None
        base, step, along, inside = parts
        for own, extent, factor in (along, self.columns, self.packing), (inside, self.packing, 1):
            if extent > 1 and own.constant != factor:
                return None
        return Dense(buffer, base, step, predicate)

    def along_sum(self, storage: Storage) -> tuple[tuple[int, Affine, Expr], ...]:
        """Dimensions of the array that the sum runs along: number, coordinate of any element, and
        extent. What a step reaches beyond meets zeros, and has to be a number: what lies there, of
        the next row or between them, need be none. Results of other elements are stored by nobody.
        """
        dense = self.dense
        if dense is None:
            return ()
        summed = {ROW.name} if self.packing > 1 else {COLUMN.name, INNER.name}
        place = dense.base + dense.step * ROW + to_affine(COLUMN) * self.packing + INNER
        every = enumerate(in_rows(storage, place))
        return tuple((d, c, n) for d, (c, n) in every if summed & free_vars(c.to_expr()))


@dataclass(frozen=True, slots=True)
class Product:
    """``accumulator[offset ...] += A x B`` on a block of m x n, reduction extent k."""

    accumulator: str
    offset: int
    m: int
    n: int
    k: int
    instruction: records.TensorInstruction
    a: Matrix
    b: Matrix
    initial: Expr | None  # the sums to begin with, if not those of the accumulator

    @property
    def function(self) -> str:
        """What the tile layer calls it: ``amx.tdpbf16ps.m16n16k32`` is ``tile_dpbf16ps``."""
        return f"tile_{self.instruction.name.split('.')[1].removeprefix('t')}"

    @property
    def depth(self) -> int:
        """Elements of k that one tile holds."""
        return self.instruction.k

    def depth_bytes(self, k: int) -> int:
        """Bytes of an A row of ``k`` elements, whole groups."""
        v = self.instruction.packing
        return -(-k // v) * v * self.a.type.bytes


def as_product(s: Store) -> Product | None:
    """The parts of a product statement; None for any other store."""
    match s.value:
        case Call(_, name, (IntImm(m), IntImm(n), IntImm(k), c, a, b)):
            instruction = records.find(name)
            if instruction is None or instruction.family != "amx":
                return None
            offset = constant_offset(s.index, s.buffer)
            v = instruction.packing
            left, right = Matrix(a, m, k, 1), Matrix(b, -(-k // v), n, v)
            same = isinstance(c, Load) and c.buffer == s.buffer and (
                first_lane(c.index) == first_lane(s.index)
            )  # fmt: skip
            initial = None if same else c
            return Product(s.buffer, offset, m, n, k, instruction, left, right, initial)
        case _:
            return None


def constant_offset(index: Expr, accumulator: str) -> int:
    """Where a block of an accumulator begins; ``EmitError`` where that varies at run time."""
    offset = first_lane(index).constant
    if offset is None:
        names = ", ".join(sorted(free_vars(index)))
        raise EmitError(
            f"`{accumulator}` is kept in tile registers, which are numbered",
            f"its index depends on {names}, which vary at run time",
            "unroll the loops over its tiles, of at most 8 iterations each",
        )
    return offset
