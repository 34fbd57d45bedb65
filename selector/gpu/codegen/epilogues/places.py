"""Where the elements of an accumulator block go: in a lane's registers, and in what is stored.

Stored as they lie (``gpu.ir.lane_maps``), eight rows of a tile get 32 bytes each, or 16 of halves.
Where tiles lie side by side, lanes q and q + 1 exchange halves: the even one stores four columns of
a tile, the odd one four of the next, and a row gets 64 bytes at once. Of 16 bits all four lanes of
a row exchange pairs, each gets eight columns of a row, and 16 rows get whole sectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import cache

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.epilogues.regions import LANE_PAIR, LANE_ROW, Element, Region
from selector.gpu.codegen.scalars.storage import Space
from selector.gpu.ir.expressions import FALSE, moved, times
from selector.gpu.ir.lane_maps import PAIRS
from selector.ir.affine import Affine, to_affine
from selector.ir.lanes import Digits, lane
from selector.ir.nodes import Expr, Load, Store, Var

ROW = Affine.of(LANE_ROW)
COLUMN = Affine.of(LANE_PAIR) * 2


def tiles_of(region: Region) -> list[tuple[int, int]]:
    rows, columns = region.tiles
    return [(i, j) for i in range(rows) for j in range(columns)]


@cache
def row_at(down: int) -> Expr:
    """The row so many below that of a lane's first element."""
    return moved("g", down)


@cache
def column_at(across: int) -> Expr:
    return moved(times("q", 2), across)


def pairs_of(region: Region) -> list[Element]:
    """The left one of every two neighbours that a lane holds."""
    return [(i, j, e) for i, j in tiles_of(region) for e in PAIRS]


@dataclass(frozen=True, slots=True, eq=False)
class IndexForm:
    """A store index that is affine in the block's coordinates: ``base + m * row + n * column``."""

    base: Affine
    m: Affine
    n: Affine
    lane: Affine  # the index of this lane's first element
    shifted: dict[tuple[int, int], tuple[Affine, int]]

    def at(self, region: Region, element: Element) -> tuple[Affine, int]:
        """The index of an element as (symbolic part, constant)."""
        row, column = region.offsets(element)
        m, n = (column, row) if region.swapped else (row, column)
        steps = self.m.constant, self.n.constant
        key = (0 if steps[0] is not None else m, 0 if steps[1] is not None else n)
        if key not in self.shifted:
            index = self.lane + self.m * key[0] + self.n * key[1]
            self.shifted[key] = (index - index.offset, index.offset)
        symbolic, offset = self.shifted[key]
        return symbolic, offset + (steps[0] or 0) * m + (steps[1] or 0) * n


@dataclass(frozen=True, slots=True, eq=False)
class ReadOut:
    """A read-out statement: the accumulator load that gives its order, its blocks, their index
    forms.
    """

    store: Store
    source: Load
    regions: list[tuple[Region, Digits]]
    forms: list[IndexForm | None]
    elements: dict[Digits, tuple[Expr, Affine]] = field(
        default_factory=dict[Digits, tuple[Expr, Affine]]
    )
    conditions: dict[Digits, Expr] = field(default_factory=dict[Digits, Expr])

    def element(self, digits: Digits) -> tuple[Expr, Affine]:
        """The value of an element, and its index in the accumulators."""
        if digits not in self.elements:
            index = to_affine(lane(self.source.index, digits))
            self.elements[digits] = (lane(self.store.value, digits), index)
        return self.elements[digits]

    def condition(self, predicate: Expr, digits: Digits) -> Expr:
        """The store's predicate at an element."""
        if predicate.type.lanes == 1:
            return predicate
        counting = tuple((d, n) for d, n in digits if n != 1)
        if counting not in self.conditions:
            self.conditions[counting] = lane(predicate, counting)
        return self.conditions[counting]


def index_form(index: Expr, region: Region, outer: Digits) -> IndexForm | None:
    n, m = Var("$n"), Var("$m")
    parts = to_affine(lane(index, ((n, region.n), (m, region.m), *outer))).parts(m, n)
    if parts is None:
        return None
    base, by_m, by_n = parts
    at_m, at_n = (COLUMN, ROW) if region.swapped else (ROW, COLUMN)
    return IndexForm(base, by_m, by_n, base + by_m * at_m + by_n * at_n, {})


def chunk_flag(plan: ReadOut, context: KernelContext) -> Expr | None:
    """The uniform condition for storing 16 bytes at once, of which a lane has a part and those
    beside it the rest; None if never, or if two at a time are neighbours of the next row's.
    """
    buffer = plan.store.buffer
    storage = context.storages[buffer]
    if storage.space is not Space.GLOBAL or storage.type.bytes not in (2, 4):
        return None
    elements = 16 // storage.type.bytes
    for (region, _), form in zip(plan.regions, plan.forms, strict=True):
        if form is None or region.swapped or form.n.constant != 1:
            return None
        if region.tiles[1] % 2 or form.m.constant == 8:
            return None
        if not context.is_multiple(form.base + form.m * LANE_ROW, elements, buffer):
            return None
    flag = context.aligned_flag(buffer, elements)
    return None if flag == FALSE else flag


def quads(region: Region) -> Iterator[list[Element]]:
    """The elements that a lane brings to each exchange: two of a tile, two of the one beside it."""
    for i, j, half in pairs_of(region):
        if j % 2 == 0:
            yield [(i, j + tile, half + e) for tile in (0, 1) for e in (0, 1)]


def eights(region: Region) -> Iterator[list[Element]]:
    """The left ones of the pairs that a lane brings to each exchange: of a tile and of the one
    beside it, and of both eight rows below.
    """
    rows, columns = region.tiles
    for i in range(rows):
        for j in range(0, columns, 2):
            yield [(i, j + tile, half) for half in PAIRS for tile in (0, 1)]


def has_runs(plan: ReadOut, context: KernelContext) -> bool:
    """Whether rows of a caller's array get neighbours of 16 bits, wherever rows begin."""
    storage = context.storages[plan.store.buffer]
    if storage.space is not Space.GLOBAL or storage.param is None or storage.type.bytes != 2:
        return False
    return all(
        form is not None and form.n.constant == 1 and not region.swapped and region.parts == 1
        for (region, _), form in zip(plan.regions, plan.forms, strict=True)
    )


def runs_of(region: Region, form: IndexForm) -> Iterator[tuple[int, list[Element]]]:
    """Pairs that follow each other, the left element of each, and how many lanes have as many more
    between one and the next: those of a row, or all where rows of eight follow each other.
    """
    rows, columns = region.tiles
    for i in range(rows):
        if columns == 1 and form.m.constant == 8:
            yield 32, [(i, 0, half) for half in PAIRS]
        else:
            yield from ((4, [(i, j, half) for j in range(columns)]) for half in PAIRS)


def digits_of(region: Region, element: Element, outer: Digits) -> Digits:
    """The lane number of element e of tile (i, j), as digits (n, m, region)."""
    down, across = region.offsets(element)
    row, column = (ROW + down).to_expr(), (COLUMN + across).to_expr()
    m, n = (column, row) if region.swapped else (row, column)
    return ((n, region.n), (m, region.m), *outer)
