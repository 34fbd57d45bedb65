"""Regions of one allocation: marks on its elements, exact where indices are sums of loop variables
with constant ranges.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from selector.dataclass import dataclass
from selector.ir.affine import Affine
from selector.ir.nodes import Binary, BinaryOp, Expr, For, ForKind, IntImm, Store, Var
from selector.ir.simplify import add, literal, mul
from selector.ir.types import Type

LARGEST = 1 << 17  # places, from which on it pays to have each of them once

Marks = NDArray[np.bool_]
Places = NDArray[np.int64]
Range = tuple[int, int]  # first value and number of values
Ranges = Mapping[str, Range]


def places(index: Affine, ranges: Ranges) -> Places | None:
    """All values of an index, in any order; None where one of its variables has no known range."""
    found = np.array([index.offset], np.int64)
    for monomial, factor in index:
        if not monomial:
            continue
        span = _span(monomial[0], ranges) if len(monomial) == 1 else None
        if span is None:
            return None
        low, extent = span
        steps = factor * np.arange(low, low + extent, dtype=np.int64)
        found = np.add.outer(found, steps).ravel()
        found = np.unique(found) if found.size > LARGEST else found
    return found


def _span(atom: Expr, ranges: Ranges) -> Range | None:
    match atom:
        case Var(name, _):
            return ranges.get(name)
        case Binary(BinaryOp.MOD, _, IntImm(divisor)) if divisor > 0:
            return (0, divisor)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Reach:
    """The ``touched`` ones of neighbouring elements, and where the first of them lies."""

    touched: Marks
    low: int

    @classmethod
    def of(cls, found: Places | None) -> Reach | None:
        """None for what is not known."""
        if found is None or not found.size:
            return None if found is None else cls(np.zeros(0, np.bool_), 0)
        low = int(found.min())
        touched = np.zeros(int(found.max()) - low + 1, np.bool_)
        touched[found - low] = True
        return cls(touched, low)

    def missing(self, start: int, marks: Marks) -> tuple[int, Marks]:
        """Where what of it, moved by ``start``, lies in the buffer begins; which of that is not
        marked.
        """
        low = self.low + start
        first, stop = max(low, 0), min(low + self.touched.size, marks.size)
        if first >= stop:
            return 0, np.zeros(0, np.bool_)
        return first, self.touched[first - low : stop - low] & ~marks[first:stop]

    def covered(self, start: int, marks: Marks) -> bool:
        """Whether all of it, moved by ``start``, lies in the buffer and is marked."""
        low = self.low + start
        inside = low >= 0 and low + self.touched.size <= marks.size
        return not self.touched.size or bool(inside and not self.missing(start, marks)[1].any())


@dataclass(frozen=True, slots=True)
class Runs:
    """``count`` runs of ``length`` elements, ``step`` apart, from element ``start`` on."""

    start: int
    length: int
    step: int
    count: int


def runs_of(marks: Marks) -> tuple[Runs, ...]:
    """The marked elements, neighbours of one length and distance together."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], marks, [False])).astype(np.int8)))
    found: list[Runs] = []
    for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        last, length = found[-1] if found else None, stop - start
        if last is not None and last.length == length:
            step = start - last.start - last.step * (last.count - 1)
            if last.count == 1 or step == last.step:
                found[-1] = Runs(last.start, length, step, last.count + 1)
                continue
        found.append(Runs(start, length, length, 1))
    return tuple(found)


def zeros(name: str, element: Type, runs: Runs) -> For:
    """Statements that write zeros there."""
    item, row = Var(f"{name}.zero"), Var(f"{name}.row")
    index = add(add(IntImm(runs.start), mul(row, IntImm(runs.step))), item)
    store = Store(name, index, literal(0, element), None)
    run = For(item.name, IntImm(0), IntImm(runs.length), ForKind.SERIAL, store)
    return For(row.name, IntImm(0), IntImm(runs.count), ForKind.SERIAL, run)
