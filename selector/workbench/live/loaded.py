"""Rule files on one graph of egglog, kept between edits.

First come the declarations of all files, then the rules, a copy of the graph kept before those of
each file; a file whose rules change goes to the end (and of two rules of one name the one edited
last is the second). So an edit of a rule reads that one file again, where all of them take 0.1 s.
Each command is run by itself, and one that egglog refuses is left out, so that all mistakes are
told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache

from selector.dataclass import dataclass
from selector.eqsat.bindings import egglog
from selector.eqsat.saturate import Engine
from selector.eqsat.stepping import RunawayError, Step, Stepper, run_text
from selector.workbench.bench import Bench, WatchedEngine
from selector.workbench.cases import RULES
from selector.workbench.problems import Problem, at, of_egglog
from selector.workbench.ruleset import Rule, RuleFiles, forms, habits, rule_of
from selector.workbench.source import Form

LONGEST = 1.0
"""Seconds of saturation after which a test is given up; ours take 0.1."""


@dataclass(frozen=True, slots=True)
class Layer:
    """The rules of a file, as they were loaded, and what is wrong with them."""

    file: tuple[str, str]
    rules: tuple[Rule, ...]
    problems: tuple[Problem, ...]


@lru_cache(maxsize=128)
def _forms(file: tuple[str, str]) -> tuple[Form, ...]:
    return tuple(forms([file]))


@dataclass
class Loaded:
    """The files that are on the graph; belongs to the thread that made it."""

    graph: egglog.EGraph = field(default_factory=egglog.EGraph)
    files: RuleFiles = ()
    layers: list[Layer] = field(default_factory=list[Layer])
    facts: str | None = None
    declared: tuple[str, ...] = ()
    declarations: tuple[Problem, ...] = ()
    """What is wrong with declarations."""

    @property
    def rules(self) -> dict[str, Rule]:
        """The rules by name, the first of each name."""
        found: dict[str, Rule] = {}
        for layer in self.layers:
            for rule in layer.rules:
                found.setdefault(rule.name, rule)
        return found

    @property
    def problems(self) -> tuple[Problem, ...]:
        return (*self.declarations, *(p for layer in self.layers for p in layer.problems))

    def load(self, files: RuleFiles) -> None:
        """Have these files on the graph; ``ParseError``, with the graph as it was, for a file that
        is no egglog text."""
        read = [form for file in files for form in _forms(file)]
        declarations = [f for f in read if f.head not in RULES]
        if self.files == files:
            return
        if self.declared != tuple(f.text for f in declarations) or self.declarations:
            self._declare(declarations)
        same = 0
        while same < len(self.layers) and self.layers[same].file in files:
            same += 1
        before, self.files = self.files, files
        self._drop(same)
        places = {f.words[1]: i for i, f in enumerate(read) if _declares(f)}
        order = {(f.file, f.offset): i for i, f in enumerate(read)}
        kept = {layer.file for layer in self.layers}
        # What is new is where edits go on: it comes last.
        for file in sorted((f for f in files if f not in kept), key=lambda f: f not in before):
            self._add(file, places, order)

    def _declare(self, declarations: Sequence[Form]) -> None:
        """Begin anew with these declarations."""
        self.clear_facts()
        self.graph, self.layers = egglog.EGraph(), []
        self.declared = tuple(f.text for f in declarations)
        self.declarations = tuple(p for f in declarations for p in self._run_form(f, ""))

    def _drop(self, same: int) -> None:
        """Leave only so many layers."""
        self.clear_facts()
        for _ in self.layers[same:]:
            self._run("(pop)")
        del self.layers[same:]

    def _add(
        self, file: tuple[str, str], places: Mapping[str, int], order: Mapping[tuple[str, int], int]
    ) -> None:
        known = self.rules
        found: list[Problem] = []
        own: list[Rule] = []
        self._run("(push)")
        for form in (f for f in _forms(file) if f.head in RULES):
            rule = rule_of(form)
            found += habits(rule, known)
            if rule.name in known:
                continue  # egglog panics on a second rule of one name
            own.append(rule)
            if rule.name:
                known[rule.name] = rule
            problems = self._run_form(form, rule.name)
            here = order[form.file, form.offset]
            if not problems and (late := [w for w in form.words if places.get(w, -1) > here]):
                what = f"`{late[0]}` is declared below this rule, or in a file that loads later"
                problems = [replace(at(form, rule.name, what), breaks=True)]
            found += problems
        self.layers.append(Layer(file, tuple(own), tuple(found)))

    def _run_form(self, form: Form, rule: str) -> list[Problem]:
        try:
            run_text(self.graph, form.padded, form.file)
        except egglog.EggSmolError as error:
            return [replace(of_egglog(form, error.context, rule), breaks=True)]
        return []

    def engine(self, facts: str) -> Engine:
        """An engine on the graph with the instructions that ``facts`` states."""
        if facts != self.facts:
            self.clear_facts()
            self._run("(push)")
            self.facts = facts
            return WatchedEngine(facts, graph=self.graph, rules=())
        return WatchedEngine("", graph=self.graph, rules=())

    def clear_facts(self) -> None:
        if self.facts is not None:
            self._run("(pop)")
            self.facts = None

    def _run(self, command: str) -> None:
        run_text(self.graph, command)


def _declares(form: Form) -> bool:
    return form.head not in RULES and len(form.words) > 1


class SupersededError(Exception):
    """A test that was left where it stood."""


class LiveBench(Bench):
    """The bench on a graph that is kept; a test is left when ``stop`` says so, and given up after
    ``LONGEST`` seconds. Both are asked between two steps: a step cannot be stopped."""

    def __init__(self, loaded: Loaded, stop: Callable[[], bool]) -> None:
        super().__init__(loaded.files)
        self.loaded, self.stop = loaded, stop
        self.rules = loaded.rules

    def engine(self, targets: Iterable[str]) -> Engine:
        return self.loaded.engine(self.facts(tuple(targets)))

    def stepper(self, engine: Engine) -> Stepper:
        start = time.perf_counter()

        def watch(step: Step) -> None:
            if self.stop():
                raise SupersededError
            if time.perf_counter() - start > LONGEST:
                raise RunawayError(step.phase, f"it was stopped after {LONGEST} s", stepper.hot())

        stepper = Stepper(engine, watch)
        return stepper
