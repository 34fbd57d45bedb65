"""Wrong versions of rules are never proved; changes that no program can tell are."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from mutants import EQUIVALENT, MUTANTS
from mutation import Mutant, generated
from soundness_programs import rule_forms

from rules import rule_files
from selector.workbench.prove import solve
from selector.workbench.prove.conditions import read_rule
from selector.workbench.prove.refute import counterexample
from selector.workbench.prove.sorts import Signatures
from selector.workbench.prove.verdicts import Kind, Verdict, prove_text

pytestmark = pytest.mark.verified


def verdict(rule: str, text: str) -> Verdict:
    return prove_text(rule, text, Signatures.of(rule_files()))


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_wrong_rule_is_not_proved(mutant: Mutant, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(solve, "MOST", 1_000_000)  # what can be proved needs no more of most rules
    found = verdict(mutant.rule, mutant.text)
    assert found.kind is not Kind.PROVED
    assert found.why


@pytest.mark.parametrize(("rule", "old", "new", "why"), EQUIVALENT, ids=lambda x: str(x)[:40])
def test_what_is_as_true_is_proved(rule: str, old: str, new: str, why: str):
    text = rule_forms()[rule].text
    assert text.count(old) == 1
    found = verdict(rule, text.replace(old, new))
    assert found.kind is Kind.PROVED, (why, found.why)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_drawn_rules_with_a_counterexample_are_not_proved(seed: int):
    """Ten wrong rules each, by the operators that the soundness run is tried with."""
    drawn = [(r, text) for r in sorted(rule_forms()) for _, text in generated(r)]
    Random(seed).shuffle(drawn)
    wrong = 0
    for rule, text in drawn:
        found = prove_text(rule, text, Signatures.of(rule_files()))
        if found.kind is Kind.PROVED:
            ways = read_rule(text, Signatures.of(rule_files()))
            assert not any(counterexample(way) for way in ways), text
        elif prove_text(rule, text, Signatures.of(rule_files()), refute=True).kind is Kind.REFUTED:
            wrong += 1
        if wrong == 10:
            return
    pytest.fail("too few are wrong")


PLACED = {
    "tile-read": "without (= 1 (lanes b))",
    "multiply-add": "without (= 0 (% M m))",
    "gcd-ask": "without (!= 0 (% a b))",
}
"""Guards that are not about values: the soundness run does not tell all of these."""


@pytest.mark.parametrize("rule", PLACED)
def test_a_guard_of_placement_or_of_a_question_is_needed(rule: str):
    texts = [text for what, text in generated(rule) if what == PLACED[rule]]
    assert texts
    assert all(verdict(rule, text).kind is Kind.UNDECIDED for text in texts)


WRITTEN = dict(
    block[2:].split("\n", 1)
    for file in sorted(Path(__file__).with_name("wrong").glob("*.egg"))
    for block in file.read_text(encoding="utf-8").strip().split("\n\n")[1:]
)
"""What somebody meant, and the rule."""


def test_many_wrong_rules_are_written():
    assert len(WRITTEN) >= 150


@pytest.mark.parametrize("meant", WRITTEN)
def test_a_wrong_rule_that_somebody_might_write_is_not_proved(meant: str):
    found = verdict(meant, WRITTEN[meant])
    assert found.kind is Kind.UNDECIDED
    assert found.why
