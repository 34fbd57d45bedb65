"""Two hundred requests that nobody means (``fuzz.py`` sends as many as one likes), and what the
description of the service says, held against it by schemathesis.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fuzz as fuzzing
import pytest
import schemathesis
from fuzz import AGAIN, check, fuzz, send
from hypothesis import HealthCheck, Phase, given, settings
from mutations import COMMANDS, requests
from schemathesis.specs.openapi.checks import positive_data_acceptance
from service_tools import Reply, Server

from selector.diagnostics import ParseError, UserError
from selector.workbench.extended import check_rules, extended_bench

pytestmark = pytest.mark.verified


def test_requests_that_nobody_means(server: Server) -> None:
    found = fuzz(server, 200, seed=7, connections=2)
    assert not found.failures, found.failures[:3]
    assert {status for _, status, _ in found.statuses} >= {200, 422}
    assert "links" in {kind for kind, _, _ in found.statuses}


def test_parts_are_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers beside each other are sent the requests of the seed, each once."""
    sent = list[str]()

    def take(_: object, kind: str, request: object, __: object) -> Reply:
        sent.append(f"{kind} {json.dumps(request)}")
        return Reply(200, {}, b"")

    (tmp_path / "here").mkdir()
    server: Any = SimpleNamespace(folder=tmp_path)
    monkeypatch.setattr(fuzzing, "send", take)
    found = [fuzz(server, 50, 3, 2, part, 3) for part in range(3)]
    assert [f.statuses.total() for f in found] == [17, 17, 16]
    assert not any(f.failures for f in found)
    secret = str(tmp_path / "here" / "secret.txt")
    whole = itertools.islice(requests(3, secret), 50)
    assert sorted(sent) == sorted(f"{kind} {json.dumps(r)}" for kind, r in whole)


def test_what_there_is_no_room_for_is_sent_again() -> None:
    """And counted apart from what fails: a refusal that stays, or says nothing of coming again."""

    def asked(*statuses: int, headers: dict[str, str]) -> tuple[Reply, Counter[int]]:
        replies = (Reply(s, headers if s != 200 else {}, b"{}") for s in statuses)
        server: Any = SimpleNamespace(ask=lambda *_, **__: next(replies))
        again = Counter[int]()
        return send(server, "compile", {}, again), again

    later = {"retry-after": "0"}
    reply, again = asked(503, 429, 429, 200, headers=later)
    assert (check(reply, "word"), again) == ("", {503: 1, 429: 2})
    reply, again = asked(*[503] * (AGAIN + 1), headers=later)
    assert check(reply, "word").startswith("status 503")
    assert again == {503: AGAIN}
    for status in (500, 503):
        reply, again = asked(status, headers={})
        assert check(reply, "word").startswith(f"status {status}")
        assert not again


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
