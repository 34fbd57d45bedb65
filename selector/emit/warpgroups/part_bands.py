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

from selector.emit.banded import WORD, BandTables
from selector.emit.context import KernelContext
from selector.emit.units import Unit
from selector.emit.warpgroups.core_bands import (
    CHUNK_WORDS,
    COLUMNS,
    TAPS,
    ZEROS,
    Entry,
    behind,
    over_items,
    place_bands,
    run_of,
    taps_at,
)
from selector.gpu.ir.expressions import less, moved, number, quotient, remainder, times
from selector.gpu.ir.memory import Point, StoreWords
from selector.gpu.ir.nodes import Comment, Let
from selector.gpu.ir.views import View
from selector.ir.nodes import Expr
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
        for n, piece in enumerate(wanted):
            if isinstance(piece, tuple):
                entry, block = piece
                at = block * len(self._contents) + self._places[entry] - n
                break
        if at is None or at < 0 or at + len(wanted) > self.blocks * len(self._contents):
            return None
        fits = (isinstance(w, str) or self._at(at + n) == w for n, w in enumerate(wanted))
        return at if all(fits) else None

    def _at(self, n: int) -> Piece:
        block, place = divmod(n, len(self._contents))
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
        w.add(Comment(f"{len(run)} bands of {first.known} x {self.columns} x {BLOCK_BYTES} bytes"))
        with over_items(len(run) * parts, unit, w):
            digits = quotient("item", parts), remainder("item", parts)
            w.add(Let("int", ("entry", "part"), digits))
            digits = quotient("part", self.columns), remainder("part", self.columns)
            w.add(Let("int", ("block", "column"), digits))
            further = number(taps), times("entry", step), times("block", CHUNK_WORDS)
            start = self.tables.window(first.operand, number("column"), *further)
            w.add(Point("from", WORD, start, "terms"))
            to = self._place(moved(at, "entry"), "column")
            some = less("block", first.known) if first.known < self.blocks else None
            w.add(StoreWords(to, TAPS, some))
        self._filled(at, len(run))

    def _fill_zeros(self, at: int, count: int, unit: Unit) -> None:
        w, parts = self.context.writer, count * self.columns
        w.add(Comment(f"zeros of {count} bands"))
        with over_items(self.blocks * parts, unit, w):
            digits = quotient("item", parts), remainder("item", parts)
            w.add(Let("int", ("block", "part"), digits))
            w.add(StoreWords(self._place(number(at), "part"), ZEROS))
        self._filled(at, count)

    def _filled(self, first: int, count: int) -> None:
        """What is written: so many pieces of each 16 bytes of depth."""
        numbers = self.context.contents.numbers[self.pointer]
        numbers.reshape(self.blocks, -1, self.columns)[:, first : first + count] = True

    def _place(self, piece: Expr, column: str) -> View:
        """Where a column of a ``block`` of a piece is written."""
        pieces = moved(piece, times("block", len(self._contents)))
        start = times(pieces, self.piece_bytes)
        return behind(self.pointer, start, times(column, BLOCK_BYTES))
