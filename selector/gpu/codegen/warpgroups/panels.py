"""Operands of wgmma in shared memory: panels of rows of 32, 64 or 128 bytes, swizzled.

A panel holds as many bytes of every row, rows one after the other, swizzled (``gpu.ir.layouts``).
As only addresses matter, a matrix whose depth runs along the rows may start at any of them. The
program knows the buffer by rows of ``pitch`` elements; every index goes through ``Panels``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from selector.dataclass import dataclass
from selector.diagnostics import ScheduleError, Where
from selector.gpu.ir.expressions import place
from selector.gpu.ir.layouts import GROUP_ROWS, Composed, Swizzle, in_bytes
from selector.ir.access import access
from selector.ir.affine import Affine, split_by_strides, to_affine
from selector.ir.nodes import Allocate, Dim, Expr, IntImm, Memory, Stmt, Store
from selector.ir.traverse import walk_stmt
from selector.ir.types import FLOAT16
from selector.lowering.normalize import is_tensor_store
from selector.lowering.structure import constant_elements, loaded_names
from selector.lowering.tiles import Accumulate, Banded, as_accumulate

WIDTHS = (32, 64, 128)  # bytes of a row that a swizzle goes with
ALIGNMENT = WIDTHS[-1] * GROUP_ROWS

T = TypeVar("T", int, Affine)


@dataclass(frozen=True, slots=True)
class Panels:
    """``rows`` (a multiple of 8) x ``columns`` elements of ``bytes``; the program's rows are
    ``pitch`` elements apart. Narrow matrices have one panel of narrow rows, others as many as it
    takes of 128-byte rows. ``rounds``: what brings them rounds single floats to tf32.
    """

    pitch: int
    columns: int
    rows: int
    bytes: int
    rounds: bool = False

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in one panel."""
        return next((w for w in WIDTHS if self.columns * self.bytes <= w), WIDTHS[-1])

    @property
    def width(self) -> int:
        """Elements of a row in one panel."""
        return self.row_bytes // self.bytes

    @property
    def count(self) -> int:
        return -(-self.columns // self.width)

    @property
    def panel_bytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def layout(self) -> Composed:
        """Of an element (row, column): its byte."""
        columns = self.width, self.bytes, self.panel_bytes
        return Composed(Swizzle(self.row_bytes), in_bytes((self.row_bytes,), columns))

    def byte(self, row: T, panel: T) -> T:
        """Where the row of a panel begins."""
        return row * self.row_bytes + panel * self.panel_bytes

    def element(self, byte: int) -> tuple[int, int]:
        """(row, column) of what lies at a byte, but for the swizzle."""
        panel, inside = divmod(byte, self.panel_bytes)
        row, at = divmod(inside, self.row_bytes)
        return row, panel * self.width + at // self.bytes

    @property
    def size(self) -> int:
        """Bytes of all panels."""
        return self.count * self.panel_bytes

    def place(self, index: Affine) -> tuple[Affine, Affine] | None:
        """(row, column) of an index; None if it is not a sum of both."""
        dims = (_dim(1), _dim(self.pitch))
        parts = split_by_strides(index.to_expr(), dims)
        return None if parts is None else (to_affine(parts[1]), to_affine(parts[0]))

    def start(self, index: Affine, step: int, group: int = GROUP_ROWS) -> Affine | None:
        """Bytes from the first panel to a matrix that begins at ``index``: at a multiple of
        ``group`` rows, its column a multiple of ``step`` elements. None if that cannot be shown.
        """
        place = self.place(index)
        if place is None:
            return None
        row, column = place
        inside = column.offset % self.width
        whole = (column - inside).divided_by(self.width)
        if whole is None or inside % step or row.divided_by(group) is None:
            return None
        return self.byte(row, whole) + inside * self.bytes

    def index(self, index: Expr) -> Expr:
        """The element at which the program's ``index`` lies."""
        sizes = self.pitch, self.rows, self.bytes, self.row_bytes
        return place("panel_index", *sizes, index=index)


def _dim(stride: int) -> Dim:
    return Dim(IntImm(0), IntImm(0), IntImm(stride))


def find_panels(body: Stmt, kept: frozenset[str] = frozenset()) -> dict[str, Panels]:
    """The panels of every buffer that is an operand of wgmma; ``ScheduleError`` for operands that
    do not lie in shared memory, but for first ones that are ``kept`` in registers.
    """
    allocations = {
        s.name: s
        for s in walk_stmt(body)
        if isinstance(s, Allocate) and s.memory is Memory.GPU_SHARED
    }
    found: dict[str, Panels] = {}
    for s in walk_stmt(body):
        statement = as_accumulate(s) if isinstance(s, Store) else None
        if statement is None or not statement.instruction.reads_memory:
            continue
        if isinstance(statement.a, Banded):
            raise _banded(statement.a.buffer, statement)
        if isinstance(statement.b, Banded):
            continue  # of windows
        rounds = statement.instruction.rounds  # which nobody does in registers
        for operand in (statement.a, statement.b):
            allocation = allocations.get(operand.buffer)
            held = operand is statement.a and operand.buffer in kept and not rounds
            if allocation is None and held:
                continue
            if allocation is None:
                raise not_shared(operand.buffer, statement)
            if operand.buffer not in found:
                found[operand.buffer] = replace(_panels(allocation, body), rounds=rounds)
    beside = (a for a in allocations.values() if a.name not in found and _is_beside(a, body))
    return found | {a.name: _panels(a, body) for a in beside}


def _is_beside(s: Allocate, body: Stmt) -> bool:
    """Whether a matrix is staged ahead for nothing but what is computed on accumulators, two
    elements of a row at a time (``element_values``): the copy engine brings panels.
    """
    if s.stages < 2 or s.type.element != FLOAT16:
        return False
    pitch = s.extents[0]
    if not isinstance(pitch, IntImm) or pitch.value >= constant_elements(s):
        return False
    readers = [x for x in walk_stmt(body) if isinstance(x, Store) and s.name in loaded_names(x)]
    return bool(readers) and all(is_tensor_store(x) and as_accumulate(x) is None for x in readers)


def not_shared(buffer: str, statement: Accumulate) -> ScheduleError:
    """The error for an operand that is not staged."""
    family = statement.instruction.family
    return ScheduleError(
        f"`{buffer}` is an operand of {family} and does not lie in shared memory",
        f"{statement.instruction.name} reads both operands from there, as they are",
        f"stage it: {buffer}.in_(...).compute_at(...).store_in(MemoryType.GPUShared)",
        Where(func=statement.accumulator),
    )


def _banded(buffer: str, statement: Accumulate) -> ScheduleError:
    return ScheduleError(
        f"`{statement.accumulator}` is a convolution with `{buffer}` across rows, which wgmma "
        "cannot take",
        f"{statement.instruction.name} takes the band that the taps make as its second operand "
        "only",
        f"place `{statement.accumulator}` in MemoryType.WMMAAccumulator",
        Where(func=statement.accumulator),
    )


def _panels(s: Allocate, body: Stmt) -> Panels:
    elements = constant_elements(s)
    pitch = s.extents[0]
    assert isinstance(pitch, IntImm)
    rows = elements // pitch.value
    columns = _reach(s.name, pitch.value, body)
    rounded = -(-rows // GROUP_ROWS) * GROUP_ROWS
    return Panels(pitch.value, columns, rounded, s.type.element.bytes)


def _reach(buffer: str, pitch: int, body: Stmt) -> int:
    """The elements of a row that are stored."""
    stores = [x for x in walk_stmt(body) if isinstance(x, Store) and x.buffer == buffer]
    return max((_columns(x, pitch) for x in stores), default=pitch)


def _columns(s: Store, pitch: int) -> int:
    """How far into a row a store reaches; the pitch if that is not known."""
    seen = access(s.index)
    if seen is None or any(c % pitch for m, c in seen.base if m):
        return pitch
    reach = seen.base.offset % pitch + 1
    for stride, count in seen.levels:
        step = stride.constant
        if step is None or step < 0:
            return pitch
        reach += step * (count - 1) if step % pitch else 0
    return min(reach, pitch)
