"""Which rule made a graph wrong: rules applied one at a time, the graph compared after each.

Saturation applies all rules of a phase together, so a disagreement, or a merge that the engine
refuses, does not say where it comes from. Here every rule has a ruleset of its own; after each
application that changed something the graph is compared again. The first rule after which it is
wrong is the one to look at.
"""

from __future__ import annotations

from collections.abc import Sequence

from rules import rule_files
from selector.dataclass import dataclass
from selector.diagnostics import InternalError
from selector.eqsat.bindings import egglog
from selector.eqsat.saturate import MAX_TUPLES, PHASES, Engine, Saturation, rule_name
from selector.eqsat.soundness import Soundness, compare

_ROUNDS = 12


@dataclass(frozen=True, slots=True)
class Guilty:
    """A rule, where it stands, and what was wrong after it."""

    rule: str
    file: str
    line: int
    finding: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: [{self.rule}] {self.finding}"


@dataclass(frozen=True, slots=True)
class _Single:
    """A rule in a ruleset of its own."""

    name: str
    file: str
    line: int
    phase: str
    ruleset: str


def blame(
    commands: Sequence[str],
    facts: str,
    rules: tuple[tuple[str, str], ...] | None = None,
    seed: int = 0,
) -> Guilty | None:
    """The first rule that makes the graph of these commands unsound; None if none does.

    ``facts`` and ``rules`` are an engine's. Takes seconds: the graph is compared after every rule.
    """
    engine = Engine("", rules=())
    singles: list[_Single] = []
    for file, text in rule_files() if rules is None else rules:
        singles += _load(engine, file, text, len(singles))
    for command in (facts, *commands):
        engine.run(command)
    trial = _Trial(engine, tuple(s for s in singles if s.phase == "supporting"), seed)
    for phase, _, _ in PHASES:
        guilty = trial.phase([s for s in singles if s.phase in ("axioms", phase)])
        if guilty is not None:
            return guilty
    return None


@dataclass
class _Trial:
    """The graph under suspicion, and the rules that state facts about terms."""

    engine: Engine
    supporting: tuple[_Single, ...]
    seed: int

    def phase(self, rules: Sequence[_Single]) -> Guilty | None:
        """Rules one by one, round by round, until nothing changes."""
        for _ in range(_ROUNDS):
            before = self.engine.size()
            for single in (*self.supporting, *rules):
                guilty = self.step(single)
                if guilty is not None:
                    return guilty
            if self.engine.size() == before or before > MAX_TUPLES:
                return None
        return None

    def step(self, single: _Single) -> Guilty | None:
        """One rule, and then all facts that follow."""
        changed, guilty = self.apply(single)
        for _ in range(_ROUNDS):
            if not changed or guilty is not None:
                break
            changed = False
            for support in self.supporting:
                more, guilty = self.apply(support)
                changed = changed or more
                if guilty is not None:
                    return guilty
        return guilty

    def apply(self, single: _Single) -> tuple[bool, Guilty | None]:
        """Run a rule once: whether that changed anything, and whether the graph is wrong now."""
        result = Soundness()
        try:
            if not self.engine.round(f"(run {single.ruleset} 1)", Saturation()):
                return False, None
            compare(self.engine, self.seed, result)
        except InternalError as error:
            result.mismatches.append(str(error))
        if not result.mismatches:
            return True, None
        return True, Guilty(single.name, single.file, single.line, result.mismatches[0])


def stopped(error: InternalError, commands: Sequence[str], engine: Engine) -> InternalError:
    """The error of a saturation that the engine stopped, with the rule that did it."""
    left = "".join(f"; without {name}" for name in sorted(engine.without))
    guilty = None if left else blame(commands, engine.facts, engine.rules)
    return InternalError(f"{error}{left}" if guilty is None else f"an unsound rule, {guilty}")


def _load(engine: Engine, file: str, text: str, first: int) -> list[_Single]:
    """Load a rule file with a ruleset for each of its rules."""
    singles: list[_Single] = []
    commands = engine.graph.parse_program(text, file)
    for command in commands:
        name, ruleset = rule_name(command), f"only-{first + len(singles)}"
        match command:
            case egglog.RewriteCommand():
                span, phase = command.rewrite.span, command.name
                alone = egglog.RewriteCommand(ruleset, command.rewrite, command.subsume)
            case egglog.RuleCommand():
                rule = command.rule
                span, phase = rule.span, rule.ruleset
                alone = egglog.RuleCommand(
                    egglog.Rule(rule.span, rule.head, rule.body, rule.name, ruleset)
                )
            case _:
                engine.graph.run_program(command)
                continue
        engine.run(f"(ruleset {ruleset})")
        engine.graph.run_program(alone)
        line = text.encode()[: getattr(span, "i", 0)].count(b"\n") + 1
        singles.append(_Single(name, file, line, phase, ruleset))
    return singles
