"""Formulas, facts among them, and sums that are formulas of their summands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import z3

from selector.dataclass import dataclass
from selector.workbench.prove.sizes import Poly

Value = Any
"""A formula of z3: of integers, or of truth values where the type is bool."""


@dataclass(frozen=True)
class Split(Exception):  # noqa: N818 (begin anew with two digits)
    """A digit has to be cut: its inner part has this extent."""

    digit: str
    part: Poly


@dataclass(frozen=True, slots=True)
class Either:
    """Formulas of which all have to follow, in one of several ways, each under a contract."""

    ways: tuple[tuple[str, tuple[Value, ...]], ...]


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of a summand over ``extent`` terms."""

    extent: Poly
    summand: Callable[[Poly], Value]


@dataclass(frozen=True, slots=True)
class Band:
    """Where a summand may be other than zero: at ``row = first + step * tap``, tap < taps."""

    row: Poly
    first: Poly
    step: Poly
    taps: Poly
    inside: Value


def unknowns_of(formula: Value) -> set[int]:
    """What of a formula is no number that all of an attempt share: digits, unknown values."""
    found: set[int] = set()
    seen: set[int] = set()
    stack = [formula]
    while stack:
        e = stack.pop()
        if e.get_id() in seen:
            continue
        seen.add(e.get_id())
        stack.extend(e.children())
        unknown = z3.is_app(e) and e.decl().kind() == z3.Z3_OP_UNINTERPRETED
        if unknown and (e.num_args() or _is_local(e.decl().name())):
            found.add(e.get_id())
    return found


def new_solver(formulas: Iterable[Value], resources: int) -> z3.Solver:
    """A solver in a context of its own. What z3 answers within its resources depends on the numbers
    that it gave to terms; those of a shared context follow from which terms went before, and when.
    """
    context = z3.Context()
    solver = z3.Solver(ctx=context)
    solver.set("rlimit", resources)
    solver.add(*(formula.translate(context) for formula in formulas))
    return solver


def _is_local(name: str) -> bool:
    return name.startswith(("#", "high", "low", "div ", "mod ", "sum ", "v"))


@dataclass
class Fact:
    """What holds, under a contract if it has a name."""

    contract: str
    formula: Value

    @cached_property
    def simple(self) -> Value:
        return z3.simplify(self.formula, som=True)

    @cached_property
    def unknowns(self) -> set[int]:
        return unknowns_of(self.simple)
