"""What memory holds where no statement writes it.

A product reads more than the sums as written need: a band has zeros beside its taps, a mask makes
one factor zero, and an instruction takes whole steps of its depth. There the other factor has to be
a number, because zero times NaN is NaN, and memory that nobody wrote holds whatever ran before. So
of an element that no statement writes, one of these is true, and nothing else:

- it is never read: an operand that comes element by element stops at its depth;
- it is read by lanes whose results are never stored: rows and columns of a tile that hang over;
- it is zero, because the allocation that it lies in says so. This module finds the elements of
  staged buffers that a product reads beside a zero and that are not written before, and they are
  zeroed once, before anything else touches the buffer: ``windows.with_zeros`` does it for the
  interpreter, ``codegen.placement`` in a kernel. What a copy fills beyond its rows counts as
  written: it knows that itself (``codegen.copies.recognise``).

Elements of arrays, and what a copy takes from beside its rows, are the caller's numbers: his NaN
beside a zero is one in the result (docs, "Limits").

What is not known is not written, and what is read of such a buffer is all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from functools import reduce
from math import prod

import numpy as np

from selector.dataclass import dataclass
from selector.intrinsics.calls import TOEPLITZ, TOEPLITZ_TRANSPOSED
from selector.intrinsics.records import decodes, find
from selector.intrinsics.regions import (
    Marks,
    Places,
    Range,
    Ranges,
    Reach,
    Runs,
    places,
    runs_of,
    zeros,
)
from selector.ir.access import access
from selector.ir.affine import Affine
from selector.ir.nodes import (
    Allocate,
    Call,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    LetStmt,
    Load,
    Select,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import literal, mul
from selector.ir.traverse import stmt_children, walk_expr, walk_stmt

Filled = tuple[Affine, Ranges]  # an index and the ranges of variables of its own
FilledBy = Callable[[Stmt], Filled | None]
ReadBy = Callable[[Store], Iterable[tuple[str, Affine, Ranges]]]


@dataclass(frozen=True, slots=True)
class Contents:
    """What the elements of an allocation are: ``written`` before a product reads them beside
    zeros, or ``unwritten`` and read so.
    """

    written: Marks
    unwritten: Marks

    @property
    def runs(self) -> tuple[Runs, ...]:
        """The elements that have to be zeroed."""
        return runs_of(self.unwritten)


def holds_numbers(s: Allocate) -> bool:
    """Whether anything in a buffer is a number: of integers, unless bytes are taken for floats."""
    stores = (x.value for x in walk_stmt(s.body) if isinstance(x, Store))
    return s.type.is_integer and not any(isinstance(e, Call) and decodes(e.name) for e in stores)


def contents(s: Allocate, read_by: ReadBy, filled_by: FilledBy = lambda s: None) -> Contents | None:
    """What lies in a staged buffer; None for one whose size is not constant, or that no product
    reads beside zeros. ``read_by``: what a statement reads beside zeros; ``filled_by``: what it
    writes where that is more than the program says.
    """
    sizes = [e.value for e in s.extents if isinstance(e, IntImm)]
    if len(sizes) < len(s.extents):
        return None
    size = prod(sizes)
    written, unwritten = np.ones(size, np.bool_), np.zeros(size, np.bool_)
    before: list[Event] = []
    known, within = np.zeros(size, np.bool_), (-1, Scope())
    touched: dict[Hashable, Reach | None] = {}  # of reads that differ in where they begin
    numbers = holds_numbers(s)
    for event in _events(s.body, s.name, Scope(), filled_by, read_by):
        if not event.reads:
            before.append(event)
            continue
        if numbers:
            return Contents(written, unwritten)
        if within[0] != len(before) or within[1] is not event.scope:
            known, within = np.zeros(size, np.bool_), (len(before), event.scope)
            for write in before:
                _mark(known, write.places(event.scope))
            written &= known
        if known.all():  # for the reads after it, too: they are in no loop of a write without it
            break
        index = event.index
        key = (len(before), id(event.scope), index - index.offset, tuple(event.own.items()))
        if key not in touched:
            touched[key] = Reach.of(replace(event, index=key[2]).places())
        found = touched[key]
        if found is None:
            unwritten |= ~known
        else:
            first, missing = found.missing(index.offset, known)
            unwritten[first : first + missing.size] |= missing
    return Contents(written & ~unwritten, unwritten) if within[0] >= 0 else None


def fills(s: Allocate, read_by: ReadBy) -> list[For]:
    """Statements that write the zeros which a buffer needs before anything else is done with it:
    all of it is zeroed where its size is not constant.
    """
    if all(isinstance(e, IntImm) for e in s.extents):
        found = contents(s, read_by)
        return [zeros(s.name, s.type.element, r) for r in found.runs] if found is not None else []
    events = () if holds_numbers(s) else _events(s.body, s.name, Scope(), lambda s: None, read_by)
    return [all_zeros(s)] if any(event.reads for event in events) else []


def all_zeros(s: Allocate) -> For:
    """A statement that writes zeros to all of a buffer."""
    item, elements = Var(f"{s.name}.zero"), reduce(mul, s.extents, IntImm(1))
    store = Store(s.name, item, literal(0, s.type.element), None)
    return For(item.name, IntImm(0), elements, ForKind.SERIAL, store)


def _mark(marks: Marks, found: Places | None) -> None:
    if found is not None:
        marks[found[(found >= 0) & (found < marks.size)]] = True


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """The loops and lets around a statement, outermost first."""

    around: tuple[For | LetStmt, ...] = ()

    def inside(self, s: For | LetStmt) -> Scope:
        return Scope((*self.around, s))

    def holds(self, s: For) -> bool:
        return any(x is s for x in self.around)


@dataclass(frozen=True, slots=True)
class Event:
    """A statement that always writes elements ``index`` of a buffer, or ``reads`` them beside
    zeros; the variables in ``own`` are its lanes.
    """

    index: Affine
    own: Ranges
    scope: Scope
    reads: bool = False

    def places(self, other: Scope | None = None) -> Places | None:
        """The elements, in one iteration of the loops that are around another statement, too; None
        where they are not known.
        """
        index, ranges = self.index, dict(self.own)
        for s in reversed(self.scope.around):  # counted from each loop's first value
            variable = Var(s.name)
            factor = index.coefficient(variable)
            match s:
                case LetStmt(_, value):
                    index = index.rest(variable) + factor * value
                case For(name, low, IntImm(extent)) if other is None or not other.holds(s):
                    index = index + factor * low
                    ranges[name] = (0, extent)
                case _:
                    pass
        return places(index, ranges)


def _walked(base: Affine, levels: tuple[tuple[Affine, int], ...]) -> Filled:
    ranges: dict[str, Range] = {}
    for number, (stride, count) in enumerate(levels):
        lane = Var(f"$lane{number}")
        ranges[lane.name] = (0, count)
        base = base + stride * lane
    return base, ranges


def _events(
    s: Stmt, name: str, scope: Scope, filled_by: FilledBy, read_by: ReadBy
) -> Iterator[Event]:
    """Writes of a buffer that always happen, and reads of it beside zeros, in order."""
    filled = filled_by(s)
    if filled is not None and {x.buffer for x in walk_stmt(s) if isinstance(x, Store)} == {name}:
        yield Event(*filled, scope)
        return
    match s:
        case Store():
            yield from _of_store(s, name, scope, read_by)
        case For() | LetStmt():
            inside = _events(s.body, name, scope.inside(s), filled_by, read_by)
            yield from inside if _runs(s) else _reads(inside)
        case _:
            for x in stmt_children(s):
                inside = _events(x, name, scope, filled_by, read_by)
                yield from _reads(inside) if isinstance(s, IfThenElse) else inside


def _runs(s: For | LetStmt) -> bool:
    """Whether there is an iteration."""
    return isinstance(s, LetStmt) or (isinstance(s.extent, IntImm) and s.extent.value > 0)


def _of_store(s: Store, name: str, scope: Scope, read_by: ReadBy) -> Iterator[Event]:
    if isinstance(s.value, Call):
        for buffer, index, ranges in read_by(s):
            if buffer == name:
                yield Event(index, ranges, scope, reads=True)
    if s.buffer == name and s.predicate is None:
        yield Event(*_lanes(s.index), scope)


def reads_of(masked: frozenset[str]) -> ReadBy:
    """What products read beside zeros, those in ``masked`` buffers too."""

    def read_by(s: Store) -> Iterator[tuple[str, Affine, Ranges]]:
        found = _beside_zeros(s.value, masked)
        return ((load.buffer, *_lanes(load.index)) for load in found)

    return read_by


def masked_buffers(body: Stmt) -> frozenset[str]:
    """Buffers that hold an operand with its mask: its zeros are copied with it."""
    stores = (s for s in walk_stmt(body) if isinstance(s, Store))
    return frozenset(s.buffer for s in stores if isinstance(s.value, Load) and has_zeros(s.value))


def _lanes(index: Expr) -> Filled:
    """A vector index by its lanes; one that is not affine is a variable of no known range."""
    seen = access(index)
    return (Affine.of(Var("$unknown")), {}) if seen is None else _walked(seen.base, seen.levels)


def _reads(events: Iterable[Event]) -> Iterator[Event]:
    """Of what may not happen, the reads."""
    return (event for event in events if event.reads)


def _beside_zeros(value: Expr, masked: frozenset[str]) -> Iterator[Load]:
    """What the operands of a product load that meet zeros of the other one: of a band, or of a
    mask. One that is computed loads whatever its choices choose.
    """
    match value:
        case Call(_, name, (_, _, _, _, a, b)) if find(name) is not None:
            for operand, other in ((a, b), (b, a)):
                if has_zeros(other, masked) and not any(map(_is_band, walk_expr(operand))):
                    yield from (x for x in walk_expr(operand) if isinstance(x, Load))
        case _:
            pass


def _is_band(e: Expr) -> bool:
    """Of taps, which the program reads as well: a band reads nothing else."""
    return isinstance(e, Call) and e.name in (TOEPLITZ, TOEPLITZ_TRANSPOSED)


def has_zeros(operand: Expr, masked: frozenset[str] = frozenset()) -> bool:
    """Whether an operand may be zero whatever memory holds: a band, masked, or of a choice."""
    return any(
        isinstance(x, Select)
        or _is_band(x)
        or (isinstance(x, Load) and (x.predicate is not None or x.buffer in masked))
        for x in walk_expr(operand)
    )
