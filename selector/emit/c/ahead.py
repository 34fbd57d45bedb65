"""Conditions gathered ahead of loops, so that what is inside them needs no tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Compare, CompareOp, Expr, IntImm
from selector.lowering.ranges import Ranges


@dataclass(slots=True)
class Tests:
    """Conditions gathered ahead of a loop: indices inside buffers, and other conditions.

    ``around`` are all loops around that place, which may prove a condition; ``ranges`` those that
    the conditions have to cover.
    """

    around: Ranges
    ranges: Ranges
    lows: list[Affine] = field(default_factory=list[Affine])
    highs: list[tuple[Affine, Affine]] = field(default_factory=list[tuple[Affine, Affine]])
    others: list[Expr] = field(default_factory=list[Expr])

    @staticmethod
    def ahead(around: Ranges) -> Tests:
        """Tests at a place inside the loops of ``around``."""
        return Tests(around, Ranges({}, around.nonnegative))

    def inside(self, index: Affine, size: Expr) -> bool:
        """Ask for 0 <= ``index`` < ``size`` in all iterations; False if that has no test."""
        if self.around.extended(self.ranges.bounds).inside(index, to_affine(size)):
            return True
        found = self.ranges.interval(index)
        if found is None:
            return False
        self._least(found[0])
        self._greatest(found[1], to_affine(size))
        return True

    def _least(self, low: Affine) -> None:
        if self.ranges.at_least_zero(low):
            return
        for i, other in enumerate(self.lows):
            difference = (low - other).constant
            if difference is not None:
                self.lows[i] = low if difference < 0 else other
                return
        self.lows.append(low)

    def _greatest(self, high: Affine, size: Affine) -> None:
        if self.ranges.at_least_zero(size - high - 1):
            return
        for i, (other, limit) in enumerate(self.highs):
            difference = (high - other).constant
            if limit == size and difference is not None:
                self.highs[i] = (high if difference > 0 else other, limit)
                return
        self.highs.append((high, size))

    def condition(self) -> tuple[Expr, ...]:
        """The conjunction of what is asked; empty if all of it is known to hold."""
        tests: list[Expr] = [Compare(CompareOp.LE, IntImm(0), a.to_expr()) for a in self.lows]
        tests += [Compare(CompareOp.LT, a.to_expr(), s.to_expr()) for a, s in self.highs]
        return tuple(_distinct((*tests, *self.others)))


def _distinct(tests: Iterable[Expr]) -> list[Expr]:
    return list(dict.fromkeys(tests))
