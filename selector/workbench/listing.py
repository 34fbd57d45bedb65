"""``rules list`` and ``rules coverage``: what rules there are, and which of them are used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from selector.dataclass import dataclass
from selector.eqsat.select import solved_scopes
from selector.ir.module import Module
from selector.targets import find_target
from selector.workbench.bench import Bench
from selector.workbench.cases import Case
from selector.workbench.ruleset import Rule, read_rules
from selector.workbench.source import expression


def matching_rules(files: Iterable[tuple[str, str]], pattern: str) -> tuple[Rule, ...]:
    """The rules whose name, ruleset, file or law a regular expression finds; ``UserError`` for a
    pattern that is none.
    """
    wanted, rules = expression(pattern), read_rules(files)
    return tuple(r for r in rules if wanted.search(f"{r.name} {r.ruleset} {r.form.file} {r.law}"))


def list_rules(rules: Sequence[Rule]) -> str:
    """One line a rule: name, ruleset, place, law; grouped by file."""
    if not rules:
        return "no rules"
    name = max(len(r.name) for r in rules)
    ruleset = max(len(r.ruleset) for r in rules)
    lines: list[str] = []
    file = ""
    for r in rules:
        if r.form.file != file:
            file = r.form.file
            lines.append(file)
        lines.append(f"  {r.form.line:4}  {r.name:{name}}  {r.ruleset:{ruleset}}  {r.law}")
    return "\n".join(lines)


@dataclass(frozen=True)
class Coverage:
    """Matches of every rule: in the tests that are about it, in all tests, in programs."""

    rules: tuple[Rule, ...]
    own: Counter[str]
    tests: Counter[str]
    programs: Counter[str]
    count: tuple[int, int]

    @property
    def never(self) -> tuple[Rule, ...]:
        """Rules that matched nowhere."""
        return tuple(r for r in self.rules if not (self.tests[r.name] or self.programs[r.name]))

    @property
    def unused(self) -> tuple[Rule, ...]:
        """Rules that matched in no program."""
        return tuple(r for r in self.rules if not self.programs[r.name])

    def as_dict(self) -> dict[str, object]:
        """The counts as data, for JSON."""
        return {
            "tests": self.count[0],
            "programs": self.count[1],
            "rules": [
                {
                    "name": r.name,
                    "file": r.form.file,
                    "line": r.form.line,
                    "own_tests": self.own[r.name],
                    "tests": self.tests[r.name],
                    "programs": self.programs[r.name],
                }
                for r in self.rules
            ],
            "never": [r.name for r in self.never],
        }

    def __str__(self) -> str:
        total = len(self.rules)
        width = max((len(r.name) for r in self.rules), default=0)
        lines = [f"{'rule':{width}}  own tests  all tests  programs"]
        for r in self.rules:
            counts = (self.own[r.name], self.tests[r.name], self.programs[r.name])
            lines.append(f"{r.name:{width}}  {counts[0]:9}  {counts[1]:9}  {counts[2]:8}")
        fired, used = total - len(self.never), total - len(self.unused)
        lines.append(
            f"{fired} of {total} rules fired, in {self.count[0]} tests and {self.count[1]} "
            f"programs; {used} in a program"
        )
        lines += [f"never fired: {r.name} ({r.form.place})" for r in self.never]
        return "\n".join(lines)


def coverage(
    bench: Bench, cases: Sequence[Case], programs: Sequence[tuple[Module, str]]
) -> Coverage:
    """Count matches in tests and in programs, each for its target."""
    own: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for case in cases:
        matches = bench.run(case).matches
        tests.update(matches)
        own.update({rule: matches[rule] for rule in case.rules})
    for module, target in programs:
        used.update(program_matches(bench, module, target))
    return Coverage(tuple(bench.rules.values()), own, tests, used, (len(cases), len(programs)))


def program_matches(bench: Bench, module: Module, target: str) -> Counter[str]:
    """Matches by rule in the selection of a program."""
    found: Counter[str] = Counter()
    engine = bench.engine((target,))
    for solved in solved_scopes(module, find_target(target), bench.only, engine):
        found.update(solved.solution.saturation.matches)
    return found
