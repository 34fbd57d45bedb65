"""Every rule fires where it should, and not where it must not; every rule has a name and a law
above it. The tests are ``rules/tests/*.egg``.
"""

from __future__ import annotations

from functools import cache

import pytest
from soundness_programs import engine_with, rules_of

from selector.workbench.bench import Bench
from selector.workbench.cases import Case, Kind, load
from selector.workbench.ruleset import lint, standard_files

pytestmark = pytest.mark.verified

CASES = load()


@cache
def bench() -> Bench:
    return Bench()


def test_every_rule_has_a_name_and_a_law():
    assert not lint(standard_files())


@pytest.mark.parametrize("kind", [Kind.FIRES, Kind.SILENT])
def test_every_rule_has_a_test(kind: Kind):
    tested = {rule for case in CASES if case.kind is kind for rule in case.rules}
    assert set(bench().rules) == tested


def test_a_rule_is_tested_in_the_file_of_its_name():
    for case in CASES:
        for rule in case.rules:
            assert bench().rules[rule].form.file == case.file.replace("rules/tests/", "rules/")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_rule(case: Case):
    outcome = bench().run(case)
    assert outcome.passed, "\n".join(map(str, outcome.problems))


REDUNDANT = {"band-compare"}
"""Rules whose claims hold without them: mask-compare demands the same tiles."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "rule"),
    [
        pytest.param(case, rule, id=rule)
        for case in CASES
        if case.kind is Kind.FIRES
        for rule in case.rules
        if rule not in REDUNDANT
    ],
)
def test_what_is_checked_needs_the_rule(case: Case, rule: str):
    file, facts = bench().rules[rule].form.file.removeprefix("rules/"), bench().facts(case.targets)
    others = {name: text for name, text in rules_of(file).items() if name != rule}
    with engine_with(file, others, facts) as without:
        outcome = Bench(bench().files, engines={case.targets: without}).run(case)
    assert any(p.what == "this does not hold" for p in outcome.problems)
