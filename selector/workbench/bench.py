"""The bench: rules and tests loaded, tests run on graphs of their own.

``Bench`` holds the rule files and makes an engine for each set of targets; ``run`` gives what
a test found wrong, with the terms of the graph that it found it in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import cached_property

from selector.dataclass import dataclass
from selector.diagnostics import ParseError, UserError
from selector.eqsat.bindings import egglog
from selector.eqsat.facts import instruction_facts, legal_instructions
from selector.eqsat.saturate import Engine, Saturation, Watch
from selector.eqsat.stepping import RunawayError, Stepper, run_text
from selector.targets import find_target
from selector.workbench.cases import SCHEDULES, Case, Kind, is_check
from selector.workbench.conflict import find_conflict
from selector.workbench.problems import Problem, at, of_egglog, place_of, within
from selector.workbench.ruleset import Rule, RuleFiles, read_rules, standard_files
from selector.workbench.source import Form
from selector.workbench.terms import Explainer


@dataclass(frozen=True)
class Outcome:
    """What a test found: matches by rule, and its problems (none if it passed)."""

    case: Case
    matches: Counter[str]
    problems: tuple[Problem, ...]
    stopped: bool = False
    """Whether saturation ended before its time: a cap, or a merge of what is not equal."""

    @property
    def passed(self) -> bool:
        return not self.problems


class WatchedEngine(Engine):
    """An engine that tells an author what stopped it, and stops where egglog would go on."""

    def saturate(self, watch: Watch = lambda report, rows: None) -> Saturation:
        """``UserError`` if the rules have no end, or an action cannot be done. ``watch`` is told
        nothing: every run of a ruleset is one of its own here."""
        stepper = Stepper(self)
        hint = "`python -m selector rules check` names the rule at fault"
        try:
            rounds = stepper.saturate()
        except RunawayError as stop:
            why = f"{stop.why}; still matching: {', '.join(stop.rules)}"
            raise UserError("saturation does not end", why, hint) from None
        except egglog.EggSmolError as error:
            raise UserError("egglog stopped", error.context, hint) from None
        return Saturation(stepper.matches, rounds, rows=self.size())


@dataclass
class Bench:
    """Rule files, the restriction of instructions, and the engines made of them."""

    files: RuleFiles = field(default_factory=standard_files)
    only: tuple[str, ...] | None = None
    engines: dict[tuple[str, ...], Engine] = field(default_factory=dict[tuple[str, ...], Engine])

    @cached_property
    def rules(self) -> dict[str, Rule]:
        """The rules by name."""
        return {r.name: r for r in read_rules(self.files)}

    def engine(self, targets: Iterable[str]) -> Engine:
        """The engine with these targets' instructions. ``ParseError`` if a file is not right."""
        key = tuple(targets)
        if key not in self.engines:
            self._names()
            self.engines[key] = WatchedEngine(self.facts(key), rules=self.files)
        return self.engines[key]

    def _names(self) -> None:
        """``ParseError`` for two rules of one name, at which egglog would give up."""
        seen: dict[str, Rule] = {}
        for rule in read_rules(self.files):
            if rule.name and rule.name in seen:
                first = seen[rule.name].form.place
                raise ParseError(
                    f"two rules are called {rule.name!r}", f"the first is {first}", "",
                    rule.form.place,
                )  # fmt: skip
            seen[rule.name] = rule

    def stepper(self, engine: Engine) -> Stepper:
        """What runs the schedules of a test."""
        return Stepper(engine)

    def facts(self, targets: Iterable[str]) -> str:
        """The instruction facts of targets."""
        return "\n".join(
            instruction_facts(legal_instructions(find_target(t), self.only)) for t in targets
        )

    def run(self, case: Case) -> Outcome:
        """Run one test on a clean graph."""
        engine = self.engine(case.targets)
        with pushed(engine):
            return _Run(self, case, engine).outcome()


@contextmanager
def pushed(engine: Engine) -> Generator[None]:
    """A copy of the graph, taken back at the end."""
    engine.run("(push)")
    try:
        yield
    finally:
        engine.run("(pop)")


@dataclass
class _Run:
    bench: Bench
    case: Case
    engine: Engine
    problems: list[Problem] = field(default_factory=list[Problem])
    stopped: bool = False

    def __post_init__(self) -> None:
        self.stepper = self.bench.stepper(self.engine)
        self.rule = " ".join(self.case.rules)

    def outcome(self) -> Outcome:
        if self._commands(self.case.setup) and self._saturate():
            self._matched()
            self._commands(self.case.rest)
        return Outcome(self.case, self.stepper.matches, tuple(self.problems), self.stopped)

    def _commands(self, forms: Sequence[Form]) -> bool:
        """Run commands and checks in order; whether egglog accepted all."""
        for form in forms:
            try:
                if form.head in SCHEDULES:
                    self.stepper.schedule(f"(seq {form.text})")
                else:
                    run_text(self.engine.graph, form.padded, form.file)
            except RunawayError as stop:
                self.problems.append(self._runaway(form, stop))
                return False
            except ValueError:
                self.problems.append(at(form, self.rule, "a schedule that the bench does not know"))
                return False
            except egglog.EggSmolError as error:
                if not _failed_check(form, error):
                    self._refused(form, error)
                    return False
                self.problems.append(self._explained(form))
        return True

    def _refused(self, form: Form, error: egglog.EggSmolError) -> None:
        if error.context.startswith("Panic"):
            self.problems.append(self._panic(error.context))
        else:
            self.problems.append(of_egglog(form, error.context, self.rule))

    def _saturate(self) -> bool:
        if self.case.scheduled:
            return True
        try:
            self.stepper.saturate()
        except RunawayError as stop:
            self.problems.append(self._runaway(self.case.forms[0], stop))
        except egglog.EggSmolError as error:
            self.problems.append(self._panic(error.context))
        return not self.problems

    def _matched(self) -> None:
        """Whether the rules did what the header says."""
        header = Form(f"; [{self.rule}] {self.case.kind.value}", self.case.file, self.case.line, 1)
        for rule in self.case.rules:
            count = self.stepper.matches[rule]
            if rule not in self.bench.rules:
                self.problems.append(at(header, rule, "there is no rule of this name"))
            elif self.case.kind is Kind.FIRES and not count:
                self.problems.append(at(header, rule, "the rule does not match in this graph"))
            elif self.case.kind is Kind.SILENT and count:
                times = "once" if count == 1 else f"{count} times"
                self.problems.append(at(header, rule, f"the rule matches {times} and must not"))

    def _explained(self, form: Form) -> Problem:
        """A check that failed, or held and must not, with what the graph has."""
        (command,) = self.engine.graph.parse_program(form.text, form.file)
        negative = isinstance(command, egglog.Fail)
        check = command.command if isinstance(command, egglog.Fail) else command
        assert isinstance(check, egglog.Check)
        explainer = Explainer(self.engine)
        what = "this holds and must not" if negative else "this does not hold"
        wrong = [f for f in check.facts if negative or not self._holds(str(f))] or check.facts
        span = wrong[0].span if isinstance(wrong[0], egglog.Eq) else wrong[0].expr.span
        assert isinstance(span, egglog.EgglogSpan)
        found = within(form, span.i, span.j - span.i, self.rule, what)
        details = tuple(line for f in wrong for line in explainer.fact(f))
        return replace(found, details=details)

    def _holds(self, fact: str) -> bool:
        try:
            run_text(self.engine.graph, f"(check {fact})")
        except egglog.EggSmolError:
            return False
        return True

    def _runaway(self, form: Form, stop: RunawayError) -> Problem:
        self.stopped = True
        rules = tuple(self._named(rule) for rule in stop.rules)
        return at(form, self.rule, f"saturation does not end: {stop.why}; still matching:", rules)

    def _panic(self, context: str) -> Problem:
        """A rule whose action cannot be done."""
        self.stopped = True
        if "Illegal merge" in context:
            return self._conflict(context)
        place = place_of(context)
        for rule in self.bench.rules.values():
            if place is not None and rule.form.covers(*place):
                return of_egglog(rule.form, context, rule.name)
        return at(self.case.forms[0], self.rule, context)

    def _conflict(self, context: str) -> Problem:
        """A merge that is not allowed, with the rule whose match makes it."""
        steps = self.stepper.steps
        conflict = find_conflict(self.engine, self.case, steps, self.bench.rules)
        name = context.split()[-1]
        what = f"two values of `{name}` meet in one class: what was merged is not equal"
        if conflict.rule is None:
            return at(self.case.forms[0], self.rule, what, conflict.details)
        return at(conflict.rule.form, conflict.rule.name, what, conflict.details)

    def _named(self, rule: str) -> str:
        known = self.bench.rules.get(rule)
        return f"{rule} ({known.form.place})" if known is not None else rule


def _failed_check(form: Form, error: egglog.EggSmolError) -> bool:
    said = error.context
    return is_check(form) and ("Check failed" in said or "should have failed" in said)
