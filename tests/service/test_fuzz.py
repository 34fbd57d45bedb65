"""Two hundred requests that nobody means (``fuzz.py`` sends as many as one likes), and what the
description of the service says, held against it by schemathesis.
"""

from __future__ import annotations

import pytest
import schemathesis
from fuzz import fuzz
from hypothesis import HealthCheck, Phase, given, settings
from mutations import COMMANDS
from schemathesis.specs.openapi.checks import positive_data_acceptance
from service_tools import Server

from selector.diagnostics import ParseError, UserError
from selector.workbench.extended import check_rules, extended_bench

pytestmark = pytest.mark.verified


def test_requests_that_nobody_means(server: Server) -> None:
    found = fuzz(server, 200, seed=7, connections=2)
    assert not found.failures, found.failures[:3]
    assert {status for _, status, _ in found.statuses} >= {200, 422}
    assert "links" in {kind for kind, _, _ in found.statuses}


def test_commands_that_reach_for_files_are_refused(server: Server) -> None:
    """None of them runs: neither in the checks nor in a worker."""
    secret = server.folder / "here" / "reached"
    for command in COMMANDS:
        text = command.format(secret)
        with pytest.raises(ParseError, match="refused"):
            check_rules(text, "rules")
        reply = server.compile(rules=text)
        assert reply.status == 422
        assert "refused" in reply.error["what"]
    assert not secret.exists()


@pytest.mark.parametrize(
    "text",
    [
        '(rule ((= x (Int a))) ((py-exec "1" (py-dict) (py-dict))) :ruleset axioms :name "a")',
        '(rule ((= x (Int a)))\n((\tpy-exec "1")) :ruleset axioms :name "a")',
        '(rule ((= x (Int a))) ((unstable-app "py-eval" a)) :ruleset axioms :name "a")',
        '(function f () i64 :merge (py-eval "1" (py-dict) (py-dict)))',
        '(function f () PyObject :merge (py-object "1"))',
        '(rewrite (Int a) (Int (py-eval "1" (py-dict) (py-dict))) :ruleset axioms :name "a")',
        '(rewrite (Int a) (Int a) :when ((= a (py-eval "1" (py-dict)))) :ruleset axioms :name "a")',
        '; (\n(include "x")',
        '"(" (include "x")',
        '(ruleset a)(include "x")',
        '( include "x")',
        '(;\ninclude "x")',
    ],
)
def test_rules_that_hide_a_command(text: str) -> None:
    with pytest.raises(UserError):
        extended_bench((("rules", text),), None)


def test_names_like_those_of_refused_functions_are_taken() -> None:
    text = '; n -> n\n(rewrite (Int n) (Int n) :ruleset axioms :name "copy-loads")'
    check_rules(text, "rules")


def test_the_description_holds(server: Server) -> None:
    """Every answer to what schemathesis thinks of has a status and a shape of the description."""
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    names: list[str] = []
    for found in schema.get_all_operations():
        operation = found.ok()
        names.append(operation.path)

        @SOME
        @given(case=operation.as_strategy())
        def holds(case: schemathesis.Case) -> None:
            # Most texts are no programs, and 422 is the right answer to those.
            case.call_and_validate(excluded_checks=[positive_data_acceptance], timeout=60)

        holds()
    assert len(names) == 11


SOME = settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
