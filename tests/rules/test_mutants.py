"""The soundness run finds wrong rules: every mutant is told from the rule by some program."""

from __future__ import annotations

from collections import Counter

import pytest
from mutants import FACTS as WRONG_FACTS
from mutants import MUTANTS
from mutation import Mutant, judge
from soundness_programs import ENGINE, SMALL, near_misses, programs, rule_forms
from verified import SOUND, Verified

from rules import rule_files
from selector.eqsat.saturate import Engine
from selector.eqsat.soundness import check_commands

pytestmark = pytest.mark.verified


@pytest.mark.slow
@SOUND
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_mutant_is_found(mutant: Mutant, verified: Verified):
    if verified(repr(mutant), ENGINE):
        return
    verdict = judge(mutant)
    assert verdict.found, f"it matched {verdict.fired} times in {verdict.tried} programs"
    assert "not a rule" not in verdict.finding


@pytest.mark.parametrize("fact", WRONG_FACTS)
def test_a_wrong_fact_is_found(fact: str):
    engine = Engine(SMALL, rules=(*rule_files(), ("99_wrong.egg", fact)))
    result = check_commands(programs()[0].commands, engine)
    assert any("does not hold" in m for m in result.mismatches)


def test_every_file_has_mutants():
    """All files that state laws; what only asks cannot be wrong, only useless."""
    files = Counter(rule_forms()[m.rule].file for m in MUTANTS)
    laws = {name for name, _ in rule_files()} - {"00_ir.egg"}
    assert laws <= set(files), laws - set(files)
    assert len(MUTANTS) == len(set(MUTANTS)) >= 80


def test_near_misses_are_programs_of_their_own():
    names = [p.name for p in (*near_misses(), *programs())]
    assert len(names) == len(set(names))
