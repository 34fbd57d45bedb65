"""Bands of fewer than 8 columns, which instructions of wgmma share.

Windows that a descriptor names start 16 bytes after each other. Outputs that lie ``f`` pixels apart
fill ``8 / f`` columns of a window, and a core matrix of B, which has 8 (``core_bands``), holds the
bands of ``f`` rows of outputs. What a row of the image meets, row of outputs by row of outputs,
are the bands of rows of taps that lie some rows apart: these are laid side by side.

A *piece* is 16 bytes of depth of all columns of a band. For each 16 bytes of depth the table has
the pieces of all bands, one chain of neighbours after the other, with zeros between chains: an
instruction begins at any piece, and columns that fill up its first and last core matrix meet zeros.
Two 16 bytes of depth are a whole table apart, so that all descriptors name the same distances, but
for those of the last ones of two rows of the image, which lie in two chains (``window_pairs``).
"""

from __future__ import annotations

from collections.abc import Sequence

from selector.emit.banded import BandTables
from selector.emit.context import KernelContext
from selector.emit.units import Unit
from selector.emit.warpgroups.core_bands import (
    COLUMNS,
    TAPS,
    ZERO,
    Entry,
    items_loop,
    place_bands,
    run_of,
    taps_at,
)
from selector.lowering.fragments import BLOCK_BYTES

Piece = tuple[Entry, int] | None  # which 16 bytes of depth of which band; zeros


class PartBands:
    """The bands of ``columns`` columns of a kernel. ``arrange`` and ``lay`` before its body is
    written, ``fill`` at its start.
    """

    def __init__(self, columns: int, context: KernelContext, tables: BandTables) -> None:
        self.columns, self.context, self.tables = columns, context, tables
        self.pointer = ""
        self.blocks = 0  # of 16 bytes of depth
        self._contents: list[Entry | None] = []  # of each block
        self._places: dict[Entry, int] = {}

    @property
    def piece_bytes(self) -> int:
        return self.columns * BLOCK_BYTES

    def arrange(self, chains: Sequence[Sequence[Entry]], blocks: int) -> None:
        """Find places for bands, those of a chain side by side, with so many blocks of depth."""
        self._contents, self._places = [], {}
        # Beside a chain: rows that fill up a core matrix, and one that the other of a pair reaches.
        zeros: list[Entry | None] = [None] * (COLUMNS // self.columns)
        for chain in chains:
            self._contents += zeros
            for entry in chain:
                self._places[entry] = len(self._contents)
                self._contents.append(entry)
        self._contents += zeros
        self.blocks = max([blocks, *(entry.known for entry in self._places)])

    def lay(self) -> None:
        """Make room for them."""
        total = self.blocks * len(self._contents) * self.piece_bytes
        self.pointer = place_bands(total, self._places, self.context)

    # ------------------------------------------------------------------ where pieces lie

    def start(self, wanted: Sequence[Piece | str], behind: int | None = None) -> int | None:
        """The piece from which these lie side by side, where one that is no ``Piece`` may be
        anything; None if they do not. Where all are zeros, those a table ``behind`` a piece.
        """
        at = None if behind is None else behind + len(self._contents)
        for number, piece in enumerate(wanted):
            if isinstance(piece, tuple):
                entry, block = piece
                at = block * len(self._contents) + self._places[entry] - number
                break
        if at is None or at < 0 or at + len(wanted) > self.blocks * len(self._contents):
            return None
        fits = (isinstance(w, str) or self._at(at + n) == w for n, w in enumerate(wanted))
        return at if all(fits) else None

    def _at(self, number: int) -> Piece:
        block, place = divmod(number, len(self._contents))
        entry = self._contents[place]
        return None if entry is None or block >= entry.known else (entry, block)

    # ------------------------------------------------------------------ text

    def fill(self, unit: Unit) -> None:
        """Write all pieces out of the padded taps, 16 bytes of a column at a time."""
        at = 0
        while at < len(self._contents):
            rest = self._contents[at:]
            count = next((i for i, e in enumerate(rest) if (e is None) != (rest[0] is None)), None)
            entries = [e for e in rest[:count] if e is not None]
            if entries:
                run = run_of(entries, self.tables)
                self._fill_run(run, at, unit)
                at += len(run)
            else:
                count = len(rest) if count is None else count
                self._fill_zeros(at, count, unit)
                at += count

    def _fill_run(self, run: list[Entry], at: int, unit: Unit) -> None:
        w, first = self.context.writer, run[0]
        parts = self.blocks * self.columns
        taps = taps_at(first, self.tables)
        step = taps_at(run[1], self.tables) - taps if len(run) > 1 else 0
        w.line(f"// {len(run)} bands of {first.known} x {self.columns} x {BLOCK_BYTES} bytes")
        with w.block(items_loop(len(run) * parts, unit)):
            w.line(f"const int entry = item / {parts}, part = item % {parts};")
            w.line(f"const int block = part / {self.columns}, column = part % {self.columns};")
            start = self.tables.window(first.operand, "column")
            w.line(f"const u32* const from = {start} + {taps} + entry * {step}")
            w.line(f"    + block * {BLOCK_BYTES // 4};")
            vector = TAPS
            if first.known < self.blocks:
                vector = f"block < {first.known} ? {TAPS} : {ZERO}"
            place = f"({at} + entry + block * {len(self._contents)}) * {self.piece_bytes}"
            self._write(f"{place} + column * {BLOCK_BYTES}", vector)
        self._filled(at, len(run))

    def _fill_zeros(self, at: int, count: int, unit: Unit) -> None:
        w, parts = self.context.writer, count * self.columns
        w.line(f"// zeros of {count} bands")
        with w.block(items_loop(self.blocks * parts, unit)):
            w.line(f"const int block = item / {parts}, part = item % {parts};")
            place = f"({at} + block * {len(self._contents)}) * {self.piece_bytes}"
            self._write(f"{place} + part * {BLOCK_BYTES}", ZERO)
        self._filled(at, count)

    def _filled(self, first: int, count: int) -> None:
        """What is written: so many pieces of each 16 bytes of depth."""
        numbers = self.context.numbers[self.pointer]
        numbers.reshape(self.blocks, -1, self.columns)[:, first : first + count] = True

    def _write(self, place: str, vector: str) -> None:
        self.context.writer.line(f"*(uint4*)({self.pointer} + {place}) = {vector};")
