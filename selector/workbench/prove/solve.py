"""Asking z3, and what its proofs used.

A goal begins anew with a digit cut in two as often as a vector's parts ask for it. Facts that bear
the name of a contract are tracked: the core of a proof says which of them it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from itertools import product

import z3

from selector.dataclass import dataclass
from selector.workbench.prove.conditions import Rule
from selector.workbench.prove.context import Context
from selector.workbench.prove.formulas import Either, Split, Value, new_solver, unknowns_of
from selector.workbench.prove.goals import Goal
from selector.workbench.prove.sizes import Poly, Unproved
from selector.workbench.prove.values import Attempt

MOST = 8_000_000
"""Resources of z3 for one query, some seconds: not a time, so that every machine decides alike."""
_FOR_LESS = 2_000_000
"""The same for a query with fewer contracts."""
_FOR_SIZES = 200_000
_MOST_CUTS = 24


@dataclass
class Outcome:
    """What became of a rule's goals: the contracts of those proved, why the others are not."""

    contracts: set[str] = field(default_factory=set[str])
    missing: list[str] = field(default_factory=list[str])
    goals: int = 0
    queries: int = 0


def prove_goals(rule: Rule) -> Outcome:
    """Try every goal in every case."""
    outcome = Outcome()
    context = rule.context
    names = sorted(context.cases)
    for values in product(*(context.cases[n] for n in names)):
        case = dict(zip(names, values, strict=True))
        for goal in rule.goals.found:
            outcome.goals += 1
            try:
                _prove(goal, context, case, outcome)
            except Unproved as why:
                outcome.missing.append(f"{goal.text}: {why}")
    return outcome


def _prove(goal: Goal, context: Context, case: Mapping[str, int], outcome: Outcome) -> None:
    cuts: dict[str, Poly] = {}
    for _ in range(_MOST_CUTS):
        at = Attempt(context, case, dict(cuts))
        try:
            formulas = list(goal.formulas(at))
        except Split as split:
            cuts[split.digit] = split.part
            continue
        except z3.Z3Exception as error:  # an index for a truth value: the types say so, too
            raise Unproved(f"a value of another sort: {error}") from None
        for formula in formulas:
            if isinstance(formula, Either):
                _one_follows(at, formula, outcome)
            else:
                _follows(at, formula, outcome)
        outcome.contracts |= {f.contract for f in at.facts if f.contract and z3.is_true(f.formula)}
        return
    raise Unproved("digits that are cut without end")


def _one_follows(at: Attempt, ways: Either, outcome: Outcome) -> None:
    """Prove all formulas of one way."""
    reasons: list[str] = []
    for contract, way in ways.ways:
        tried = Outcome()
        try:
            for formula in way:
                _follows(at, formula, tried)
        except Unproved as why:
            reasons.append(str(why))
            continue
        finally:
            outcome.queries += tried.queries
        outcome.contracts |= tried.contracts | ({contract} - {""})
        return
    raise Unproved(reasons[0] if reasons else "sums of other terms")


def _follows(at: Attempt, formula: Value, outcome: Outcome) -> None:
    """Prove a formula from an attempt's facts; ``Unproved`` if that fails."""
    if z3.is_true(z3.simplify(formula, som=True)):
        return
    outcome.queries += 1
    denied = z3.simplify(z3.Not(formula), som=True)
    facts = relevant(at, denied)
    contracts = {name for name, _ in facts if name}
    given = [z3.Implies(z3.Bool(name), fact) if name else fact for name, fact in facts]
    for products in (False, True):  # as unknowns at first: that is mostly enough, and quick
        solver = new_solver([*at.of_sizes(), *of_types(at), denied, *given], MOST)
        solver.set("arith.nl", products)
        result = _answer(solver, contracts)
        if result == z3.unsat:
            break
    if result == z3.sat:
        raise Unproved("it does not follow: z3 knows numbers that meet all facts")
    if result != z3.unsat:
        raise Unproved("z3 does not know")
    needed = {str(name) for name in solver.unsat_core()}
    solver.set("rlimit", _FOR_LESS)
    for name in sorted(needed):
        if _answer(solver, needed - {name}) == z3.unsat:
            needed.discard(name)
    outcome.contracts |= needed


def relevant(at: Attempt, formula: Value) -> list[tuple[str, Value]]:
    """The facts about what a formula is made of: its digits, quotients and unknown values, and
    those of such facts."""
    waiting = {(fact.contract, fact.simple): fact.unknowns for fact in at.facts}
    known, found = unknowns_of(formula), list[tuple[str, Value]]()
    while more := [pair for pair, unknowns in waiting.items() if known & unknowns]:
        for pair in more:
            known |= waiting.pop(pair)
        found += more
    return found


def _answer(solver: z3.Solver, contracts: set[str]) -> z3.CheckSatResult:
    """With the contracts of those names as true."""
    return solver.check(*(z3.Bool(name, solver.ctx) for name in sorted(contracts)))


def of_types(at: Attempt) -> list[Value]:
    """What ``embeds`` and ``product-fits`` say: which numbers are values of which types, and that a
    product that fits is converted like its factors. ``bits`` proves it of the rows."""
    w, x, y = z3.Ints("w! x! y!")
    found: list[Value] = []
    for narrow, wide in (*at.context.target.embeds, *at.context.target.fits):
        has = at.has(narrow, x)
        found.append(z3.ForAll([x], z3.Implies(has, at.has(wide, x)), patterns=[has]))
    for narrow, wide in at.context.target.fits:
        both = (at.has(narrow, x), at.has(narrow, y))
        exact = at.function("exact", x, y)
        held = z3.Implies(z3.And(*both), at.has(wide, exact))
        found.append(z3.ForAll([x, y], held, patterns=[exact]))
        cast = at.function("cast", w, at.word(wide), exact)
        left, right = (at.function("cast", w, at.word(narrow), v) for v in (x, y))
        alike = z3.Implies(z3.And(*both), cast == at.function("times", w, left, right))
        found.append(z3.ForAll([w, x, y], alike, patterns=[cast]))
    return found


def are_possible(rule: Rule) -> bool:
    """Whether the premises about sizes can hold together, as far as z3 can tell."""
    at = Attempt(rule.context)
    solver = new_solver(at.of_sizes(), _FOR_SIZES)
    solver.set("arith.nl", False)
    return solver.check() != z3.unsat
