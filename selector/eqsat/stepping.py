"""Saturation one ruleset at a time.

The same phases as a compilation (``selector.eqsat.saturate.PHASES``), but every ``run`` is a call
of its own: rules can be watched as they fire, and a rule that never stops is stopped between two
calls, where egglog itself would go on for ever.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import field

from selector.dataclass import dataclass
from selector.eqsat.bindings import egglog
from selector.eqsat.saturate import PHASES, Engine

MAX_TUPLES = 100_000
"""Rows of all tables after which a run is given up; our programs stay below 30,000."""
MAX_STEPS = 1_000
"""Runs of a ruleset inside one ``saturate``."""

Node = str | tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One run of a ruleset: matches by rule, and whether the graph changed."""

    phase: str
    round: int
    ruleset: str
    matches: Counter[str]
    updated: bool

    @property
    def fired(self) -> tuple[str, ...]:
        """The rules that matched, most matches first."""
        found = [(-n, rule) for rule, n in self.matches.items() if n]
        return tuple(rule for _, rule in sorted(found))


class RunawayError(Exception):
    """A run that was stopped: the phase, what stopped it, and the rules still matching."""

    def __init__(self, phase: str, why: str, rules: tuple[str, ...]) -> None:
        super().__init__(why)
        self.phase, self.why, self.rules = phase, why, rules


@dataclass
class Stepper:
    """Runs schedules on the graph of an engine; ``steps`` grows as they run."""

    engine: Engine
    watch: Callable[[Step], None] = lambda step: None
    steps: list[Step] = field(default_factory=list[Step])
    phase: str = ""
    round: int = 0

    @property
    def matches(self) -> Counter[str]:
        """Matches by rule over all steps."""
        total: Counter[str] = Counter()
        for step in self.steps:
            total.update(step.matches)
        return total

    def saturate(self) -> dict[str, int]:
        """All phases; the rounds that each took. ``RunawayError`` at a cap, ``EggSmolError`` if an
        action cannot be done (a merge of different lanes).
        """
        rounds: dict[str, int] = {}
        for phase, schedule, most in PHASES:
            self.phase, self.round = phase, 1
            while self.schedule(schedule):
                if self.round >= most:
                    why = f"the phase {phase!r} still changed the graph in its last round, {most}"
                    raise RunawayError(phase, why, self.hot())
                self.round += 1
            rounds[phase] = self.round
        return rounds

    def schedule(self, text: str) -> bool:
        """Run a ``(run-schedule ...)``; whether the graph changed."""
        return self._run(_parse(text))

    def _run(self, node: Node) -> bool:
        match node:
            case ("run-schedule" | "seq", *parts):
                return self._all(parts)
            case ("repeat", str(times), *parts):
                return self._repeat(int(times), parts)
            case ("saturate", *parts):
                return self._repeat(MAX_STEPS + 1, parts)
            case ("run", str(ruleset)) | str(ruleset):
                return self._step(ruleset, 1)
            case ("run", str(ruleset), str(times)):
                return self._step(ruleset, int(times))
            case _:
                raise ValueError(f"no schedule: {node}")

    def _all(self, parts: list[Node]) -> bool:
        """Run every part; whether any changed the graph."""
        changed = False
        for part in parts:
            changed = self._run(part) or changed
        return changed

    def _repeat(self, times: int, parts: list[Node]) -> bool:
        changed = False
        for i in range(times):
            if not self._all(parts):
                return changed
            changed = True
            if i == MAX_STEPS:
                shown = _shown(("saturate", *parts))
                why = f"{shown} did not come to an end in {MAX_STEPS} runs"
                raise RunawayError(self.phase, why, self.hot())
        return changed

    def _step(self, ruleset: str, times: int) -> bool:
        name = "" if ruleset.isdigit() else ruleset
        changed = False
        for _ in range(int(ruleset) if ruleset.isdigit() else times):
            matches: Counter[str] = Counter()
            updated = False
            for output in run_text(self.engine.graph, f"(run-schedule (run {name}))"):
                assert isinstance(output, egglog.RunScheduleOutput)
                matches.update(output.report.num_matches_per_rule)
                updated = updated or output.report.updated
            step = Step(self.phase, self.round, name, matches, updated)
            self.steps.append(step)
            self.watch(step)
            if updated and self.engine.size() > MAX_TUPLES:
                raise RunawayError(self.phase, f"more than {MAX_TUPLES} tuples", self.hot())
            changed = changed or updated
        return changed

    def hot(self) -> tuple[str, ...]:
        """The rules that matched most in the last steps."""
        last: Counter[str] = Counter()
        for step in self.steps[-6:]:
            last.update(step.matches)
        return tuple(rule for rule, n in last.most_common(5) if n)


def run_text(graph: egglog.EGraph, text: str, file: str | None = None) -> list[object]:
    """Parse and run; ``EggSmolError`` with the span in the text."""
    return list(graph.run_program(*graph.parse_program(text, file)))


def _parse(text: str) -> Node:
    words = iter(re.findall(r"[()]|[^\s()]+", re.sub(r";[^\n]*", "", text)))

    def node(word: str) -> Node:
        if word != "(":
            return word
        parts: list[Node] = []
        for inner in words:
            if inner == ")":
                return tuple(parts)
            parts.append(node(inner))
        raise ValueError(text)

    return node(next(words))


def _shown(node: Node) -> str:
    return node if isinstance(node, str) else f"({' '.join(map(_shown, node))})"
