"""Which rules a result needs: a minimal chain, in the order in which its rules first apply.

Every rule sits in a ruleset of its own here, so that any subset of rules is one command away and
none is parsed twice. From the rules that matched, one after the other is taken away; if the same
instruction still comes out with the same operands, it stays away. Fewer rules never find more, so
what remains is minimal: it is enough, and none of it can be left out. A rule without which the
search no longer ends is needed too.

Rules that only ask questions or note facts (``is_telling``) are part of every run and of no chain.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from rules import rule_files
from selector.eqsat.bindings import egglog
from selector.eqsat.decode import Decoder, Term
from selector.eqsat.extract import Graph, Shape, read_graph
from selector.eqsat.facts import instruction_facts
from selector.eqsat.saturate import Engine, Saturation
from selector.eqsat.stepping import RunawayError, Stepper
from selector.intrinsics import find
from selector.ir.nodes import Store, Var

PLUMBING = (
    "and-", "band-", "block-", "convolve-ask", "convolve-masks", "demand-", "divided-", "factor-",
    "fold-", "gcd-", "lanes-", "mask-", "masked-", "packed-", "phases-", "product-packed",
    "scaled-", "true-", "want-", "zero-",
)  # fmt: skip
"""Names of rules that only ask questions or note facts begin so."""


def is_telling(rule: str) -> bool:
    """Whether a rule tells something about a result: it is a law, not a question."""
    return not rule.startswith(PLUMBING)


RuleFiles = tuple[tuple[str, str], ...]
"""(file name, text), in loading order."""


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

    @property
    def order(self) -> dict[str, int]:
        """The position of every rule in the files."""
        return {r: i for i, r in enumerate(r for rules in self.rulesets.values() for r in rules)}

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

    def first_firings(self, statement: str, facts: str, only: frozenset[str]) -> dict[str, int]:
        """The step of the run in which each rule first matched."""
        self.engine.run("(push)")
        try:
            for command in self.commands(statement, facts, only):
                self.engine.run(command)
            stepper = Stepper(self.engine)
            with suppress(RunawayError):  # a search that stops at its cap has a result as well
                stepper.saturate()
        finally:
            self.engine.run("(pop)")
        first: dict[str, int] = {}
        for i, step in enumerate(stepper.steps):
            for rule in step.fired:
                first.setdefault(rule, i)
        return first


@dataclass(frozen=True, slots=True)
class Wanted:
    """A result to explain: the instruction and tile that were chosen for a statement, its term."""

    shape: Shape
    term: Term

    def __call__(self, graph: Graph) -> bool:
        """Whether a graph still holds it, up to the way in which its indices are written."""
        found = graph.blocks(0).get(self.shape)
        return found is not None and canonical(found[3]) == canonical(self.term)

    @property
    def facts(self) -> str:
        """What the rules have to know of the target for it: this instruction."""
        record = find(self.shape[0])
        assert record is not None
        return instruction_facts((record,))


def wanted(term: Term) -> Wanted | None:
    """The result that a selected Store term is; None for fills, reads and plain statements."""
    match term:
        case ("Store", _, _, ("MultiplyAdd", str(name), int(m), int(n), *_), _):
            return Wanted((name, m, n), term)
        case _:
            return None


def canonical(term: Term) -> Store:
    """A Store term over its symbols, the sums in its indices simplified."""
    symbols = {name: Var(name) for name in set(_symbols(term))}
    return Decoder(symbols or {"": Var("s")}).store(term)


def _symbols(term: object) -> Iterable[str]:
    match term:
        case ("Sym", str(name)):
            yield name
        case tuple():
            for part in term:
                yield from _symbols(part)
        case _:
            return


def chain(
    statement: str, facts: str, result: Wanted, rules: RuleFiles | None = None
) -> tuple[str, ...]:
    """A minimal set of telling rules with which an encoded statement still comes to its result, in
    the order in which they first apply.

    ``facts`` are those of the target; the one instruction suffices, unless another's shape lent its
    tile. ``rules`` are the standard ones if not given.
    """
    subsets = _subsets(rule_files() if rules is None else rules)
    own = result.facts
    graph, saturation = subsets.run(statement, own, None)
    if not result(graph):
        own = facts
        graph, saturation = subsets.run(statement, own, None)
    endless = bool(saturation.capped)

    def attempt(rules: frozenset[str]) -> frozenset[str] | None:
        found, run = subsets.run(statement, own, rules)
        return _matched(run) if result(found) and (endless or not run.capped) else None

    order = sorted(subsets.order, key=subsets.order.__getitem__)
    kept = minimal(_matched(saturation), attempt, order)
    first = subsets.first_firings(statement, own, kept)
    telling = [r for r in kept if is_telling(r) and r in first]
    return tuple(sorted(telling, key=lambda r: (first[r], subsets.order[r])))


def minimal(
    matched: frozenset[str],
    attempt: Callable[[frozenset[str]], frozenset[str] | None],
    order: Sequence[str],
) -> frozenset[str]:
    """The rules left when no telling one can be taken away; ``attempt`` gives the rules that
    matched in a run with these, or None if the result is lost."""
    kept = matched
    for rule in order:
        if rule in kept and is_telling(rule):
            kept = attempt(kept - {rule}) or kept
    return kept


def _matched(saturation: Saturation) -> frozenset[str]:
    return frozenset(r for r, n in saturation.matches.items() if n)


_local = threading.local()


def _subsets(rules: RuleFiles) -> Subsets:
    """One for each set of rules and thread: an e-graph belongs to its thread."""
    table: dict[RuleFiles, Subsets] = _local.__dict__.setdefault("table", {})
    if rules not in table:
        table[rules] = Subsets(rules)
    return table[rules]
