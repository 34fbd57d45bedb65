"""Tests ahead of plain loops: what one test can say of all iterations, so that the loops inside it
need none of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field

from selector.cpu.context import CContext
from selector.cpu.lanes import LaneLoops, lane_loops
from selector.cpu.limits import bounds_of
from selector.dataclass import dataclass
from selector.ir.affine import Affine, to_affine
from selector.ir.contents import holds
from selector.ir.nodes import (
    Block,
    Compare,
    CompareOp,
    Expr,
    For,
    IfThenElse,
    IntImm,
    Load,
    Stmt,
    Store,
)
from selector.ir.traverse import stmt_children, walk_stmt
from selector.lowering.predicates import TRUE
from selector.lowering.ranges import Ranges, digit_bounds, holds_in, loop_bounds


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
        return tuple(dict.fromkeys((*tests, *self.others)))


_LARGEST_NEST = 1 << 16  # iterations that one test may cover, where their number is known
_MOST_STORES = 32  # that are written twice under one test


@dataclass(frozen=True, slots=True)
class Cover:
    """``tests``, if they all hold, make ``safe`` loads safe and ``holding`` conditions true."""

    tests: tuple[Expr, ...]
    safe: frozenset[Load]
    holding: frozenset[Expr]

    @property
    def gains(self) -> bool:
        return bool(self.safe or self.holding)


class Covering:
    """Decides where the tests of plain code stand, and writes what is inside them."""

    def __init__(self, context: CContext) -> None:
        self.context = context

    def cover(self, s: Stmt) -> Cover | None:
        """What one test ahead of a plain statement can cover; None if nothing."""
        tests = Tests.ahead(self.context.ranges)
        return self._cover(
            tests, ((lane_loops(store), at) for store, at in stores_in(s, tests.ranges))
        )

    def cover_form(self, form: LaneLoops) -> Cover | None:
        """The same for one store inside its loops."""
        tests = Tests.ahead(self.context.ranges)
        return self._cover(tests, ((form, tests.ranges),))

    def _cover(self, tests: Tests, forms: Iterable[tuple[LaneLoops, Ranges]]) -> Cover | None:
        safe: set[Load] = set()
        failing: set[Load] = set()
        holding: set[Expr] = set()
        for form, tests.ranges in forms:
            self._cover_store(form, tests, safe, failing, holding)
        found = Cover(tests.condition(), frozenset(safe - failing), frozenset(holding))
        return found if found.gains else None

    def _cover_store(
        self, form: LaneLoops, tests: Tests, safe: set[Load], failing: set[Load], holding: set[Expr]
    ) -> None:
        around = tests.ranges
        for load, digits in form.loads():
            storage = self.context.storages[load.buffer]
            if storage.elements is None or load in self.context.safe:
                continue
            tests.ranges = around.extended(digit_bounds(digits))
            if all(tests.inside(*x) for x in bounds_of(storage, to_affine(load.index))):
                safe.add(load)
            else:
                failing.add(load)
            if load.predicate is not None:
                self._cover_condition(load.predicate, tests, holding)
        tests.ranges = around.extended(digit_bounds({v.name: n for v, n in form.digits}))
        if form.store.predicate is not None:
            self._cover_condition(form.store.predicate, tests, holding)
        tests.ranges = around

    def _cover_condition(self, condition: Expr, tests: Tests, holding: set[Expr]) -> None:
        everywhere = holds_in(condition, tests.ranges)
        if everywhere is not None and not holds(everywhere, Load):
            holding.add(condition)
            if everywhere != TRUE:
                tests.others.append(everywhere)

    def versions(self, cover: Cover | None, write: Callable[[], None]) -> None:
        """``write`` under a test and without it, or once where no test is needed."""

        def version(by: Cover) -> None:
            with self.context.covered(by.safe, by.holding):
                write()

        plain = Cover((), frozenset(), frozenset())
        tested = plain if cover is None else cover
        self.context.either(tested.tests, lambda: version(tested), lambda: version(plain))

    def tests_stand_here(self, s: For) -> bool:
        """Whether a test ahead of this plain loop is better than one further in."""
        if self.context.guarded:
            return False
        stores = [x for x in walk_stmt(s) if isinstance(x, Store)]
        if len(stores) > _MOST_STORES:
            return False
        if not any(isinstance(x, For) for x in walk_stmt(s.body)):
            return all(x.value.type.lanes == 1 for x in stores) or _iterations(s) is not None
        size = _iterations(s)
        return size is not None and size <= _LARGEST_NEST


def stores_in(s: Stmt, ranges: Ranges) -> Iterator[tuple[Store, Ranges]]:
    """Every store below a statement, with the ranges of the loops around it."""
    match s:
        case Store():
            yield s, ranges
        case For():
            yield from stores_in(s.body, ranges.extended({s.name: loop_bounds(s)}))
        case _:
            for child in stmt_children(s):
                yield from stores_in(child, ranges)


def _iterations(s: Stmt) -> int | None:
    """How often the innermost lanes of a nest of loops run, if that is a constant."""
    match s:
        case For(_, _, IntImm(n), _, body):
            inner = _iterations(body)
            return None if inner is None else n * inner
        case For():
            return None
        case Store():
            return s.value.type.lanes
        case _:
            counts = [_iterations(x) for x in stmt_children(s)]
            known = [x for x in counts if x is not None]
            return None if len(known) < len(counts) else sum(known)


def is_simple(s: Stmt) -> bool:
    """Whether a statement is made of loops, branches and stores alone."""
    return isinstance(s, For | Store | IfThenElse | Block) and all(
        is_simple(x) for x in stmt_children(s)
    )
