"""Banded (Toeplitz) operands: built once per block in shared memory, in the order in which lanes want them.

A table holds, for each value of the serial loops that its taps depend on, the blocks of the band: 8 rows x 16 bytes
each, one 32-bit word per lane. Blocks of consecutive depth lie in chunks of 4, 2 and 1 (``fragments.chunk_of``), so
that a lane reads a chunk with one load. Every value is a tap or zero: a NaN in the signal next to the band's zeros
still spreads to the row's eight outputs, as it does in every Toeplitz formulation.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import prod

from selector.diagnostics import EmitError
from selector.emit.context import KernelContext
from selector.emit.scalar import c_type
from selector.ir.affine import Affine
from selector.ir.nodes import Expr, IntImm, Load, Var
from selector.ir.traverse import free_vars, substitute
from selector.lowering.fragments import Block, chunk_of, depth_blocks
from selector.lowering.tiles import DEPTH, Banded

LARGEST_TABLE = 96 * 1024


@dataclass(frozen=True, slots=True)
class Table:
    """One banded operand in shared memory: words for each value of ``loops``."""

    pointer: str
    operand: Banded
    loops: tuple[tuple[str, int, int], ...]  # (variable, min, extent), the fastest first
    words: int


class BandTables:
    """The tables of a kernel. ``add`` before its body is written, ``fill`` at its start, ``fetch`` in it."""

    def __init__(self, context: KernelContext) -> None:
        self.context = context
        self._tables: dict[Hashable, Table] = {}

    def add(self, operand: Banded, loops: dict[str, tuple[Expr, Expr]]) -> None:
        """Make room for an operand used inside ``loops`` (variable -> min, extent)."""
        if operand in self._tables:
            return
        used = {n for m, _ in operand.base for a in m for n in free_vars(a)}
        if operand.predicate is not None:
            used |= free_vars(operand.predicate)
        dims: list[tuple[str, int, int]] = []
        for name in sorted(used & loops.keys()):
            low, extent = loops[name]
            if not isinstance(low, IntImm) or not isinstance(extent, IntImm):
                raise EmitError(
                    f"the taps in `{operand.buffer}` depend on the loop {name}, whose extent is not a constant",
                    hint="give the reduction domain constant extents",
                )
            dims.append((name, low.value, extent.value))
        words = operand.rows // 8 * depth_blocks(operand) * 32
        size = 4 * words * prod(extent for _, _, extent in dims)
        if size > LARGEST_TABLE:
            raise EmitError(
                f"the banded matrices of `{operand.buffer}` take {size} bytes of shared memory",
                hint="vectorize fewer taps per statement or make the outer tap loop the slower one",
            )
        offset = self.context.allocate_shared(size, f"bands of {operand.buffer}")
        pointer = self.context.names.fresh(f"band_{self.context.names.get(operand.buffer)}")
        self._tables[operand] = Table(pointer, operand, tuple(dims), words)
        self.context.writer.line(f"u32* const {pointer} = (u32*)(smem + {offset});")

    def __bool__(self) -> bool:
        return bool(self._tables)

    def fill(self) -> None:
        """Write all tables, spread over the threads of the block."""
        for table in self._tables.values():
            self._fill_one(table)

    def _fill_one(self, table: Table) -> None:
        o, w, names = table.operand, self.context.writer, self.context.names
        total = table.words * prod(extent for _, _, extent in table.loops)
        blocks = depth_blocks(o)
        w.line(f"// {table.pointer}: {o.taps} taps as a {o.depth} x {o.rows} band, in fragment order")
        head = f"for (int i = threadIdx.x; i < {total}; i += {self.context.threads})"
        with w.block(head):
            w.line("const int of_lane = i & 31;")
            w.line(f"const int depth_block = (i >> 5) % {blocks};")
            w.line(f"const int row_block = (i >> 5) / {blocks} % {o.rows // 8};")
            rest = f"i / {table.words}"
            values: dict[str, Expr] = {}
            for number, (name, low, extent) in enumerate(table.loops):
                w.line(f"const int loop{number} = {rest} % {extent} + {low};")
                rest += f" / {extent}"
                names.bind(f"$loop{number}", f"loop{number}")
                values[name] = Var(f"$loop{number}")
            count = 4 // o.type.bytes
            w.line(f"const int depth = depth_block * {16 // o.type.bytes} + (of_lane & 3) * {count};")
            w.line("const int row = row_block * 8 + (of_lane >> 2);")
            elements = [self._element(o, number, values) for number in range(count)]
            pack = "pack16" if o.type.bytes == 2 else "pack8"
            w.line(f"const u32 word = {pack}({', '.join(elements)});")
            w.line(f"{table.pointer}[{self._place(blocks, table.words)}] = word;")

    def _element(self, o: Banded, number: int, values: dict[str, Expr]) -> str:
        w, scalar = self.context.writer, self.context.scalar
        at, tap = f"at{number}", f"tap{number}"
        w.line(f"const int {at} = depth + {number} - {o.stride} * row;")
        w.line(f"const int {tap} = {at if o.dilation == 1 else f'{at} / {o.dilation}'};")
        self.context.names.bind(f"${tap}", tap)
        index = (o.base + o.tap_stride * Var(f"${tap}")).to_expr()
        predicate = o.predicate
        if predicate is not None:
            predicate = substitute(predicate, {DEPTH.name: Var(f"${tap}"), **values})
        load = scalar.load(Load(o.type, o.buffer, substitute(index, values), predicate))
        on_grid = "" if o.dilation == 1 else f" && {at} % {o.dilation} == 0"
        zero = f"{c_type(o.type)}{{}}" if o.type.bytes == 2 and o.type.is_float else "0"
        return f"({at} >= 0 && {tap} < {o.taps}{on_grid} ? {load} : {zero})"

    def _place(self, blocks: int, words: int) -> str:
        """Word of (depth_block, of_lane) in its row block; see ``chunk_of``."""
        fours, rest = divmod(blocks, 4)
        inside = "(depth_block >> 2) * 128 + of_lane * 4 + (depth_block & 3)"
        if rest:
            tail = f"{fours * 128} + of_lane * 2 + (depth_block - {fours * 4})"
            if rest == 1:
                tail = f"{fours * 128} + of_lane"
            elif rest == 3:
                last = f"{fours * 128 + 64} + of_lane"
                tail = f"(depth_block == {fours * 4 + 2} ? {last} : {tail})"
            inside = f"(depth_block < {fours * 4} ? {inside} : {tail})"
        return f"(i / {blocks * 32}) * {blocks * 32} + {inside}"

    def fetch(self, blocks: tuple[Block, ...], registers: list[str]) -> None:
        """Declare ``registers`` with the words of a chunk of blocks for this lane."""
        first = blocks[0]
        assert isinstance(first.operand, Banded)
        table = self._tables[first.operand]
        start = chunk_of(first).start
        per_row = depth_blocks(first.operand) * 32
        offset = Affine.of(first.row * per_row + start * 32)
        scale = table.words
        for name, low, extent in table.loops:
            offset = offset + (Affine.of(Var(name)) - low) * scale
            scale *= extent
        index = f"{self.context.scalar.index(offset.to_expr())} + lane * {len(blocks)}"
        address = f"{table.pointer} + {index}"
        w = self.context.writer
        match registers:
            case [one]:
                w.line(f"const u32 {one} = *({address});")
            case [a, b]:
                w.line(f"const uint2 {a}_ = *(const uint2*)({address}); const u32 {a} = {a}_.x, {b} = {a}_.y;")
            case [a, b, c, d]:
                w.line(f"const uint4 {a}_ = *(const uint4*)({address});")
                w.line(f"const u32 {a} = {a}_.x, {b} = {a}_.y, {c} = {a}_.z, {d} = {a}_.w;")
            case _:
                raise AssertionError("chunks hold 4, 2 or 1 blocks")


