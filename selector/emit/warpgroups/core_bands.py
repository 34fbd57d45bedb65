"""Banded operands of wgmma in shared memory, as core matrices.

A core matrix is 8 columns x 16 bytes of depth, 128 bytes in a row, which is what wgmma reads
without a swizzle (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout"). The band of
one row of taps is an *entry*: its core matrices along the depth, one after the other. Entries that
meet the same window for accumulators side by side follow each other, so that one instruction takes
them all: its columns are 8 of every entry.

The words come out of the zero-padded taps of ``banded``.
"""

from __future__ import annotations

from dataclasses import dataclass

from selector.emit.banded import BandTables
from selector.emit.context import KernelContext
from selector.emit.units import Unit
from selector.lowering.fragments import BLOCK_BYTES, depth_blocks
from selector.lowering.tiles import Banded

CORE_BYTES = 128
COLUMNS = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """The band of an operand for one value of the loops that its taps depend on, by variable."""

    operand: Banded
    values: tuple[int, ...]

    @property
    def blocks(self) -> int:
        """Core matrices; depth is padded with zeros to whole instructions of two."""
        return -(-depth_blocks(self.operand) // 2) * 2

    @property
    def bytes(self) -> int:
        return self.blocks * CORE_BYTES


class CoreBands:
    """The entries of a kernel. ``lay`` before its body is written, ``fill`` at its start."""

    def __init__(self, context: KernelContext, tables: BandTables) -> None:
        self.context, self.tables = context, tables
        self.pointer = ""
        self.places: dict[Entry, int] = {}  # bytes from the first one

    def __bool__(self) -> bool:
        return bool(self.places)

    def lay(self, chains: list[list[Entry]]) -> None:
        """Make room for entries, those of a chain side by side."""
        total = 0
        for chain in chains:
            for entry in chain:
                self.places[entry] = total
                total += entry.bytes
        if not total:
            return
        what = {entry.operand.buffer: None for entry in self.places}
        offset = self.context.allocate_shared(total, f"bands of {', '.join(what)}")
        self.pointer = self.context.names.fresh("bands")
        self.context.writer.line(f"unsigned char* const {self.pointer} = smem + {offset};")

    def fill(self, unit: Unit) -> None:
        """Write all entries out of the padded taps, 16 bytes of a column at a time."""
        pending = list(self.places)
        while pending:
            run = self._run(pending)
            self._fill_run(run, unit)
            pending = pending[len(run) :]

    def _run(self, entries: list[Entry]) -> list[Entry]:
        """The first entries, as long as the padded taps of each lie as far from those before."""
        first, *rest = entries
        run = [first]
        for entry in rest:
            if entry.operand is not first.operand and entry.operand != first.operand:
                break
            if len(run) > 1 and self._step(run[-1], entry) != self._step(run[-2], run[-1]):
                break
            run.append(entry)
        return run

    def _step(self, a: Entry, b: Entry) -> int:
        return self._taps(b) - self._taps(a)

    def _taps(self, entry: Entry) -> int:
        return self.tables.place(entry.operand, entry.values)

    def _fill_run(self, run: list[Entry], unit: Unit) -> None:
        w, first = self.context.writer, run[0]
        parts, known = first.blocks * COLUMNS, depth_blocks(first.operand)
        step = self._step(first, run[1]) if len(run) > 1 else 0
        w.line(f"// {len(run)} bands of {known} x {COLUMNS} x {BLOCK_BYTES} bytes")
        rank, size = unit.rank.removeprefix("(int)"), unit.size
        loop = f"for (int item = {rank}; item < {len(run) * parts}; item += {size})"
        with w.block(loop):
            w.line(f"const int entry = item / {parts}, part = item % {parts};")
            start = self.tables.window(first.operand, f"part % {COLUMNS}")
            w.line(f"const u32* const from = {start} + {self._taps(first)} + entry * {step}")
            w.line(f"    + part / {COLUMNS} * {BLOCK_BYTES // 4};")
            vector = "make_uint4(from[0], from[1], from[2], from[3])"
            if known < first.blocks:
                zero = "make_uint4(0, 0, 0, 0)"
                vector = f"part < {known * COLUMNS} ? {vector} : {zero}"
            place = self.places[first]
            w.line(f"*(uint4*)({self.pointer} + {place} + item * {BLOCK_BYTES}) = {vector};")
