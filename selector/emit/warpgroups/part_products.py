"""Instructions of wgmma that several rows of outputs share, a few columns each (``part_bands``).

A row of the image meets neighbouring rows of outputs. An instruction takes whole core matrices of
columns: rows of outputs beside these, in the first and last one, meet zeros. So a NaN in the image
spreads to rows of outputs that just do not reach it, as one beside a window does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

from selector.diagnostics import ScheduleError, Where
from selector.emit.banded import BandTables
from selector.emit.context import KernelContext
from selector.emit.warpgroups.core_bands import COLUMNS, CORE_BYTES, Entry, Pair, chains_of
from selector.emit.warpgroups.part_bands import PartBands, Piece
from selector.emit.warpgroups.window_code import WIDEST, BandAddress, WindowProduct

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
