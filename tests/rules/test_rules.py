"""Every rule fires where it should, and not where it must not; every rule has a name and a law
above it."""

from __future__ import annotations

import re
from functools import cache

import pytest
from cases import CASES

from rules import rule_files
from selector.eqsat.facts import instruction_facts, legal_instructions
from selector.eqsat.saturate import Engine
from selector.targets import find_target

_NAME = re.compile(r':name "([^"]+)"')


def all_rules() -> list[str]:
    return [name for _, text in rule_files() for name in _NAME.findall(text)]


@cache
def engine() -> Engine:
    return Engine(instruction_facts(legal_instructions(find_target("sm_80"))))


def matches(term: str, rule: str) -> int:
    """How often a rule matches in the saturated graph of a term, a statement or a fact."""
    name = term[1:].split(" ", 1)[0]
    relations = ("want", "want-gcd", "want-divided", "demand", "demand-phased", "factor")
    program = term if name in relations else f"(let $subject {term})"
    return engine().probe(program).matches[rule]


def test_every_rule_has_a_case():
    names = all_rules()
    assert len(names) == len(set(names)), "rule names are unique"
    assert set(CASES) == set(names)


def test_every_rule_has_a_name_and_a_law():
    for file, text in rule_files():
        lines = text.splitlines()
        for i, line in enumerate(lines):
            if line.startswith(("(rule ", "(rewrite ")):
                assert lines[i - 1].startswith("; "), f"{file}:{i + 1} has no law above it"
        starts = sum(line.startswith(("(rule ", "(rewrite ")) for line in lines)
        assert starts == len(_NAME.findall(text)), f"{file}: every rule has a :name"


@pytest.mark.parametrize("rule", all_rules())
def test_fires(rule: str):
    assert matches(CASES[rule][0], rule) > 0


@pytest.mark.parametrize("rule", all_rules())
def test_must_not_fire(rule: str):
    assert matches(CASES[rule][1], rule) == 0
