"""Which element of a running maximum m every lane of a term has the factor ``exp(x - m)`` with.

A term is homogeneous in ``exp(-m)`` if it is ``exp(x - m)`` times what does not depend on m: when m
grows by d, the term is multiplied by ``exp(-d)``, whatever x is. Casts between floats keep that but
for rounding. Buffers that hold such terms count, by the places of their elements.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from selector.dataclass import dataclass
from selector.diagnostics import ScheduleError, Where
from selector.ir.access import Level, access, walk
from selector.ir.affine import Affine
from selector.ir.contents import loaded
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Call,
    Cast,
    Expr,
    FloatImm,
    Load,
    Select,
    Store,
)
from selector.ir.printer import print_expr
from selector.ir.simplify import float_constant, in_every_lane
from selector.lowering.online_forms import ZERO, multiple, times

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """For each lane, the element ``base + places[lane]`` of the maximum."""

    base: Affine
    places: Places

    def same(self, other: Rows) -> bool:
        return self.base == other.base and np.array_equal(self.places, other.places)


def rows_at(index: Expr) -> Rows | None:
    """The elements that an index names; None if its lanes are not at constant distances."""
    walked = access(index)
    if walked is None or any(stride.constant is None for stride, _ in walked.levels):
        return None
    places: Places = np.zeros(1, np.int64)
    for stride, count in walked.levels:
        steps = np.arange(count, dtype=np.int64) * (stride.constant or 0)
        places = (steps[:, None] + places[None, :]).reshape(-1)
    return Rows(walked.base - walked.base.offset, places + walked.base.offset)


def as_index(rows: Rows) -> Expr | None:
    """The index of ``rows``, as ramps and broadcasts; None if it is no such walk."""
    places, levels = rows.places, list[Level]()
    while len(places) > 1:
        step = int(places[1] - places[0])
        breaks = np.nonzero(np.diff(places) != step)[0]
        count = int(breaks[0]) + 1 if len(breaks) else len(places)
        if len(places) % count:
            return None
        parts = places.reshape(-1, count)
        steps = np.broadcast_to(parts[0] - parts[0, 0], parts.shape)
        if not np.array_equal(parts - parts[:, :1], steps):
            return None
        levels.append((Affine.of(step), count))
        places = parts[:, 0]
    return walk(rows.base + int(places[0]), tuple(levels))


_NOTHING = np.iinfo(np.int64).min


@dataclass(slots=True)
class Held:
    """What a buffer holds: at its place ``base + first + i`` a term of element ``rows + table[i]``
    of the maximum, or no term yet.
    """

    base: Affine
    rows: Affine
    first: int = 0
    table: Places = field(default_factory=lambda: np.zeros(0, np.int64))

    def put(self, at: Places, elements: Places) -> None:
        """Remember terms at places."""
        low, end = int(at.min()), int(at.max()) + 1
        if len(self.table):
            low, end = min(low, self.first), max(end, self.first + len(self.table))
        if end - low > len(self.table):
            grown: Places = np.full(end - low, _NOTHING)
            grown[self.first - low : self.first - low + len(self.table)] = self.table
            self.first, self.table = low, grown
        self.table[at - self.first] = elements

    def get(self, at: Places) -> Places | None:
        """The elements of the terms at places; None if one of them holds none."""
        if at.min() < self.first or at.max() >= self.first + len(self.table):
            return None
        found = self.table[at - self.first]
        return None if (found == _NOTHING).any() else found


@dataclass(slots=True)
class Factors:
    """The factors of one loop's terms. ``maximum``: the buffer m, never below ``floor``; ``held``:
    the buffers of terms. ``base`` of the powers (None: e), which go down by ``factor`` times m.
    """

    maximum: str
    what: str
    location: str = ""
    floor: float = 0.0
    base: Expr | None = None
    factor: float | None = None
    found: bool = False
    held: dict[str, Held] = field(default_factory=dict[str, Held])

    def depends(self, e: Expr) -> bool:
        """Whether a value is made of the maximum."""
        names = loaded(e)
        return self.maximum in names or not names.isdisjoint(self.held)

    def hold(self, s: Store) -> None:
        """Remember the terms that a statement stores."""
        rows, at = self.rows(s.value), rows_at(s.index)
        if rows is None:
            return
        if at is None or len(rows.places) != len(at.places):
            raise self.refused(s.value, f"its places in `{s.buffer}` are not known")
        known = self.held.setdefault(s.buffer, Held(at.base, rows.base))
        if (known.base, known.rows) != (at.base, rows.base):
            raise self.refused(s.value, f"`{s.buffer}` holds terms of several tiles")
        known.put(at.places, rows.places)

    def rows(self, e: Expr) -> Rows | None:
        """The element of the maximum for every lane; None for what does not depend on it.

        ``ScheduleError`` for what depends on it in any other way.
        """
        if not self.depends(e):
            return None
        match e:
            case Call(_, "exp_f32", (exponent,)) if self._has_base(None):
                found = self._exponent(exponent)
            case Call(_, "pow_f32", (base, exponent)) if (number := _base(base)) and self._has_base(
                number
            ):
                found = self._exponent(exponent)
            case Load(_, buffer, index) if buffer in self.held:
                found = self._held(buffer, index)
            case Cast(t, v) if t.is_float and v.type.is_float:
                found = self.rows(v)
            case Broadcast(v, count):
                inner = self.rows(v)
                found = inner and Rows(inner.base, np.tile(inner.places, count))
            case Binary(BinaryOp.MUL, a, b) if not self.depends(a) or not self.depends(b):
                found = self.rows(a) or self.rows(b)
            case Binary(BinaryOp.DIV, a, b) if not self.depends(b):
                found = self.rows(a)
            case Select(c, a, b) if not self.depends(c):
                found = self._either(a, b)
            case _:
                found = None
        if found is None:
            raise self.refused(
                e, "it is not exp(x - maximum), or another power, times what is free of it"
            )
        return found

    def _exponent(self, e: Expr) -> Rows | None:
        """The rows of ``x - c * m``; where a mask makes the power 0, any."""
        match e:
            case Select(c, a, low) if not self.depends(c) and makes_zero(low):
                return self._exponent(a)
            case Binary(BinaryOp.SUB, x, m) if not self.depends(x):
                found = multiple(m)
                own = found is not None and found[1].buffer == self.maximum
                if found is None or not own or self.factor not in (None, found[0]):
                    return None
                self.factor = found[0]
                return rows_at(found[1].index)
            case _:
                return None

    def _has_base(self, base: Expr | None) -> bool:
        """Whether powers of ``base`` are what all terms have."""
        if not self.found:
            self.found, self.base = True, base
        return self.base == base

    def power(self, old: Expr, new: Expr) -> Call:
        """What terms are multiplied by where the maximum grows."""
        parts = (times(m, self.factor or 1.0, self.floor) for m in (old, new))
        exponent = Binary(BinaryOp.SUB, *parts)
        if self.base is None:
            return Call(exponent.type, "exp_f32", (exponent,))
        return Call(exponent.type, "pow_f32", (Broadcast(self.base, exponent.type.lanes), exponent))

    def _either(self, a: Expr, b: Expr) -> Rows | None:
        if _is_zero(a) or _is_zero(b):
            return self.rows(b if _is_zero(a) else a)
        left, right = self.rows(a), self.rows(b)
        return left if left and right and left.same(right) else None

    def _held(self, buffer: str, index: Expr) -> Rows | None:
        at, held = rows_at(index), self.held[buffer]
        if at is None or at.base != held.base:
            return None
        found = held.get(at.places)
        return None if found is None else Rows(held.rows, found)

    def refused(self, e: Expr, why: str) -> ScheduleError:
        return ScheduleError(
            f"`{self.what}` cannot be taken along with the maximum `{self.maximum}`",
            f"a term is {print_expr(e)[:200]}: {why}",
            f"write every term as exp(x - {self.maximum}) times other factors, or leave "
            f"`{self.what}` out of hb.online",
            Where(func=self.maximum, location=self.location),
        )


def makes_zero(exponent: Expr) -> bool:
    """Whether powers of e, or of 2, with this exponent are 0 in float32."""
    return (float_constant(exponent) or 0) <= ZERO


def _base(e: Expr) -> Expr | None:
    """The number of 2 or more that a base is; None for any other."""
    e = in_every_lane(e)
    return e if isinstance(e, FloatImm) and e.value >= 2 else None


def _is_zero(e: Expr) -> bool:
    match e:
        case FloatImm(value):
            return value == 0.0
        case Broadcast(v) | Cast(_, v):
            return _is_zero(v)
        case _:
            return False
