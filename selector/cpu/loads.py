"""Pieces of operands on their way into tile registers: in place where rows of adjacent elements lie
inside a buffer, else by way of a tile of 1024 bytes on the stack.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from selector.cpu.context import CContext, Writer
from selector.cpu.lanes import LaneLoops
from selector.cpu.limits import in_rows
from selector.cpu.operands import COLUMN, INNER, ROW, TILE_BYTES, TILE_ROWS, Dense, Matrix
from selector.cpu.plain import PlainCode
from selector.cpu.registers import Shape
from selector.dataclass import dataclass
from selector.gpu.codegen.scalars.storage import Space, Storage, c_type
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import IntImm, Store
from selector.ir.traverse import free_vars, substitute


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows ``row`` ... and elements ``column`` ... of an operand, in a register of ``shape``."""

    matrix: Matrix
    row: Affine
    column: Affine
    rows: int
    width: int
    shape: Shape

    @property
    def bytes(self) -> int:
        return self.width * self.matrix.type.bytes

    @property
    def exact(self) -> bool:
        return self.shape == (self.rows, self.bytes)

    @property
    def start(self) -> Affine:
        """Index of its first element in the buffer, if the matrix is dense."""
        dense = self.matrix.dense
        assert dense is not None
        return dense.base + self.row * dense.step + self.column

    def key(self) -> object:
        """Equal for pieces of equal contents."""
        dense = self.matrix.dense
        if dense is not None and dense.predicate is None:
            return dense.buffer, self.start, dense.step, self.rows, self.width, self.shape
        return self


class OperandLoads:
    """Writes the loads of operands. ``direct``: those that a test ahead finds inside their
    buffers.
    """

    def __init__(self, context: CContext, plain: PlainCode) -> None:
        self.context = context
        self.plain = plain
        self.direct: frozenset[Dense] = frozenset()
        self._inner: frozenset[str] = frozenset()  # loops inside the place of pointers
        self._pointers: dict[tuple[str, Affine], str] | None = None

    @contextmanager
    def pointers(self, loops: frozenset[str]) -> Generator[None]:
        """What is written inside starts its loads at pointers made here, ahead of ``loops``."""
        c, outer = self.context, (self._inner, self._pointers)
        if self._pointers is not None:  # made further out
            yield
            return
        self._inner, self._pointers = loops, {}
        before, c.writer = c.writer, Writer()
        yield
        inside, c.writer = c.writer, before
        for (buffer, fixed), name in self._pointers.items():
            home = c.storages[buffer]
            start = f"{home.pointer} + {c.scalar.index(fixed.to_expr())}"
            c.writer.line(f"const {c_type(home.type)} *const {name} = {start};")
        c.writer.lines(inside.text())
        self._inner, self._pointers = outer

    def _address(self, buffer: str, place: Affine) -> str:
        """Where an element is: from a pointer made ahead of the loops, or from the buffer."""
        c, pointer = self.context, self.context.storages[buffer].pointer
        if self._pointers is None:
            return f"&{pointer}[{c.scalar.index(place.to_expr())}]"
        varying = [t for t in place if any(free_vars(a) & self._inner for a in t[0])]
        fixed = place - Affine(tuple(varying))
        if fixed.constant is None:
            key = (buffer, fixed)
            if key not in self._pointers:
                self._pointers[key] = c.names.fresh(f"{pointer}_at")
            pointer, place = self._pointers[key], Affine(tuple(varying))
        return pointer if place.constant == 0 else f"{pointer} + {c.scalar.index(place.to_expr())}"

    def load(self, piece: Piece, register: int) -> None:
        c, dense = self.context, piece.matrix.dense
        if dense is None:
            self._load_elements(piece, register)
            return
        stride = c.scalar.index((dense.step * piece.matrix.type.bytes).to_expr())
        if dense in self.direct and piece.exact:
            place = self._address(dense.buffer, piece.start)
            c.writer.line(f"tile_load({register}, {place}, {stride});")
        elif dense.predicate is None or dense in self.direct:
            self._load_checked(piece, dense, register)
        else:
            self._load_elements(piece, register)

    def _load_checked(self, piece: Piece, dense: Dense, register: int) -> None:
        """Rows without a condition: in place if they are inside, else by way of the stack."""
        c, size = self.context, piece.matrix.type.bytes
        storage = c.storages[dense.buffer]
        assert storage.elements is not None
        with c.writer.block(""):
            c.writer.line(f"_Alignas(64) u8 scratch[{TILE_ROWS * TILE_BYTES}];")
            limit, place, stride = (
                c.scalar.index((x * size).to_expr())
                for x in (to_affine(storage.elements), piece.start, dense.step)
            )
            count, within = self._rows_of_array(piece, dense, storage)
            if piece.exact:
                c.writer.line(f"s64 stride = {stride};")
                matrix = f"scratch, {storage.pointer}, {limit}, {place}, &stride"
                rows = f"{count}, {piece.bytes}, {within or f'{place}, stride, {limit}'}"
                c.writer.line(f"const void *from = tile_rows({matrix}, {rows});")
                c.writer.line(f"tile_load({register}, from, stride);")
            else:
                matrix = f"scratch, {storage.pointer}, {limit}, {place}, {stride}"
                rows = f"{count}, {piece.bytes}, {within or f'{place}, {stride}, {limit}'}"
                call = f"tile_copy({matrix}, {rows})"
                c.writer.line(f"tile_load({register}, {call}, {TILE_BYTES});")

    def _rows_of_array(self, piece: Piece, dense: Dense, storage: Storage) -> tuple[str, str]:
        """How many rows of a piece there are, and in bytes where its first begins in a row of the
        array, what each begins further, and the length of those rows; empty where it has none.
        """
        c, m = self.context, piece.matrix
        here = in_rows(storage, piece.start + dense.step * ROW)
        count, within = str(piece.rows), ""
        for d, _, extent in m.along_sum(storage):
            parts = here[d][0].parts(ROW)
            if parts is None:
                continue
            first, shift = parts
            if d == 0:
                numbers = (first, shift, to_affine(extent))
                texts = (c.scalar.index((x * m.type.bytes).to_expr()) for x in numbers)
                within = ", ".join(texts)
            elif shift.constant == 1:
                left = c.scalar.index((to_affine(extent) - first).to_expr())
                c.writer.line(f"const s64 rows = {left};")
                count = f"(int)(rows < 0 ? 0 : rows < {piece.rows} ? rows : {piece.rows})"
        return count, within

    def _load_elements(self, piece: Piece, register: int) -> None:
        """Any operand, element by element."""
        c, m = self.context, piece.matrix
        size, v = m.type.bytes, m.packing
        name = "$tile"
        columns = piece.width // v
        digits = tuple(
            (x, n) for x, n in ((INNER, v), (COLUMN, columns), (ROW, piece.rows)) if n > 1
        )
        first = piece.column.divided_by(v)
        assert first is not None
        at = {
            ROW.name: (piece.row + (ROW if piece.rows > 1 else 0)).to_expr(),
            COLUMN.name: (first + (COLUMN if columns > 1 else 0)).to_expr(),
            INNER.name: INNER if v > 1 else IntImm(0),
        }
        value = substitute(m.element, at)
        live = {x for x, _ in digits}
        index = Affine()
        for x, factor in ((ROW, TILE_BYTES // size), (COLUMN, v), (INNER, 1)):
            if x in live:
                index += to_affine(x) * factor
        with c.writer.block(""):
            count = TILE_ROWS * TILE_BYTES // size
            whole = piece.exact and piece.bytes == TILE_BYTES
            zero = "" if whole else " = {0}"
            c.writer.line(f"_Alignas(64) {c_type(m.type)} scratch[{count}]{zero};")
            with c.stored(name, Storage("scratch", m.type, Space.LOCAL)), c.fresh_guard():
                self.plain.form(LaneLoops(digits, (), Store(name, index.to_expr(), value)))
            c.writer.line(f"tile_load({register}, scratch, {TILE_BYTES});")
