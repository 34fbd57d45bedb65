"""How tests of rules are written."""

from __future__ import annotations

import pytest

from selector.diagnostics import ParseError, TargetError
from selector.workbench.cases import Kind, load, read_cases
from selector.workbench.files import split, with_standard
from selector.workbench.ruleset import standard_files

pytestmark = pytest.mark.verified

TEXT = """; A file of tests.
; [ramp-zero ramp-one] fires
(let $term (Ramp (Sym "a") (Int 0) 4)) ; a comment
(want $term 2)
(check (= $term (Broadcast (Sym "a") 4)))

; target: amx
; [ramp-zero] must not fire: the stride is 1
; a line of explanation
(let $term (Ramp (Sym "a") (Int 1) 4))
(run-schedule (run axioms))
(fail (check (= $term (Broadcast (Sym "a") n))))
; test: any words
(let $term (Int 1))
(check (= 1 (lanes $term)))
"""


def test_headers_and_their_forms() -> None:
    first, second, third = read_cases(TEXT, "f.egg")
    assert first.rules == ("ramp-zero", "ramp-one")
    assert (first.rule, first.kind, first.line) == ("ramp-zero", Kind.FIRES, 2)
    assert [f.head for f in first.setup] == ["let", "want"]
    assert [f.head for f in first.rest] == ["check"]
    assert first.targets == ("sm_80", "amx")
    assert first.program.startswith("(let $term (Ramp")
    assert (second.kind, second.note, second.targets) == (
        Kind.SILENT, "the stride is 1", ("amx",),
    )  # fmt: skip
    assert second.scheduled
    assert not first.scheduled
    assert (third.kind, third.rules, third.name) == (Kind.HOLDS, (), "any words")
    assert third.targets == ("amx",)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(let $a (Int 1))\n; [a] fires\n(check (Int 1))", "a command before the first"),
        ("; [a] fires\n(let $a (Int 1))\n", "`a fires` has no (check ...)"),
        ("; [a] must not fire\n(check (Int 1))\n", "`a must not fire` has no (fail (check ...))"),
        ("; test: nothing\n(let $a (Int 1))\n", "`nothing` checks nothing"),
    ],
)
def test_what_is_no_test(text: str, why: str) -> None:
    with pytest.raises(ParseError) as error:
        read_cases(text, "f.egg")
    assert why in error.value.why
    assert "f.egg:" in str(error.value.where)


def test_an_unknown_target() -> None:
    with pytest.raises(TargetError):
        read_cases("; target: sm_1\n", "f.egg")


def test_the_tests_of_the_rules_are_many() -> None:
    cases = load()
    assert len(cases) > 300
    assert {c.kind for c in cases} >= {Kind.FIRES, Kind.SILENT}
    assert all(c.setup and c.rest for c in cases)


RULE = '; law\n(rewrite (Bop "min" x x) x :ruleset axioms :name "min-same")\n'


def test_rules_among_tests_keep_their_places() -> None:
    text = f"{TEXT}{RULE}"
    rules, cases = split(text, "f.egg")
    assert len(cases) == 3
    assert rules.count("\n") == text.count("\n")
    assert rules.splitlines()[-1] == RULE.splitlines()[-1]
    assert "(let" not in rules


def test_a_file_of_rules_and_one_of_checks() -> None:
    assert split(RULE, "f.egg") == (RULE, ())
    rules, (case,) = split(f"{RULE}(let $xx (Int 1))\n(check (= $xx (Int 1)))\n", "f.egg")
    assert "min-same" in rules
    assert case.name == "the checks of f.egg"


def test_a_file_of_a_standard_name_stands_for_it() -> None:
    files = with_standard((("here/40_values.egg", RULE), ("more.egg", RULE)))
    assert len(files) == len(standard_files()) + 1
    assert ("here/40_values.egg", RULE) in files
    assert files[-1] == ("more.egg", RULE)
    assert with_standard((("more.egg", RULE),), alone=True) == (("more.egg", RULE),)
