"""The driver of egglog: rules loaded once, one pushed graph per scope, phases with caps.

egglog has no limits of its own, so every round is one call from here; a phase that reaches its cap
stops and is reported. An ``EGraph`` belongs to its thread.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from typing import Any

from rules import rule_files
from selector.dataclass import dataclass
from selector.diagnostics import InternalError, ParseError
from selector.eqsat.bindings import egglog

MAX_TUPLES = 200_000
"""Rows of all tables after which a phase stops."""

_AXIOMS = "(saturate (run supporting)) (run axioms)"
PHASES: tuple[tuple[str, str, int], ...] = (
    ("axioms", f"(run-schedule (repeat 3 (seq {_AXIOMS})))", 12),
    ("application", f"(run-schedule (repeat 3 (seq {_AXIOMS} (run application))))", 16),
    ("lowering", "(run-schedule (saturate (run lowering)))", 4),
)
"""Name, schedule of one round, most rounds."""

_COMMAND = re.compile(r"^\(", re.MULTILINE)
"""A line where a command begins."""

Watch = Callable[[egglog.RunReport, int], None]
"""Told of each round: what it did, and the rows of all tables after it."""


@dataclass
class Saturation:
    """What a run did: matches by rule, rounds and seconds by phase, the phases that hit a cap, and
    the rows of all tables at the end."""

    matches: Counter[str] = field(default_factory=Counter[str])
    rounds: dict[str, int] = field(default_factory=dict[str, int])
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    capped: tuple[str, ...] = ()
    rows: int = 0


@dataclass
class Engine:
    """An e-graph with rules and facts in it; ``scope`` gives a clean copy and takes it back.

    ``rules`` are (file name, text) in loading order; tests put changed rules in their place.
    """

    facts: str
    without: frozenset[str] = frozenset()
    graph: egglog.EGraph = field(default_factory=egglog.EGraph)
    rules: tuple[tuple[str, str], ...] = field(default_factory=rule_files)

    def __post_init__(self) -> None:
        for name, source in self.rules:
            self.load(name, source)
        self.run(self.facts)

    def load(self, name: str, source: str) -> None:
        """Add the rules of a file; ParseError with ``file:line:col`` for one that is not right."""
        try:
            commands = self.parsed(source, name)
            self.graph.run_program(*(c for c in commands if rule_name(c) not in self.without))
        except egglog.EggSmolError as error:
            raise ParseError(f"the rule file {name} is not right", error.context) from None

    def parsed(self, source: str, name: str) -> list[Any]:
        """The commands of a file, each parsed by itself, in its line: every node of what egglog
        parses has a copy of the whole text it was parsed from, which takes a fifth of the time that
        rules take to be loaded.
        """
        later = [m.start() for m in _COMMAND.finditer(source)][1:]
        pieces = zip([0, *later], [*later, None], strict=True)
        try:
            return [
                command
                for start, end in pieces
                for command in self.graph.parse_program(
                    "\n" * source.count("\n", 0, start) + source[start:end], name
                )
            ]
        except egglog.EggSmolError:  # a line in the middle of a command began like one
            return self.graph.parse_program(source, name)

    def run(self, program: str) -> Sequence[object]:
        """Run commands; each call is parsed on its own, because spans carry their whole source."""
        try:
            return self.graph.run_program(*self.graph.parse_program(program, "<scope>"))
        except egglog.EggSmolError as error:
            raise InternalError(f"egglog stopped: {error.context}") from error

    def probe(self, program: str) -> Saturation:
        """Saturate a graph made by these commands and forget it: for tests of single rules."""
        with self.saturated([program]) as saturation:
            return saturation

    @contextmanager
    def saturated(self, commands: Sequence[str]) -> Generator[Saturation]:
        """Saturate a graph made by these commands; it is readable inside."""
        self.run("(push)")
        try:
            for command in commands:
                self.run(command)
            yield self.saturate()
        finally:
            self.run("(pop)")

    def scope(self, statements: Sequence[str]) -> AbstractContextManager[Saturation]:
        """Saturate a graph of these Store terms, numbered from 0."""
        return self.saturated([f"(set (statement {i}) {s})" for i, s in enumerate(statements)])

    def saturate(self, watch: Watch = lambda report, rows: None) -> Saturation:
        """Run all phases."""
        result = Saturation()
        for phase, schedule, most in PHASES:
            result.rounds[phase], start = 0, time.perf_counter()
            while True:
                updated = self.round(schedule, result, watch)
                result.rounds[phase] += 1
                if not updated:
                    break
                if result.rounds[phase] >= most or result.rows > MAX_TUPLES:
                    result.capped = (*result.capped, phase)
                    break
            result.seconds[phase] = time.perf_counter() - start
        return result

    def round(
        self, schedule: str, result: Saturation, watch: Watch = lambda report, rows: None
    ) -> bool:
        """Run a schedule, and add what it did to the result; whether it changed the graph."""
        updated = False
        for output in self.run(schedule):
            assert isinstance(output, egglog.RunScheduleOutput)
            report, result.rows = output.report, self.size()
            watch(report, result.rows)
            result.matches.update(report.num_matches_per_rule)
            updated = updated or report.updated
        return updated

    def size(self) -> int:
        """Rows of all tables."""
        (output,) = self.run("(print-size)")
        assert isinstance(output, egglog.PrintAllFunctionsSize)
        return sum(n for _, n in output.sizes)


def rule_name(command: object) -> str:
    """The ``:name`` of a rule or rewrite; empty for any other command."""
    match command:
        case egglog.RuleCommand():
            return command.rule.name
        case egglog.RewriteCommand():
            return command.rewrite.name
        case _:
            return ""


_engines = threading.local()


def engine_for(facts: str) -> Engine:
    """An engine with these facts; the rules are parsed once per thread and set of facts."""
    table: dict[str, Engine] = _engines.__dict__.setdefault("table", {})
    if facts not in table:
        table[facts] = Engine(facts)
    return table[facts]
