"""Are the laws true? Rules tried on graphs whose every term is evaluated on random memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from selector.dataclass import dataclass
from selector.eqsat.blame import blame
from selector.eqsat.facts import instruction_facts, legal_instructions
from selector.eqsat.saturate import Engine
from selector.eqsat.soundness import Soundness, check_commands, scopes_of
from selector.ir.module import Module
from selector.targets import find_target
from selector.workbench.cases import Case
from selector.workbench.ruleset import RuleFiles, read_rules

_SHOWN = 3


@dataclass
class Finding:
    """A graph in which terms of one class, or what a relation claims, disagree."""

    graph: str
    guilty: str
    mismatches: tuple[str, ...]

    def __str__(self) -> str:
        shown = "\n".join(f"  {m}" for m in self.mismatches[:_SHOWN])
        return f"{self.graph}\n  {self.guilty}\n{shown}"


@dataclass
class Verdict:
    """What was compared, what disagreed, and the rules that matched nowhere (``silent``)."""

    total: Soundness = field(default_factory=Soundness)
    findings: list[Finding] = field(default_factory=list[Finding])
    silent: tuple[str, ...] = ()

    @property
    def code(self) -> int:
        return 1 if self.findings or self.silent else 0

    def as_dict(self) -> dict[str, object]:
        return {
            "nodes": self.total.nodes,
            "classes": self.total.classes,
            "claims": self.total.claims,
            "findings": [
                {"graph": f.graph, "rule": f.guilty, "mismatches": list(f.mismatches)}
                for f in self.findings
            ],
            "never_matched": list(self.silent),
        }

    def __str__(self) -> str:
        counted = (
            f"{self.total.nodes} terms in {self.total.classes} classes and {self.total.claims} "
            "claims compared"
        )
        never = [f"never matched, so not checked: {', '.join(self.silent)}"] if self.silent else []
        result = f"{len(self.findings)} graphs are wrong" if self.findings else "all agree"
        return "\n".join((*map(str, self.findings), *never, f"{counted}: {result}"))


def soundness(
    files: RuleFiles,
    programs: Iterable[tuple[Module, str]],
    cases: Sequence[Case],
    gate: bool,
    only: tuple[str, ...] | None = None,
) -> Verdict:
    """Check rules on programs (with their targets) and on tests of rules; ``gate``: name the rules
    that matched in none of them."""
    verdict, engines = Verdict(), dict[str, Engine]()
    graphs = [(c.name, c.targets, [f.text for f in c.setup]) for c in cases if not c.scheduled]
    for module, target in programs:
        for number, statements in enumerate(dict.fromkeys(scopes_of(module))):
            commands = [f"(set (statement {i}) {s})" for i, s in enumerate(statements)]
            graphs.append((f"{module.name}, scope {number}", (target,), commands))
    for name, targets, commands in graphs:
        chosen = tuple(i for t in targets for i in legal_instructions(find_target(t), only))
        facts = instruction_facts(chosen)
        if facts not in engines:
            engines[facts] = Engine(facts, rules=files)
        result = check_commands(commands, engines[facts])
        verdict.total.add(result)
        if result.mismatches:
            guilty = blame(commands, facts, files)
            mismatches = tuple(result.mismatches)
            verdict.findings.append(Finding(name, str(guilty or "no single rule"), mismatches))
    if gate:
        fired = verdict.total.fired
        verdict.silent = tuple(r.name for r in read_rules(files) if not fired[r.name])
    return verdict
