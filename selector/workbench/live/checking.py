"""What is wrong with the rules as they are now: first what is told at once, then what takes longer.

At once: names, arities, types and habits of every file that an edit concerns, and the tests of the
rules that differ from the package's, as far as they go in ``AT_ONCE`` seconds. Then, a piece at a
time so that an edit can come between: the proofs of these rules, and all other tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from enum import Enum

from selector.dataclass import dataclass
from selector.diagnostics import ParseError
from selector.workbench.bench import Outcome
from selector.workbench.cases import Case
from selector.workbench.check import MOST_STOPPED, counted, of_error, untested
from selector.workbench.live.book import Book
from selector.workbench.live.loaded import LiveBench, Loaded, SupersededError
from selector.workbench.live.names import Names
from selector.workbench.live.proofs import prove_apart
from selector.workbench.problems import Problem
from selector.workbench.ruleset import Rule, read_rules, standard_files

AT_ONCE = 0.06
"""Seconds that tests may take before the first answer."""


class Severity(Enum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem and how bad it is: mistakes and failed tests are errors, habits and missing proofs
    warnings, missing tests notes."""

    problem: Problem
    severity: Severity

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known so far; ``finished``: nothing more will come. ``seconds`` since it began."""

    findings: tuple[Finding, ...]
    rules: int
    tests: int
    finished: bool
    seconds: float

    @property
    def code(self) -> int:
        """1 if something is wrong, missing tests aside."""
        return int(any(f.severity is not Severity.NOTE for f in self.findings))

    @property
    def summary(self) -> str:
        """Counts, in a line."""
        count = len(self.findings)
        found = counted(count, "problem") if count else "no problem"
        tests = f"{counted(self.rules, 'rule')}, {counted(self.tests, 'test')} passed"
        rest = "" if self.finished else "; more is being checked"
        return f"{found}: {tests}, {1000 * self.seconds:.0f} ms{rest}"


Checks = Generator[Standing | None]
"""What is known, as it becomes known; None between two pieces of work."""


def never() -> bool:
    return False


@dataclass
class Checker:
    """Checks what a book holds; belongs to the thread that made it. A test is left where it stands
    once ``superseded`` says that nobody waits for it."""

    superseded: Callable[[], bool] = never
    book: Book = field(default_factory=Book)
    loaded: Loaded = field(default_factory=Loaded)
    released: dict[str, str] = field(default_factory=dict[str, str])
    """The text of each rule of the package."""
    own_tests: frozenset[tuple[str, str]] = frozenset()

    def __post_init__(self) -> None:
        with suppress(ParseError):  # of a file that is being mended: all is new then
            self.released = {r.name: r.form.text for r in read_rules(standard_files())}
            self.own_tests = frozenset(_key(case) for case in Book().cases())
            self.loaded.load(self.book.rules())

    def check(self) -> Checks:
        """Check the book. What this cannot do is told as a problem of the file opened last."""
        run = _Run(self, time.perf_counter())
        try:
            yield from run.all()
        except SupersededError:
            return
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # a panic of egglog is no Exception
            self.loaded = Loaded()
            file = next(reversed(self.book.texts), "rules")
            what = f"this cannot be checked: {type(error).__name__}: {error}"
            run.found(Problem(file, 1, 1, "", what, breaks=True), Severity.ERROR)
            yield run.standing(finished=True)


@dataclass
class _Run:
    checker: Checker
    start: float
    findings: list[Finding] = field(default_factory=list[Finding])
    changed: tuple[Rule, ...] = ()
    passed: int = 0
    stopped: int = 0

    def found(self, problem: Problem, severity: Severity) -> None:
        """Keep a problem, once."""
        if all(f.problem != problem for f in self.findings):
            self.findings.append(Finding(problem, severity))

    def all(self) -> Checks:
        """Texts, tests, proofs."""
        checker = self.checker
        try:
            cases = checker.book.cases()
            checker.loaded.load(checker.book.rules())
            names = Names.of(checker.book.documents())
        except ParseError as error:
            self.found(of_error(error), Severity.ERROR)
            yield self.standing(finished=True)
            return
        self._read(names, cases)
        if any(p.breaks for p in checker.loaded.problems):
            yield self.standing(finished=True)
            return
        mine = {r.name for r in self.changed}
        own = [c for c in cases if mine & set(c.rules) or _key(c) not in checker.own_tests]
        chosen = {id(c) for c in own}
        others = [c for c in cases if mine and id(c) not in chosen]
        left = self._at_once(own)
        yield self.standing(finished=not (left or others))
        yield from self._then(left, others)

    def _read(self, names: Names, cases: Sequence[Case]) -> None:
        """What the texts alone tell."""
        loaded, released = self.checker.loaded, self.checker.released
        for problem in loaded.problems:
            severity = Severity.ERROR if problem.breaks else Severity.WARNING
            hints = names.hints(problem.what)
            self.found(replace(problem, details=(*problem.details, *hints)), severity)
        rules = loaded.rules.values()
        self.changed = tuple(r for r in rules if released.get(r.name) != r.form.text)
        for problem in untested(self.changed, cases):
            self.found(problem, Severity.NOTE)

    def _at_once(self, cases: Sequence[Case]) -> Sequence[Case]:
        """Run tests for so long as is allowed at once; those that are left."""
        end = time.perf_counter() + AT_ONCE
        bench = self._bench(lambda: self.checker.superseded() or time.perf_counter() > end)
        for i, case in enumerate(cases):
            try:
                self._tested(bench.run(case))
            except SupersededError:
                return cases[i:]
        return ()

    def _then(self, left: Sequence[Case], others: Sequence[Case]) -> Checks:
        """The other tests of what changed, the proofs, all other tests."""
        bench = self._bench(self.checker.superseded)
        yield from self._tests(bench, left)
        if left and others:
            yield self.standing()
        for problem in prove_apart(self.changed, self.checker.loaded.files):
            if problem is not None:
                self.found(problem, Severity.WARNING)
            yield self.standing() if problem is not None else None
        yield from self._tests(bench, others)
        if left or others:
            yield self.standing(finished=True)

    def _tests(self, bench: LiveBench, cases: Sequence[Case]) -> Checks:
        for case in cases:
            if self.stopped >= MOST_STOPPED:
                return
            self._tested(bench.run(case))
            yield None

    def _bench(self, stop: Callable[[], bool]) -> LiveBench:
        return LiveBench(self.checker.loaded, stop)

    def _tested(self, outcome: Outcome) -> None:
        self.passed += outcome.passed
        self.stopped += outcome.stopped
        for problem in outcome.problems:
            self.found(problem, Severity.ERROR)

    def standing(self, finished: bool = False) -> Standing:
        """What is known now."""
        return Standing(
            tuple(self.findings), len(self.checker.loaded.rules), self.passed, finished,
            time.perf_counter() - self.start,
        )  # fmt: skip


def _key(case: Case) -> tuple[str, str]:
    """What a test is, wherever it stands."""
    return case.name, "\n".join(f.text for f in case.forms)
