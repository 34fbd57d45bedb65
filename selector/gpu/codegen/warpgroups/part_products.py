"""Instructions of wgmma that several rows of outputs share: bands of fewer than 8 columns.

Windows that a descriptor names start 16 bytes after each other. Outputs that lie ``f`` pixels apart
fill ``8 / f`` columns of a window, and a core matrix of B, which has 8 (``core_bands``), holds the
bands of ``f`` rows of outputs. What a row of the image meets, row of outputs by row of outputs,
are the bands of rows of taps that lie some rows apart: these are laid side by side. An instruction
takes whole core matrices of columns: rows of outputs beside these, in the first and last one, meet
zeros. So a NaN in the image spreads to rows of outputs that just do not reach it, as one beside a
window does.

A *piece* is 16 bytes of depth of all columns of a band. For each 16 bytes of depth the table has
the pieces of all bands, one chain of neighbours after the other, with zeros between chains: an
instruction begins at any piece, and columns that fill up its first and last core matrix meet zeros.
Two 16 bytes of depth are a whole table apart, so that all descriptors name the same distances, but
for those of the last ones of two rows of the image, which lie in two chains (``window_pairs``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

from selector.diagnostics import ScheduleError, Where
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.products.banded import WORD, BandTables
from selector.gpu.codegen.units import Unit
from selector.gpu.codegen.warpgroups.core_bands import (
    CHUNK_WORDS,
    COLUMNS,
    CORE_BYTES,
    TAPS,
    ZEROS,
    Entry,
    Pair,
    behind,
    chains_of,
    over_items,
    place_bands,
    run_of,
    taps_at,
)
from selector.gpu.codegen.warpgroups.window_code import WIDEST, BandAddress, WindowProduct
from selector.gpu.ir.expressions import less, moved, number, quotient, remainder, times
from selector.gpu.ir.memory import Point, StoreWords
from selector.gpu.ir.nodes import Comment, Let
from selector.gpu.ir.views import View
from selector.ir.nodes import Expr
from selector.lowering.fragments import BLOCK_BYTES

ANYTHING = "columns that hold no output"


class PartProducts:
    """Those of a kernel, for parts of ``columns`` columns."""

    def __init__(self, columns: int, context: KernelContext, tables: BandTables) -> None:
        self.context = context
        self.share = COLUMNS // columns
        self.bands = PartBands(columns, context, tables)

    def arrange(self, runs: Sequence[Sequence[WindowProduct]]) -> bool:
        """Find places for the bands of all runs of products, each in the order of windows, then of
        accumulators. Whether all products become instructions then.
        """
        following: dict[Entry, Entry] = {}
        seen: dict[Entry, None] = {}
        lower: set[Entry] = set()  # of pairs: behind those of the row above
        blocks = 0
        for products in runs:
            halves = [_halves(p) for p in products]
            seen |= {piece[0]: None for two in halves for piece in two if piece is not None}
            for (p, ours), (q, theirs) in pairwise(zip(products, halves, strict=True)):
                if p.window == q.window and q.first == p.first + 1:
                    for a, b in zip(ours, theirs, strict=True):
                        if a is not None and b is not None:
                            following.setdefault(a[0], b[0])
            pairs = [p.entry for p in products if isinstance(p.entry, Pair)]
            lower |= {_whole(pair.second) for pair in pairs if pair.second is not None}
            blocks = max([blocks, *(_blocks(p) for p in products)])
        chains = chains_of(list(seen), following)
        chains.sort(key=lambda chain: any(entry in lower for entry in chain))
        self.bands.arrange(chains, blocks)
        return None not in [self._joined(t) for run in runs for g in self._groups(run) for t in g]

    def join(self, products: Iterable[WindowProduct]) -> list[WindowProduct]:
        """The instructions: of neighbouring columns that meet the same windows."""
        found: list[WindowProduct] = []
        for tiles in self._groups(products):
            whole = self._joined([p for tile in tiles for p in tile])
            parts = [whole] if whole is not None else [self._joined(tile) for tile in tiles]
            for part, tile in zip(parts, tiles, strict=False):
                if part is None:
                    raise _not_side_by_side(tile[0])
                found.append(part)
        return found

    def _groups(self, products: Iterable[WindowProduct]) -> Iterator[list[list[WindowProduct]]]:
        """Products of one window, by tiles of accumulators, as long as these are neighbours."""
        for _, same in groupby(products, key=lambda p: p.window):
            group: list[list[WindowProduct]] = []
            last = 0
            for tile, members in groupby(same, key=lambda p: p.first // self.share):
                if group and (tile != last + 1 or COLUMNS * len(group) == WIDEST):
                    yield group
                    group = []
                group.append(list(members))
                last = tile
            yield group

    def _joined(self, products: list[WindowProduct]) -> WindowProduct | None:
        """One instruction for all of them; None if their bands do not lie side by side."""
        model, last = products[0], products[-1]
        low, high = model.first // self.share, last.first // self.share + 1
        known = {p.first: _halves(p) for p in products}
        if len(known) < len(products):
            return None  # two for the same accumulators
        regions = self.context.registers.accumulators[model.accumulator].regions.values()
        used = max(r.offset // (r.m * r.n) for r in regions) + 1
        columns = range(low * self.share, high * self.share)
        nothing = [ANYTHING if c >= used else None for c in columns]
        wanted = [
            [known[c][half] if c in known else n for c, n in zip(columns, nothing, strict=True)]
            for half in (0, 1)
        ]
        first = self.bands.start(wanted[0])
        second = None if first is None else self.bands.start(wanted[1], behind=first)
        if first is None or second is None or second < first:
            return None
        size = self.bands.piece_bytes
        band = BandAddress(self.bands.pointer, first * size, (second - first) * size, CORE_BYTES)
        return replace(model, first=low, n=COLUMNS * (high - low), band=band)


def _halves(p: WindowProduct) -> tuple[Piece, Piece]:
    """What the two 16 bytes of depth of a product meet."""
    match p.entry:
        case Entry() as entry:
            whole, blocks = _whole(entry), (2 * p.step, 2 * p.step + 1)
            one, other = ((whole, b) if b < entry.known else None for b in blocks)
        case Pair(first, second):
            one, other = (None if e is None else (_whole(e), e.known - 1) for e in (first, second))
    return one, other


def _whole(entry: Entry) -> Entry:
    """The one name of a band, whether or not its last 16 bytes of depth are in a pair."""
    return replace(entry, paired=False) if entry.paired else entry


def _blocks(p: WindowProduct) -> int:
    """Of depth, that a product needs to be there: beside the last one of a row alone, zeros."""
    match p.entry:
        case Entry():
            return 2 * p.step + 2
        case Pair(Entry() as entry, None):
            return entry.known + 1
        case _:
            return 0


def _not_side_by_side(p: WindowProduct) -> ScheduleError:
    return ScheduleError(
        f"the bands that rows of `{p.accumulator}` meet lie in no order that an instruction takes",
        f"{COLUMNS // p.entry.columns} rows of outputs share an instruction of {COLUMNS} columns",
        "let the rows of a group and the rows of taps be whole loops of the update",
        Where(func=p.accumulator),
    )


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
        numbers = self.context.facts.numbers[self.pointer]
        numbers.reshape(self.blocks, -1, self.columns)[:, first : first + count] = True

    def _place(self, piece: Expr, column: str) -> View:
        """Where a column of a ``block`` of a piece is written."""
        pieces = moved(piece, times("block", len(self._contents)))
        start = times(pieces, self.piece_bytes)
        return behind(self.pointer, start, times(column, BLOCK_BYTES))
