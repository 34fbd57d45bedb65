"""What a rule costs where it is not needed: rows of the programs that come with the rules.

Each scope is saturated once without the rule and once with it; rows are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from selector.dataclass import dataclass
from selector.eqsat.facts import instruction_facts, legal_instructions
from selector.eqsat.saturate import Engine
from selector.eqsat.soundness import scopes_of
from selector.targets import find_target
from selector.workbench.programs import corpus, default_target
from selector.workbench.ruleset import RuleFiles


@dataclass(frozen=True, slots=True)
class Cost:
    """Rows with a rule, as parts of those without it; the most rows in one scope; the
    scopes in which it matched."""

    rows: float
    most: float
    matched: int

    def __str__(self) -> str:
        return f"rows {self.rows - 1:+.1%} (at most {self.most - 1:+.1%})"


@dataclass
class Paired:
    """The scopes of the corpus, and two engines for each set of instructions."""

    rules: RuleFiles
    without: frozenset[str] = frozenset()
    scopes: tuple[tuple[str, tuple[str, ...]], ...] = field(
        default_factory=lambda: tuple(dict.fromkeys(_scopes()))
    )
    engines: dict[str, tuple[Engine, Engine]] = field(
        default_factory=dict[str, tuple[Engine, Engine]]
    )

    def __post_init__(self) -> None:
        for facts, _ in self.scopes:
            if facts not in self.engines:
                first, second = (Engine(facts, self.without, rules=self.rules) for _ in range(2))
                self.engines[facts] = first, second

    def cost(self, name: str, text: str) -> Cost:
        """The cost of one rule."""
        for _, engine in self.engines.values():
            engine.run("(push)")
            engine.load("found", text)
        try:
            return self._cost(name)
        finally:
            for _, engine in self.engines.values():
                engine.run("(pop)")

    def _cost(self, name: str) -> Cost:
        totals, most, matched = [0, 0], 1.0, 0
        for facts, statements in self.scopes:
            rows, hits = [0, 0], 0
            for i, engine in enumerate(self.engines[facts]):
                with engine.scope(statements) as saturation:
                    rows[i], hits = saturation.rows, saturation.matches[name]
            matched += bool(hits)
            most = max(most, rows[1] / rows[0])
            totals = [a + b for a, b in zip(totals, rows, strict=True)]
        return Cost(totals[1] / totals[0], most, matched)


def _scopes() -> Iterator[tuple[str, tuple[str, ...]]]:
    for module in corpus():
        facts = instruction_facts(legal_instructions(find_target(default_target(module))))
        for statements in scopes_of(module):
            yield facts, statements
