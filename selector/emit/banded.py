"""Banded (Toeplitz) operands: built once per block in shared memory, in the order in which lanes
want them.

A table holds, for each value of the serial loops that its taps depend on, the blocks of the band: 8
rows x 16 bytes each, one 32-bit word per lane. Blocks of consecutive depth lie in chunks of 4, 2
and 1 (``fragments.chunk_of``), so that a lane reads a chunk with one load. Every value is a tap or
zero: a NaN in the signal next to the band's zeros still spreads to the row's eight outputs, as it
does in every Toeplitz formulation.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import prod

from selector.diagnostics import EmitError
from selector.emit.context import KernelContext
from selector.emit.scalar import c_type
from selector.ir.affine import Affine, split_by_strides, to_affine
from selector.ir.nodes import Expr, IntImm, Var
from selector.ir.traverse import free_vars, substitute
from selector.lowering.fragments import Block, chunk_of, depth_blocks
from selector.lowering.tiles import DEPTH, PHASE, Banded

LARGEST_TABLE = 96 * 1024


@dataclass(frozen=True, slots=True)
class Table:
    """One banded operand in shared memory: words for each value of ``loops``."""

    pointer: str
    operand: Banded
    loops: tuple[tuple[str, int, int], ...]  # (variable, min, extent), the fastest first
    words: int


class BandTables:
    """The tables of a kernel. ``add`` before its body is written, ``fill`` at its start, ``fetch``
    in it.
    """

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
                    f"the taps in `{operand.buffer}` depend on the loop {name}",
                    "its extent is not a constant",
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

    @property
    def sources(self) -> set[str]:
        """Buffers that the taps come from."""
        return {table.operand.buffer for table in self._tables.values()}

    def fill(self) -> None:
        """Write all tables, spread over the threads of the block."""
        for table in self._tables.values():
            self._fill_one(table)

    def _fill_one(self, table: Table) -> None:
        """A warp writes runs of depth blocks of a line: one row block at one value of the loops."""
        o, w, names = table.operand, self.context.writer, self.context.names
        blocks, row_blocks = depth_blocks(o), o.rows // 8
        lines = row_blocks * prod(extent for _, _, extent in table.loops)
        warps = max(1, self.context.threads // 32)
        parts = max(1, min(warps // lines, blocks))
        run = -(-blocks // parts)
        w.line(
            f"// {table.pointer}: {o.taps} taps{_in_phases(o)} as a {o.depth} x {o.rows} band, "
            "in fragment order"
        )
        with w.block(f"for (int item = threadIdx.x >> 5; item < {lines * parts}; item += {warps})"):
            w.line(f"const int line = item{f' / {parts}' if parts > 1 else ''};")
            w.line(f"const int row = {'0' if row_blocks == 1 else f'line % {row_blocks} * 8'} + g;")
            if o.phases > 1:
                w.line(f"const int phase = row % {o.phases};")
                names.bind(PHASE.name, "phase")
            rest = "line" if row_blocks == 1 else f"line / {row_blocks}"
            values: dict[str, Expr] = {}
            for number, (name, low, extent) in enumerate(table.loops):
                last = number == len(table.loops) - 1
                w.line(f"const int loop{number} = {rest}{'' if last else f' % {extent}'} + {low};")
                rest += f" / {extent}"
                names.bind(f"$loop{number}", f"loop{number}")
                values[name] = Var(f"$loop{number}")
            w.line("#pragma unroll")
            with w.block(f"for (int u = 0; u < {run}; ++u)"):
                w.line(f"const int block = {f'item % {parts} * {run} + ' if parts > 1 else ''}u;")
                if parts * run > blocks:
                    w.line(f"if (block >= {blocks}) break;")
                count = 4 // o.type.bytes
                output = "row" if o.phases == 1 else f"(row / {o.phases})"
                lead = f" - {o.lead}" if o.lead else ""
                w.line(
                    f"const int at = block * {16 // o.type.bytes} + q * {count} "
                    f"- {o.stride} * {output}{lead};"
                )
                elements = [self._element(o, number, values) for number in range(count)]
                pack = "pack16" if o.type.bytes == 2 else "pack8"
                target = f"{table.pointer}[line * {blocks * 32} + {_place(blocks)}]"
                w.line(f"{target} = {pack}({', '.join(elements)});")

    def _element(self, o: Banded, number: int, values: dict[str, Expr]) -> str:
        """The tap at depth ``at + number``, zero off the band."""
        w, scalar, names = self.context.writer, self.context.scalar, self.context.names
        at = f"(at + {number})" if number else "at"
        tap = f"tap{number}"
        w.line(f"const int {tap} = {at if o.dilation == 1 else f'{at} / {o.dilation}'};")
        names.bind(f"${tap}", tap)
        place = o.base + o.tap_stride * Var(f"${tap}")
        if o.phases > 1:
            place = place + o.phase_stride * PHASE
        index = substitute(place.to_expr(), values)
        predicate = o.predicate
        if predicate is not None:
            predicate = substitute(predicate, {DEPTH.name: Var(f"${tap}"), **values})
        storage = self.context.storages[o.buffer]
        tests = [f"(u32){at} < {o.dilation * (o.taps - 1) + 1}u"]
        if o.dilation > 1:
            tests.append(f"{at} % {o.dilation} == 0")
        if not self._is_required(o, index, f"${tap}"):
            guard = scalar.guard(storage, index)
            tests += [guard] if guard else []
        tests += [scalar.expr(predicate)] if predicate is not None else []
        zero = f"{c_type(o.type)}{{}}" if o.type.is_float else "0"
        return f"({' && '.join(tests)} ? {scalar.address(storage, index)} : {zero})"

    def _is_required(self, o: Banded, index: Expr, tap: str) -> bool:
        """Whether the algorithm itself needs every tap, so that the call has checked that they
        exist.
        """
        param = self.context.params.get(o.buffer)
        coordinates = None if param is None else split_by_strides(index, param.dims)
        if coordinates is None or o.predicate is not None:
            return False
        ranges = {tap: (0, o.taps - 1), PHASE.name: (0, o.phases - 1)}
        for number, (_, low, extent) in enumerate(self._tables[o].loops):
            ranges[f"$loop{number}"] = (low, low + extent - 1)
        for dim, coordinate in enumerate(coordinates):
            reach = _range(to_affine(coordinate), ranges)
            needed = self.context.required.get((o.buffer, dim))
            if reach is None or needed is None or reach[0] < needed[0] or reach[1] > needed[1]:
                return False
        return True

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
                w.line(f"const uint2 {a}_ = *(const uint2*)({address});")
                w.line(f"const u32 {a} = {a}_.x, {b} = {a}_.y;")
            case [a, b, c, d]:
                w.line(f"const uint4 {a}_ = *(const uint4*)({address});")
                w.line(f"const u32 {a} = {a}_.x, {b} = {a}_.y, {c} = {a}_.z, {d} = {a}_.w;")
            case _:
                raise AssertionError("chunks hold 4, 2 or 1 blocks")


def _in_phases(o: Banded) -> str:
    return f" in each of {o.phases} phases" if o.phases > 1 else ""


def _range(index: Affine, ranges: dict[str, tuple[int, int]]) -> tuple[int, int] | None:
    """Smallest and largest value of an index whose variables have constant ranges."""
    low = high = index.offset
    for monomial, factor in index:
        if not monomial:
            continue
        if len(monomial) != 1 or not isinstance(monomial[0], Var) or monomial[0].name not in ranges:
            return None
        ends = [factor * end for end in ranges[monomial[0].name]]
        low, high = low + min(ends), high + max(ends)
    return low, high


def _place(blocks: int) -> str:
    """Word of (block, lane) in its line; see ``fragments.chunk_of``."""
    fours, rest = divmod(blocks, 4)
    inside = "(block >> 2) * 128 + lane * 4 + (block & 3)"
    if not rest:
        return inside
    tail = (
        f"{fours * 128} + lane" if rest == 1 else f"{fours * 128} + lane * 2 + block - {fours * 4}"
    )
    if rest == 3:
        tail = f"(block == {fours * 4 + 2} ? {fours * 128 + 64} + lane : {tail})"
    return f"(block < {fours * 4} ? {inside} : {tail})" if fours else tail
