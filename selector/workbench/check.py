"""``rules check`` and ``rules test``: what is wrong with rules and their tests."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field

from selector.dataclass import dataclass
from selector.diagnostics import ParseError, UserError
from selector.workbench.bench import Bench, Outcome
from selector.workbench.cases import Case, Kind, load
from selector.workbench.files import read_given, with_standard
from selector.workbench.problems import Problem, at
from selector.workbench.ruleset import Rule, lint, read_rules
from selector.workbench.source import expression

MOST_STOPPED = 3
"""Tests whose saturation had to be stopped, after which the rest is not run."""


@dataclass
class Result:
    """What a command found: problems in the order of the files, and the tests that ran."""

    rules: int = 0
    problems: list[Problem] = field(default_factory=list[Problem])
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    left: int = 0
    seconds: float = 0.0

    @property
    def code(self) -> int:
        return 1 if self.problems else 0

    def as_dict(self) -> dict[str, object]:
        """The result as data, for JSON."""
        return {
            "rules": self.rules,
            "tests": len(self.outcomes),
            "passed": sum(o.passed for o in self.outcomes),
            "not_run": self.left,
            "seconds": self.seconds,
            "problems": [p.as_dict() for p in self.problems],
        }

    def __str__(self) -> str:
        failed = sum(not o.passed for o in self.outcomes)
        found = counted(len(self.problems), "problem") if self.problems else "no problem"
        lines = [str(p) for p in self.problems]
        tests = f"{counted(len(self.outcomes), 'test')}, {failed} failed"
        left = f", {self.left} not run" if self.left else ""
        lines.append(f"{found}: {counted(self.rules, 'rule')}, {tests}{left}, {self.seconds:.1f} s")
        return "\n".join(lines)


def counted(count: int, what: str) -> str:
    """``1 test``, ``2 tests``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def check(
    paths: Sequence[str],
    targets: Sequence[str] = (),
    only: tuple[str, ...] | None = None,
    alone: bool = False,
) -> Result:
    """Check rule files and run tests.

    Without files: the standard rules, that each has its two tests, and all tests. With rule files:
    those, and all standard tests with the rules in place. With tests: those.
    """
    start = time.perf_counter()
    result = Result()
    try:
        given = read_given(paths)
        files = with_standard(given.rules, alone)
        cases = given.cases or (() if alone else load())
        result.rules = len(read_rules(files))
        own = {name for name, _ in given.rules}
        found = lint(files)
    except ParseError as error:
        result.problems.append(of_error(error))
        result.seconds = time.perf_counter() - start
        return result
    result.problems += [p for p in found if not own or p.file in own] or found
    if not paths:
        result.problems += untested(read_rules(files), cases)
    if not any(p.breaks for p in result.problems):
        _run(result, Bench(files, only), _for_targets(cases, targets))
    else:
        result.left = len(cases)
    result.seconds = time.perf_counter() - start
    return result


def run_tests(
    pattern: str,
    paths: Sequence[str] = (),
    extra: Sequence[str] = (),
    targets: Sequence[str] = (),
    only: tuple[str, ...] | None = None,
) -> Result:
    """Run the tests whose name, rule or file has ``pattern`` (a regular expression) in it.

    ``UserError`` if there is none.
    """
    start = time.perf_counter()
    given = read_given(paths)
    cases = tuple(matching(given.cases if paths else load(), pattern))
    if not cases:
        raise UserError(
            f"no test matches {pattern!r}" if pattern else "no tests in these files",
            hint="`python -m selector rules list` names the rules",
        )
    files = with_standard((*read_given(extra).rules, *given.rules))
    result = Result(rules=len({rule for c in cases for rule in c.rules}))
    _run(result, Bench(files, only), _for_targets(cases, targets))
    result.seconds = time.perf_counter() - start
    return result


def matching(cases: Iterable[Case], pattern: str) -> Iterator[Case]:
    """The cases that a pattern names. ``UserError`` for a pattern that is none."""
    wanted = expression(pattern)
    return (c for c in cases if wanted.search(f"{c.file} {c.name} {c.note}"))


def untested(rules: Sequence[Rule], cases: Sequence[Case]) -> list[Problem]:
    """Rules without a test in which they fire, or one in which they must not."""
    missing: list[Problem] = []
    for kind in (Kind.FIRES, Kind.SILENT):
        tested = {rule for case in cases if case.kind is kind for rule in case.rules}
        for rule in rules:
            if rule.name and rule.name not in tested:
                where = rule.form.file.replace("rules/", "rules/tests/", 1)
                header = f"; [{rule.name}] {kind.value}"
                missing.append(at(rule.form, rule.name, f"no test `{header}` in {where}"))
    return missing


def _for_targets(cases: Iterable[Case], targets: Sequence[str]) -> tuple[Case, ...]:
    """The tests with other targets, if some are asked for."""
    if not targets:
        return tuple(cases)
    return tuple(case.on(tuple(targets)) for case in cases)


def _run(result: Result, bench: Bench, cases: Sequence[Case]) -> None:
    """Run tests; give up when saturation had to be stopped in several."""
    stopped = 0
    for i, case in enumerate(cases):
        outcome = bench.run(case)
        result.outcomes.append(outcome)
        for problem in outcome.problems:
            if problem not in result.problems:
                result.problems.append(problem)
        stopped += outcome.stopped
        if stopped >= MOST_STOPPED:
            result.left = len(cases) - i - 1
            return


def of_error(error: ParseError) -> Problem:
    """A file that is no egglog text, as a problem of it."""
    where = "" if error.where is None else error.where.location
    file, line, column = where.rsplit(":", 2) if where.count(":") > 1 else (where, "1", "1")
    why, _, shown = error.why.partition("\n")
    return Problem(file, int(line), int(column), "", f"{error.what}: {why}", shown, breaks=True)
