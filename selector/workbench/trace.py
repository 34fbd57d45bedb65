"""``rules trace``: which rules led a program to its instructions.

Every distinct statement of a tensor scope is saturated once more alone, one ruleset at a time. Of
each rule that matched, the phase and round of its first match and the number of all are told; the
chain is a smallest set of rules that still gives the result, in the order in which they first fire.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from selector.dataclass import dataclass
from selector.eqsat.explain import chain, wanted
from selector.eqsat.reporting import describe
from selector.eqsat.saturate import Engine
from selector.eqsat.select import SolvedScope, solved_scopes
from selector.eqsat.stepping import RunawayError, Step, Stepper
from selector.ir.module import Module
from selector.report import StatementReport
from selector.targets import find_target
from selector.workbench.bench import Bench, pushed
from selector.workbench.ruleset import standard_files


@dataclass(frozen=True, slots=True)
class Firing:
    """A rule that matched: where first, and how often in all."""

    rule: str
    phase: str
    round: int
    matches: int

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Trace:
    """One distinct statement: what it became (``entry``), the rules that fired, and the chain of
    (rule, law) that is enough.
    """

    number: int
    entry: StatementReport
    firings: tuple[Firing, ...]
    chain: tuple[tuple[str, str], ...]
    stopped: str = ""

    def as_dict(self) -> dict[str, object]:
        """The trace as data, for JSON."""
        return {
            "number": self.number,
            "statement": self.entry.as_dict(),
            "chain": [{"rule": rule, "law": law} for rule, law in self.chain],
            "fired": [f.as_dict() for f in self.firings],
            "stopped": self.stopped,
        }

    def __str__(self) -> str:
        e = self.entry
        head = str(e).splitlines()
        lines = [f"{self.number}. {head[0]}", f"  {e.where.statement}"]
        lines += [line for line in head[1:] if not line.startswith("  rules ")]
        if self.chain:
            width = max(len(rule) for rule, _ in self.chain)
            lines.append("  because of")
            lines += [
                f"    {i:2} {rule:{width}}  {law}" for i, (rule, law) in enumerate(self.chain, 1)
            ]
        lines.append("  fired, by phase and round of the first match")
        lines += list(_table(self.firings)) or ["    no rule"]
        if self.stopped:
            lines.append(f"  stopped: {self.stopped}")
        return "\n".join(lines)


def trace(bench: Bench, module: Module, target: str) -> tuple[Trace, ...]:
    """The traces of a program's distinct statements on tensor units, in program order."""
    engine = bench.engine((target,))
    seen: set[object] = set()
    found: list[Trace] = []
    count = 0
    for solved in solved_scopes(module, find_target(target), bench.only, engine):
        key = (solved.solution.statements, tuple(s.buffer for s in solved.scope.stores))
        if key not in seen:
            seen.add(key)
            found += _scope(bench, engine, module, solved, count)
        count += len(solved.scope.distinct)
    return tuple(found)


def _scope(
    bench: Bench, engine: Engine, module: Module, solved: SolvedScope, before: int
) -> Iterator[Trace]:
    entries = describe(module, solved.scope, solved.solution, solved.misses)
    for i, (statement, entry) in enumerate(zip(solved.scope.distinct, entries, strict=True)):
        steps, stopped = run(engine, [statement])
        names = () if entry.miss else _chain(bench, solved, i, statement, steps)
        laws = tuple((rule, bench.rules[rule].law) for rule in names if rule in bench.rules)
        yield Trace(before + i + 1, entry, firings(steps), laws, stopped)


def run(engine: Engine, statements: Sequence[str]) -> tuple[list[Step], str]:
    """The steps of saturating statements in a graph of their own, and why it was stopped if so."""
    with pushed(engine):
        for i, statement in enumerate(statements):
            engine.run(f"(set (statement {i}) {statement})")
        stepper = Stepper(engine)
        try:
            stepper.saturate()
        except RunawayError as stop:
            return stepper.steps, stop.why
        return stepper.steps, ""


def firings(steps: Sequence[Step]) -> tuple[Firing, ...]:
    """The rules that matched, in the order of their first match."""
    first: dict[str, Step] = {}
    total: dict[str, int] = {}
    for step in steps:
        for rule in step.fired:
            first.setdefault(rule, step)
            total[rule] = total.get(rule, 0) + step.matches[rule]
    return tuple(Firing(r, s.phase, s.round, total[r]) for r, s in first.items())


def _chain(
    bench: Bench, solved: SolvedScope, index: int, statement: str, steps: Sequence[Step]
) -> tuple[str, ...]:
    """The rules that are enough; for a fill or a read, what the last phase did."""
    solution = solved.solution
    term = solution.terms[index]
    result = None if term is None else wanted(term)
    if result is None:
        return tuple(f.rule for f in firings(steps) if f.phase == "lowering")
    rules = None if bench.files == standard_files() else bench.files
    return chain(statement, solution.facts, result, solution.saturation, rules)


def _table(found: Sequence[Firing]) -> Iterator[str]:
    """Lines of ``phase round: rule matches, ...``."""
    groups: dict[tuple[str, int], list[str]] = {}
    for f in found:
        groups.setdefault((f.phase, f.round), []).append(f"{f.rule} {f.matches}")
    for (phase, number), rules in groups.items():
        line = f"    {phase} {number}:"
        for i, rule in enumerate(rules):
            word = f" {rule}{',' if i + 1 < len(rules) else ''}"
            if len(line) + len(word) > 100:
                yield line
                line = "       "
            line += word
        yield line
