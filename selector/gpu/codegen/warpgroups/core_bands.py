"""Banded operands of wgmma in shared memory, as core matrices.

A core matrix is 8 columns x 16 bytes of depth, 128 bytes in a row, which is what wgmma reads
without a swizzle (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout"). The band of
one row of taps is an *entry*: its core matrices along the depth, one after the other. Entries that
meet the same window for accumulators side by side follow each other, so that one instruction takes
them all: its columns are 8 of every entry.

An instruction takes two core matrices of depth. Where a band has an odd number of them, the last
ones of two rows of taps are a *pair* beside the entries: one instruction adds both, for two
neighbouring rows of the image (``window_pairs``).

The words come out of the zero-padded taps of ``banded``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import reduce
from typing import TypeVar

import numpy as np

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.products.banded import WORD, BandTables
from selector.gpu.codegen.units import Unit
from selector.gpu.ir.builder import Builder
from selector.gpu.ir.expressions import (
    element,
    less,
    moved,
    number,
    pointer,
    quotient,
    remainder,
    times,
)
from selector.gpu.ir.layouts import in_bytes
from selector.gpu.ir.memory import Point, StoreWords
from selector.gpu.ir.nodes import Comment, Let, Memory
from selector.gpu.ir.views import View
from selector.ir.nodes import Expr
from selector.ir.types import UINT32
from selector.lowering.fragments import BLOCK_BYTES, depth_blocks
from selector.lowering.tiles import Banded

CORE_BYTES = 128
COLUMNS = 8
CHUNK_WORDS = BLOCK_BYTES // 4
ZEROS = (number(0),) * CHUNK_WORDS
TAPS = tuple(element(UINT32, pointer("from"), n) for n in range(CHUNK_WORDS))  # of a column

T = TypeVar("T", bound=Hashable)
E = TypeVar("E", bound="Entry | None")


@dataclass(frozen=True, slots=True)
class Entry:
    """The band of an operand for one value of the loops that its taps depend on, by variable."""

    operand: Banded
    values: tuple[int, ...]
    paired: bool = False  # without the last one of an odd number of core matrices
    first: int = 0  # of a band of more columns

    @property
    def columns(self) -> int:
        """Of a window: 8, or fewer of a part of an instruction (``part_products``)."""
        return min(COLUMNS, self.operand.rows)

    @property
    def known(self) -> int:
        """Core matrices that hold taps."""
        return depth_blocks(self.operand)

    @property
    def blocks(self) -> int:
        """Core matrices; depth is padded with zeros to whole instructions of two."""
        return self.known - 1 if self.paired else -(-self.known // 2) * 2

    @property
    def bytes(self) -> int:
        return self.blocks * CORE_BYTES


@dataclass(frozen=True, slots=True)
class Pair:
    """The last core matrices of two entries; None: zeros, of one of them at most."""

    first: Entry | None
    second: Entry | None

    @property
    def halves(self) -> tuple[Entry | None, Entry | None]:
        return self.first, self.second

    @property
    def operand(self) -> Banded:
        entry = self.first or self.second
        assert entry is not None
        return entry.operand

    @property
    def columns(self) -> int:
        return min(COLUMNS, self.operand.rows)

    @property
    def blocks(self) -> int:
        return 2

    @property
    def bytes(self) -> int:
        return self.blocks * CORE_BYTES


def taps_at(entry: Entry, tables: BandTables) -> int:
    """Words from the first value of the loops to an entry's padded taps."""
    return tables.place(entry.operand, entry.values)


def run_of(entries: list[Entry], tables: BandTables) -> list[Entry]:
    """The first entries, as long as the padded taps of each lie as far from those before."""
    first, *rest = entries
    run, places = [first], [taps_at(first, tables)]
    for entry in rest:
        if entry.operand is not first.operand and entry.operand != first.operand:
            break
        if entry.first != first.first:
            break
        at = taps_at(entry, tables)
        if len(run) > 1 and at - places[-1] != places[-1] - places[-2]:
            break
        run.append(entry)
        places.append(at)
    return run


def chains_of(entries: list[T], following: dict[T, T]) -> list[list[T]]:
    """Entries in an order in which as many as possible are followed by the one that should."""
    led = set(following.values())
    chains: list[list[T]] = []
    placed: set[T] = set()
    for head in (*(e for e in entries if e not in led), *entries):
        chain: list[T] = []
        at: T | None = head
        while at is not None and at not in placed:
            chain.append(at)
            placed.add(at)
            at = following.get(at)
        if chain:
            chains.append(chain)
    return chains


def over_items(items: int, unit: Unit, writer: Builder) -> AbstractContextManager[None]:
    """A loop over so many items, which the threads of a unit take in turn."""
    return writer.loop("item", unit.thread, number(items), step=number(unit.size))


def behind(memory: str, *parts: Expr) -> View:
    """What lies so many elements behind the begin of a memory."""
    return View(memory, index=reduce(moved, parts))


def place_bands(total: int, entries: Iterable[Entry | Pair], context: KernelContext) -> str:
    """So many bytes for bands of which nothing is written, by their pointer; declares it."""
    what = {entry.operand.buffer: None for entry in entries}
    offset = context.shared.allocate(total, f"bands of {', '.join(what)}")
    name = context.names.fresh("bands")
    layout = in_bytes((BLOCK_BYTES,))
    blocks = total // BLOCK_BYTES
    context.writer.add(Memory(name, "unsigned char", offset, 1, total, (blocks,), layout))
    context.facts.numbers[name] = np.zeros(blocks, np.bool_)
    return name


class CoreBands:
    """The entries of a kernel. ``lay`` before its body is written, ``fill`` at its start."""

    def __init__(self, context: KernelContext, tables: BandTables) -> None:
        self.context, self.tables = context, tables
        self.pointer = ""
        self.places: dict[Entry | Pair, int] = {}  # bytes from the first one

    def __bool__(self) -> bool:
        return bool(self.places)

    def lay(self, chains: list[list[Entry | Pair]]) -> None:
        """Make room for entries, those of a chain side by side."""
        total = 0
        for chain in chains:
            for entry in chain:
                self.places[entry] = total
                total += entry.bytes
        if not total:
            return
        self.pointer = place_bands(total, self.places, self.context)

    def _filled(self, place: int, pitch: int, count: int, chunks: int) -> None:
        """What is written: ``count`` times so many 16 bytes, ``pitch`` bytes apart."""
        at = place + pitch * np.arange(count)[:, None] + BLOCK_BYTES * np.arange(chunks)
        self.context.facts.numbers[self.pointer][at // BLOCK_BYTES] = True

    def fill(self, unit: Unit) -> None:
        """Write all entries out of the padded taps, 16 bytes of a column at a time."""
        entries = [(at, e) for e, at in self.places.items() if isinstance(e, Entry)]
        for run in self._runs(entries):
            self._fill_run(run, unit)
        pairs = [p for p in self.places if isinstance(p, Pair)]
        for half in range(2 if pairs else 0):
            halves = [(self.places[p] + half * CORE_BYTES, p.halves[half]) for p in pairs]
            for run in self._runs(halves):
                self._fill_halves(run, unit)

    def _runs(self, items: Sequence[tuple[int, E]]) -> list[list[tuple[int, E]]]:
        """What is written together: zeros, or the same columns of bands, at places as far from each
        other as those of their padded taps are.
        """
        kinds: dict[Hashable, list[tuple[int, E]]] = {}
        for at, entry in items:
            kind = None if entry is None else (entry.operand, entry.first, entry.blocks)
            kinds.setdefault(kind, []).append((at, entry))
        found: list[list[tuple[int, E]]] = []
        for same in kinds.values():
            run: list[tuple[int, E]] = []
            for item in same:
                if len(run) > 1 and self._step(run[-1], item) != self._step(run[-2], run[-1]):
                    found.append(run)
                    run = []
                run.append(item)
            found.append(run)
        return sorted(found, key=lambda run: run[0][0])

    def _step(self, a: tuple[int, Entry | None], b: tuple[int, Entry | None]) -> tuple[int, int]:
        """Bytes from one place to another, words from the taps of one to those of the other."""
        (here, one), (there, other) = a, b
        if one is None or other is None:
            return there - here, 0
        return there - here, taps_at(other, self.tables) - taps_at(one, self.tables)

    def _fill_run(self, run: list[tuple[int, Entry]], unit: Unit) -> None:
        w, (place, first) = self.context.writer, run[0]
        parts, known = first.blocks * COLUMNS, depth_blocks(first.operand)
        taps = taps_at(first, self.tables)
        pitch, step = self._step(*run[:2]) if len(run) > 1 else (first.bytes, 0)
        w.add(Comment(f"{len(run)} bands of {known} x {COLUMNS} x {BLOCK_BYTES} bytes"))
        with over_items(len(run) * parts, unit, w):
            digits = quotient("item", parts), remainder("item", parts)
            w.add(Let("int", ("entry", "part"), digits))
            column = moved(remainder("part", COLUMNS), first.first)
            further = (
                number(taps),
                times("entry", step),
                times(quotient("part", COLUMNS), CHUNK_WORDS),
            )
            w.add(Point("from", WORD, self.tables.window(first.operand, column, *further), "terms"))
            at: tuple[Expr, ...] = number(place), times("item", BLOCK_BYTES)
            if pitch != first.bytes:
                at = number(place), times("entry", pitch), times("part", BLOCK_BYTES)
            some = less("part", known * COLUMNS) if known < first.blocks else None
            w.add(StoreWords(behind(self.pointer, *at), TAPS, some))
        self._filled(place, pitch, len(run), parts)

    def _fill_halves(self, run: list[tuple[int, Entry | None]], unit: Unit) -> None:
        w, (place, first) = self.context.writer, run[0]
        pitch, step = self._step(*run[:2]) if len(run) > 1 else (2 * CORE_BYTES, 0)
        what = "zeros" if first is None else "last blocks"
        w.add(Comment(f"{len(run)} {what} in pairs of {COLUMNS} x {BLOCK_BYTES} bytes"))
        with over_items(len(run) * COLUMNS, unit, w):
            digits = quotient("item", COLUMNS), remainder("item", COLUMNS)
            w.add(Let("int", ("pair", "part"), digits))
            if first is not None:
                block = number(taps_at(first, self.tables) + (first.known - 1) * CHUNK_WORDS)
                further, column = (block, times("pair", step)), moved("part", first.first)
                w.add(
                    Point(
                        "from", WORD, self.tables.window(first.operand, column, *further), "terms"
                    )
                )
            at = number(place), times("pair", pitch), times("part", BLOCK_BYTES)
            words = ZEROS if first is None else TAPS
            w.add(StoreWords(behind(self.pointer, *at), words))
        self._filled(place, pitch, len(run), COLUMNS)
