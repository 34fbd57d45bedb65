"""Saturation under subsets of the rules, one at a time: what ``worlds`` is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field

from selector.eqsat.bindings import egglog
from selector.eqsat.extract import Graph, read_graph
from selector.eqsat.saturate import Engine, Saturation
from selector.eqsat.worlds import RuleFiles


@dataclass
class Subsets:
    """An e-graph in which every run says which rules it may use; ``rulesets`` in loading order."""

    rules: RuleFiles
    engine: Engine = field(default_factory=lambda: Engine("", rules=()))
    rulesets: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def __post_init__(self) -> None:
        for file, text in self.rules:
            for command in self.engine.graph.parse_program(text, file):
                self._add(command)

    def _add(self, command: object) -> None:
        """A rule goes into the ruleset ``<its own>.<its name>``; what it was in is made per run."""
        match command:
            case egglog.RuleCommand():
                r = command.rule
                name = self._own(r.ruleset, r.name)
                moved = egglog.Rule(r.span, r.head, r.body, r.name, name)
                self.engine.graph.run_program(egglog.RuleCommand(moved))
            case egglog.RewriteCommand():
                name = self._own(command.name, command.rewrite.name)
                moved = egglog.RewriteCommand(name, command.rewrite, command.subsume)
                self.engine.graph.run_program(moved)
            case egglog.AddRuleset():
                self.rulesets[command.name] = []
            case _:
                self.engine.graph.run_program(command)  # type: ignore[arg-type]

    def _own(self, ruleset: str, rule: str) -> str:
        self.rulesets[ruleset].append(rule)
        self.engine.run(f"(ruleset {ruleset}.{rule})")
        return f"{ruleset}.{rule}"

    def commands(self, statement: str, facts: str, only: frozenset[str] | None) -> list[str]:
        """What makes a graph of one statement in which only these rules run (None: all)."""
        parts = {
            ruleset: [f"{ruleset}.{r}" for r in rules if only is None or r in only]
            for ruleset, rules in self.rulesets.items()
        }
        chosen = [
            f"(unstable-combined-ruleset {ruleset} {' '.join(rules)})" if rules
            else f"(ruleset {ruleset})"
            for ruleset, rules in parts.items()
        ]  # fmt: skip
        return [*chosen, facts, f"(set (statement 0) {statement})"]

    def run(
        self, statement: str, facts: str, only: frozenset[str] | None
    ) -> tuple[Graph, Saturation]:
        """The graph of one statement under a subset of rules."""
        with self.engine.saturated(self.commands(statement, facts, only)) as saturation:
            return read_graph(self.engine.graph, 1), saturation
