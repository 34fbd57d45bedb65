"""Tests ahead of plain loops: what one test can say of all iterations, so that the loops inside it
need none of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from selector.emit.c.ahead import Tests
from selector.emit.c.context import CContext
from selector.emit.c.lanes import LaneLoops, lane_loops
from selector.ir.affine import to_affine
from selector.ir.nodes import Block, Expr, For, IfThenElse, IntImm, Load, Stmt, Store
from selector.ir.traverse import stmt_children, walk_expr, walk_stmt
from selector.lowering.predicates import TRUE
from selector.lowering.ranges import Ranges, digit_bounds, holds_in, loop_bounds

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
        safe: set[Load] = set()
        failing: set[Load] = set()
        holding: set[Expr] = set()
        for store, ranges in _stores(s, tests.ranges):
            tests.ranges = ranges
            self._cover_store(lane_loops(store), tests, safe, failing, holding)
        found = Cover(tests.condition(), frozenset(safe - failing), frozenset(holding))
        return found if found.gains else None

    def cover_form(self, form: LaneLoops) -> Cover | None:
        """The same for one store inside its loops."""
        tests = Tests.ahead(self.context.ranges)
        safe: set[Load] = set()
        failing: set[Load] = set()
        holding: set[Expr] = set()
        self._cover_store(form, tests, safe, failing, holding)
        found = Cover(tests.condition(), frozenset(safe - failing), frozenset(holding))
        return found if found.gains else None

    def _cover_store(
        self,
        form: LaneLoops,
        tests: Tests,
        safe: set[Load],
        failing: set[Load],
        holding: set[Expr],
    ) -> None:
        around = tests.ranges
        for load, digits in form.loads():
            storage = self.context.storages[load.buffer]
            if storage.elements is None or load in self.context.safe:
                continue
            tests.ranges = around.extended(digit_bounds(digits))
            if tests.inside(to_affine(load.index), storage.elements):
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
        if everywhere is not None and not any(isinstance(x, Load) for x in walk_expr(everywhere)):
            holding.add(condition)
            if everywhere != TRUE:
                tests.others.append(everywhere)

    def versions(self, cover: Cover | None, write: Callable[[], None]) -> None:
        """``write`` under a test and without it, or once where no test is needed."""
        c = self.context
        if cover is None:
            with c.covered(frozenset(), frozenset()):
                write()
            return
        if not cover.tests:
            with c.covered(cover.safe, cover.holding):
                write()
            return
        with (
            c.writer.block(f"if ({c.conjunction(cover.tests)})"),
            c.covered(cover.safe, cover.holding),
        ):
            write()
        with c.writer.block("else"), c.covered(frozenset(), frozenset()):
            write()

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


def _stores(s: Stmt, ranges: Ranges) -> Iterator[tuple[Store, Ranges]]:
    """Every store below a statement, with the ranges of the loops around it."""
    match s:
        case Store():
            yield s, ranges
        case For():
            yield from _stores(s.body, ranges.extended({s.name: loop_bounds(s)}))
        case _:
            for child in stmt_children(s):
                yield from _stores(child, ranges)


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
