"""Counterexamples: sizes are chosen, every lane is written out, values stay unknown.

With unknown sizes a model of z3 may only show that an axiom is missing; with chosen ones all is
arithmetic: casts keep small numbers, products and sums are those of integers, an operator that a
rule leaves open is a difference or ``<``. What is found is a match of the rule that goes wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from random import Random

import z3

from selector.dataclass import dataclass
from selector.workbench.prove.conditions import Rule
from selector.workbench.prove.context import Context
from selector.workbench.prove.formulas import Either, Value, new_solver
from selector.workbench.prove.goals import Goal
from selector.workbench.prove.sizes import Poly, Sizes, Unproved, Vacuous, number, unknown
from selector.workbench.prove.values import Attempt

_TRIES = 400
_MATCHES = 12
_MOST_LANES = 48
_RESOURCES = 300_000


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A match that goes wrong: the integers of the rule, what fails, in which lane, and the values
    that should be equal."""

    sizes: tuple[tuple[str, int], ...]
    goal: str
    lane: int | None
    values: str

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {value}" for name, value in self.sizes)
        lane = "" if self.lane is None else f" in lane {self.lane}"
        found = f": {self.values}" if self.values else ""
        return f"with {sizes or 'any sizes'}: {self.goal} fails{lane}{found}"


def counterexample(rule: Rule) -> Counterexample | None:
    """A match of a rule that goes wrong, among some of small sizes; None if none was found."""
    for chosen in matches(rule):
        for goal in rule.goals.found:
            found = _fails(rule, goal, chosen)
            if found is not None:
                return found
    return None


def matches(rule: Rule) -> Iterator[dict[str, int]]:
    """Small sizes, and other integers, of which the premises hold."""
    generator, seen = Random(0), set[tuple[int, ...]]()
    for _ in range(_TRIES):
        chosen = _chosen(rule.context, generator, _integers(rule))
        if chosen is None or tuple(chosen.values()) in seen:
            continue
        seen.add(tuple(chosen.values()))
        yield chosen
        if len(seen) == _MATCHES:
            return


def _integers(rule: Rule) -> list[Poly]:
    own = [unknown(name) for name, sort in rule.sorts.known.items() if sort == "i64"]
    return [*own, *rule.context.counts.values()]


def _chosen(context: Context, generator: Random, polys: list[Poly]) -> dict[str, int] | None:
    """Numbers for all unknowns that are left, if the premises hold of them."""
    sizes = deepcopy(context.sizes)
    named = [*polys, *(p for _, a, b in sizes.facts for p in (a, b))]
    named += [p for pair in sizes.parts for p in pair]
    free = dict.fromkeys(n for p in named for n in sizes.expanded(p).names())
    derived = {n for q, r in sizes.parts.values() for n in (q.name, r.name)} | {*sizes.extremes}
    chosen: dict[str, int] = {}
    try:
        for name in sorted(free, key=lambda n: (n in derived, n)):
            if name in derived and name not in sizes.bound:
                _derive(sizes, chosen)
            if name not in sizes.bound:
                _set(sizes, chosen, name, _number(context, name, generator))
        _derive(sizes, chosen)
    except Vacuous:
        return None
    at = Attempt(context, chosen, lane=0)
    holds = all(z3.is_true(z3.simplify(f)) for f in at.of_sizes())
    return chosen if holds else None


def _number(context: Context, name: str, generator: Random) -> int:
    if name in context.cases:
        return generator.choice(context.cases[name])
    return generator.randint(1, 3) if name in context.sizes.positive else generator.randint(-3, 4)


def _set(sizes: Sizes, chosen: dict[str, int], name: str, value: int) -> None:
    sizes.bound[name] = number(value)
    chosen[name] = value


def _derive(sizes: Sizes, chosen: dict[str, int]) -> None:
    """Quotients, rests and extremes of what has been chosen."""
    for (a, b), (q, r) in list(sizes.parts.items()):
        x, y = sizes.expanded(a).constant, sizes.expanded(b).constant
        if x is None or not y:
            continue
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        for p, value in ((q, quotient), (r, x - y * quotient)):
            if p.name and p.name not in sizes.bound:
                _set(sizes, chosen, p.name, value)
    for name, (op, a, b) in sizes.extremes.items():
        x, y = sizes.expanded(a).constant, sizes.expanded(b).constant
        if x is not None and y is not None and name not in sizes.bound:
            _set(sizes, chosen, name, min(x, y) if op == "min" else max(x, y))


def _fails(rule: Rule, goal: Goal, chosen: dict[str, int]) -> Counterexample | None:
    """A goal denied, lane by lane."""
    for lane in range(_MOST_LANES):
        at = Attempt(rule.context, chosen, lane=lane)
        try:
            formulas = [f for f in goal.formulas(at) if not isinstance(f, Either)]
        except (Unproved, z3.Z3Exception):
            return None  # told by types, or not of these sizes
        for formula in formulas:
            values = _denied(at, formula)
            if values is not None:
                has_lanes = at.extent is not None and at.extent > 1
                shown = tuple(
                    (name, value)
                    for name, sort in sorted(rule.sorts.known.items())
                    if sort == "i64"
                    and (value := at.sizes.expanded(unknown(name)).constant) is not None
                )
                return Counterexample(shown, goal.text, lane if has_lanes else None, values)
        if at.extent is None or lane + 1 >= at.extent:
            return None
    return None


def _denied(at: Attempt, formula: Value) -> str | None:
    """Values that break a formula while all facts hold; None if there are none."""
    solver = new_solver([*(fact.formula for fact in at.facts), z3.Not(formula)], _RESOURCES)
    if solver.check() != z3.sat:
        return None
    if not z3.is_eq(formula):
        return ""
    model = solver.model()
    sides = formula.translate(solver.ctx).children()
    left, right = (model.eval(side, model_completion=True) for side in sides)
    return f"{left} and {right}"
