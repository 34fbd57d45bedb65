"""Bounds of index expressions over the loops around them, as expressions that can be tested ahead
of those loops.

``Ranges`` knows for each loop variable its least and greatest value. What it answers holds for all
iterations, and is exact for affine indices whose factors have a known sign (constants, strides).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from selector.dataclass import dataclass
from selector.ir.affine import Affine, Monomial, to_affine
from selector.ir.nodes import Binary, BinaryOp, Compare, CompareOp, Expr, For, IntImm, Select, Var
from selector.ir.simplify import add, sub
from selector.ir.traverse import free_vars
from selector.lowering.predicates import TRUE, implying, slack

Interval = tuple[Affine, Affine]


@dataclass(frozen=True, slots=True)
class Ranges:
    """``bounds``: least and greatest value by variable, both possibly of outer variables.

    ``nonnegative``: variables that are at least 0 (extents, strides, sizes, loops from 0).
    """

    bounds: Mapping[str, tuple[Expr, Expr]] = field(default_factory=dict[str, tuple[Expr, Expr]])
    nonnegative: frozenset[str] = frozenset()

    def extended(self, more: Mapping[str, tuple[Expr, Expr]]) -> Ranges:
        low = {n for n, (least, _) in more.items() if self.at_least_zero(to_affine(least))}
        return Ranges({**self.bounds, **more}, self.nonnegative - more.keys() | low)

    def at_least_zero(self, value: Affine) -> bool:
        """Whether a polynomial is known never to be negative."""
        return all(c > 0 and all(self._atom_at_least_zero(a) for a in m) for m, c in value)

    def _atom_at_least_zero(self, atom: Expr) -> bool:
        match atom:
            case Var(name, _):
                return name in self.nonnegative
            case Binary(BinaryOp.MOD, _, IntImm()):
                return True
            case Binary(BinaryOp.MIN | BinaryOp.DIV, a, b):
                return self.at_least_zero(to_affine(a)) and self.at_least_zero(to_affine(b))
            case Binary(BinaryOp.MAX, a, b):
                return self.at_least_zero(to_affine(a)) or self.at_least_zero(to_affine(b))
            case _:
                return False

    def interval(self, value: Affine) -> Interval | None:
        """Least and greatest value over all iterations, free of the bounded variables; None if they
        are not known.
        """
        low = high = Affine()
        for m, c in value:
            part = self._term(m, c)
            if part is None:
                return None
            low, high = low + part[0], high + part[1]
        return low, high

    def inside(self, index: Affine, size: Affine) -> bool:
        """Whether 0 <= ``index`` < ``size`` is known to hold in all iterations."""
        found = self.interval(index)
        if found is None:
            return False
        return self.at_least_zero(found[0]) and self.at_least_zero(size - found[1] - 1)

    def _term(self, m: Monomial, c: int) -> Interval | None:
        varying = [a for a in m if free_vars(a) & self.bounds.keys()]
        if not varying:
            same = Affine.build({m: c})
            return same, same
        if len(varying) > 1:
            return None
        fixed = [a for a in m if a is not varying[0]]
        if not all(self._atom_at_least_zero(a) for a in fixed):
            return None
        found = self._atom(varying[0])
        if found is None:
            return None
        factor = Affine.build({tuple(fixed): c})
        ends = found if c > 0 else found[::-1]
        return factor * ends[0], factor * ends[1]

    def _atom(self, atom: Expr) -> Interval | None:
        match atom:
            case Var(name, _):
                return self._variable(name)
            case Binary(BinaryOp.MIN | BinaryOp.MAX as op, a, b):
                return self._both(a, b, op, op)
            case Select(_, a, b):
                return self._both(a, b, BinaryOp.MIN, BinaryOp.MAX)
            case Binary(BinaryOp.MOD, _, IntImm(n, _)) if n > 0:
                return Affine(), Affine.of(n - 1)
            case Binary(BinaryOp.MOD, _, b) if not free_vars(b) & self.bounds.keys():
                if not self.at_least_zero(to_affine(b)):
                    return None
                last = (to_affine(b) - 1).to_expr()  # a remainder by 0 is 0
                return Affine(), Affine.of(Binary(BinaryOp.MAX, last, IntImm(0)))
            case Binary(BinaryOp.DIV, a, IntImm(n, _)) if n > 0:
                inner = self.interval(to_affine(a))
                if inner is None:
                    return None
                low, high = (Binary(BinaryOp.DIV, e.to_expr(), IntImm(n)) for e in inner)
                return to_affine(low), to_affine(high)
            case _:
                return None

    def _variable(self, name: str) -> Interval | None:
        low, high = (to_affine(e) for e in self.bounds[name])
        least, greatest = self.interval(low), self.interval(high)
        return None if least is None or greatest is None else (least[0], greatest[1])

    def _both(self, a: Expr, b: Expr, low: BinaryOp, high: BinaryOp) -> Interval | None:
        x, y = self.interval(to_affine(a)), self.interval(to_affine(b))
        if x is None or y is None:
            return None
        least = Binary(low, x[0].to_expr(), y[0].to_expr())
        greatest = Binary(high, x[1].to_expr(), y[1].to_expr())
        return to_affine(least), to_affine(greatest)


def constant_ends(form: Affine, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
    """Between which numbers a value lies, by those of its variables; None if that is not known."""
    least = most = 0
    for atoms, factor in form:
        ends = (1, 1) if not atoms else _ends_of(atoms[0], ranges) if len(atoms) == 1 else None
        if ends is None:
            return None
        products = factor * ends[0], factor * ends[1]
        least, most = least + min(products), most + max(products)
    return least, most


def _ends_of(atom: Expr, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
    match atom:
        case Var(name):
            return ranges.get(name)
        case Binary(BinaryOp.MOD, _, IntImm(value=divisor)) if divisor > 0:
            return 0, divisor - 1
        case Binary(BinaryOp.DIV, value, IntImm(value=divisor)) if divisor > 0:
            ends = constant_ends(to_affine(value), ranges)
            return None if ends is None else (ends[0] // divisor, ends[1] // divisor)
        case _:
            return None


def loop_bounds(s: For) -> tuple[Expr, Expr]:
    """Least and greatest value of a loop's variable."""
    return s.min, sub(add(s.min, s.extent), IntImm(1))


def digit_bounds(digits: dict[str, int]) -> dict[str, tuple[Expr, Expr]]:
    return {name: (IntImm(0), IntImm(n - 1)) for name, n in digits.items()}


def holds_in(condition: Expr, ranges: Ranges) -> Expr | None:
    """A condition free of loop variables that implies ``condition`` in all iterations."""

    def least(part: Expr) -> Expr | None:
        room = slack(part)
        found = None if room is None else ranges.interval(room)
        if found is None:
            return None
        if ranges.at_least_zero(found[0]):
            return TRUE
        return Compare(CompareOp.LE, IntImm(0), found[0].to_expr())

    return implying(condition, ranges.bounds.keys(), least)
