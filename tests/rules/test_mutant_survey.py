"""Which drawn mutants of our rules are proved, and that none of these is wrong.

Most are rules with a guard less, or another question asked. Nothing says so by hand: each runs in
the graphs of the soundness run, where all terms of a class and all claims agree on random memory,
and small sizes that are chosen have no counterexample. What is told to be no rule is none to
egglog, and what is told never to match never does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

import pytest
from mutation import Mutant, generated, judge
from mutation import Verdict as Judged
from soundness_programs import Program, rule_cases, rule_forms

from rules import rule_files
from selector.workbench.prove import solve
from selector.workbench.prove.conditions import read_rule
from selector.workbench.prove.refute import counterexample
from selector.workbench.prove.sorts import Signatures
from selector.workbench.prove.verdicts import Kind, Verdict, prove_text

pytestmark = pytest.mark.verified("rules/tests")

PARTS = 128  # of all mutants: each takes a minute
DRAWN = 40
FEW = 12
FILES = [name for name, text in rule_files() if ":name" in text]


@dataclass(frozen=True)
class Drawn:
    """A mutant: what was changed in which rule, and the changed text."""

    rule: str
    what: str
    text: str

    @property
    def mutant(self) -> Mutant:
        return Mutant(self.rule, rule_forms()[self.rule].text, self.text)


def drawn(*files: str) -> list[Drawn]:
    """The mutants of files of rules."""
    rules = [name for name, form in rule_forms().items() if form.file in files]
    return [Drawn(rule, what, text) for rule in rules for what, text in generated(rule)]


def wrong(mutant: Drawn, few: bool = False) -> tuple[Kind, str]:
    """The verdict on a mutant, and what speaks against it, if anything does; ``few``: of programs
    those that are about its rule or its file."""
    signatures = Signatures.of(rule_files())
    kind = prove_text(mutant.rule, mutant.text, signatures).kind
    if kind not in (Kind.PROVED, Kind.VACUOUS, Kind.NO_RULE):
        return kind, ""
    judged = judge(mutant.mutant, _cases(mutant.rule) if few else None)
    if kind is Kind.PROVED:
        for way in read_rule(mutant.text, signatures):
            if (found := counterexample(way)) is not None:
                return kind, str(found)
    return kind, _against(kind, judged)


def _cases(rule: str) -> list[Program]:
    """Tests of a rule, then of others of its file."""
    near = [p for p in rule_cases() if p.file == rule_forms()[rule].file]
    return sorted(near, key=lambda p: rule not in p.rules)[:FEW]


def _against(kind: Kind, judged: Judged) -> str:
    refused = judged.finding.startswith("not a rule")
    match kind:
        case Kind.NO_RULE:
            return "" if refused else "egglog takes it"
        case Kind.VACUOUS:
            return f"it matches in {judged.tried} programs" if judged.fired else ""
        case _:
            return judged.finding


def surveyed(mutants: Sequence[Drawn], few: bool = False) -> list[Drawn]:
    """Those that are proved, each written out. The test fails for one that should not be."""
    proved: list[Drawn] = []
    against: list[str] = []
    for mutant in mutants:
        kind, why = wrong(mutant, few)
        if kind is Kind.PROVED:
            proved.append(mutant)
            print(f"proved: {mutant.rule}: {mutant.what}")
        if why:
            against.append(f"{mutant.rule}, {mutant.what}: {kind.value}, but {why}\n{mutant.text}")
    assert not against, "\n\n".join(against)
    return proved


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(PARTS))
def test_no_proved_mutant_is_wrong(part: int, monkeypatch: pytest.MonkeyPatch):
    """``pytest -rP`` shows which are proved."""
    monkeypatch.setattr(solve, "MOST", 1_000_000)
    surveyed(drawn(*FILES)[part::PARTS])


@pytest.mark.slow
def test_no_proved_mutant_of_some_is_wrong(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(solve, "MOST", 200_000)
    everything = drawn(*FILES)
    proved = surveyed(Random(0).sample(everything, DRAWN), few=True)
    assert len(proved) >= 2
    assert len(everything) >= 1000


def test_the_survey_tells_a_wrong_rule_that_is_proved(monkeypatch: pytest.MonkeyPatch):
    """What would be told were the prover wrong, of each kind."""
    sum_ = '(rewrite (Bop "-" (Int a) (Int b)) (Int (- b a)) :ruleset axioms :name "fold-sub")'
    mutant = Drawn("fold-sub", "turned", sum_)
    for kind, why in (
        (Kind.PROVED, "with "),
        (Kind.VACUOUS, "it matches"),
        (Kind.NO_RULE, "takes"),
    ):
        said = Verdict("fold-sub", kind)
        monkeypatch.setattr(f"{__name__}.prove_text", partial(_answer, said))
        with pytest.raises(AssertionError, match=why):
            surveyed([mutant], few=True)


def _answer(said: Verdict, *_: object) -> Verdict:
    return said
