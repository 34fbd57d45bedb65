"""``rules check`` and ``rules test``: every mistake of an author is told with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from workbench_command import Rules

from selector.workbench import check
from selector.workbench.cases import load

pytestmark = pytest.mark.verified

SELECT_ALWAYS = """; select(always, a, b) -> a
(rewrite (Select (Always n) a b) a :ruleset axioms :name "select-always")
"""
FIRES = """; [select-always] fires
(let $first (Ramp (Sym "a") (Int 1) 8))
(let $term (Select (Always 8) $first (Ramp (Sym "b") (Int 2) 8)))
(check (= $term $first))
"""


def write(tmp_path: Path, text: str, name: str = "mine.egg") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.slow
def test_the_rules_are_right(rules: Rules) -> None:
    done = rules("check")
    assert done.code == 0, done.out
    assert done.out.startswith("no problem: ")
    assert " 0 failed" in done.out


def test_a_rule_with_its_test(rules: Rules, tmp_path: Path) -> None:
    done = rules("check", write(tmp_path, SELECT_ALWAYS + FIRES))
    assert done.code == 0, done.out
    assert " 1 test, 0 failed" in done.out


def test_rules_and_tests_in_two_files(rules: Rules, tmp_path: Path) -> None:
    extra, tests = write(tmp_path, SELECT_ALWAYS), write(tmp_path, FIRES, "tests.egg")
    assert rules("check", extra, tests).code == 0
    assert rules("test", tests, "--rules", extra).code == 0
    missing = rules("test", tests)
    assert missing.code == 1
    assert f"{tests}:1:1: [select-always] there is no rule of this name" in missing.out


def test_plain_checks_with_their_own_schedule(rules: Rules, tmp_path: Path) -> None:
    text = """(let $first (Ramp (Sym "a") (Int 1) 8))
(let $term (Select (Always 8) $first (Ramp (Sym "b") (Int 2) 8)))
(run-schedule (saturate (run axioms)))
(check (= $term $first))
(fail (check (= $term (Sym "a"))))
"""
    assert rules("check", write(tmp_path, SELECT_ALWAYS + text)).code == 0
    assert rules("check", write(tmp_path, text)).code == 1


@pytest.mark.parametrize(
    ("text", "place", "what", "under"),
    [
        (
            '; a\n(rewrite (Bop "+" x y) (Bop "+" y z) :ruleset axioms :name "r")\n',
            "2:35", "[r] Unbound symbol z", "z) :ruleset",
        ),
        (
            '; a\n(rewrite (Ramp x 3) x :ruleset axioms :name "r")\n',
            "2:10", "[r] Arity mismatch", "(Ramp x 3)",
        ),
        (
            '; a\n(rewrite (Bop "+" x 3) x :ruleset axioms :name "r")\n',
            "2:21", "[r] Expect expression 3 to have type Expr", "3) x",
        ),
        (
            '; a\n(rewrite (Bop "+" x x) x :ruleset axions :name "r")\n',
            "2:1", "[r] No such ruleset: axions", "(rewrite",
        ),
        (
            '; a\n(rewrite (Bop "+" x x) x :name "r")\n',
            "2:1", "[r] this rule is in no :ruleset", "(rewrite",
        ),
        (
            '; a\n(rewrite (Bop "+" x x) x :ruleset axioms)\n',
            "2:1", "this rule has no :name", "(rewrite",
        ),
        (
            '(rewrite (Bop "min" x x) x :ruleset axioms :name "r")\n',
            "1:1", "[r] no law above this rule", "(rewrite",
        ),
        (
            '; a\n(rewrite (Bop "min" x x) x :ruleset axioms :name "ramp-zero")\n',
            "2:1", "[ramp-zero] a second rule of this name; the first is rules/30_nests.egg:",
            "(rewrite",
        ),
        (
            '; a\n(rewrite (Bop "min" x x) x :ruleset axioms :name "r"\n; b\n(relation q (Expr))\n',
            "2:1", "never closed; the command on line 4 begins inside it", "(rewrite",
        ),
    ],
)  # fmt: skip
def test_mistakes_in_rules(
    rules: Rules,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    place: str,
    what: str,
    under: str,
) -> None:
    monkeypatch.setattr(check, "load", lambda: load()[:8])  # of tests that are another test's
    path = write(tmp_path, text)
    done = rules("check", path)
    assert done.code == 1
    assert f"{path}:{place}: " in done.out
    assert what in done.out
    lines = done.out.splitlines()
    caret = next(i for i, line in enumerate(lines) if set(line.strip()) == {"^"})
    assert lines[caret - 1][lines[caret].index("^") :].startswith(under)


def test_a_run_of_a_ruleset_counts_as_one(rules: Rules, tmp_path: Path) -> None:
    text = """; [ramp-zero] fires
(let $term (Ramp (Sym "a") (Int 0) 4))
(run axioms 2)
(check (= $term (Broadcast (Sym "a") 4)))
; [ramp-zero] must not fire
(let $term (Ramp (Sym "a") (Int 0) 4))
(run-schedule ; nothing but
  (saturate (run supporting)))
(fail (check (= $term (Broadcast (Sym "a") 4))))
"""
    done = rules("check", write(tmp_path, text))
    assert done.code == 0, done.out


def test_every_mistake_of_a_file_is_told(rules: Rules, tmp_path: Path) -> None:
    text = '; a\n(rewrite (Ramp x 3) x :ruleset axioms :name "r")\n(rewrite (Not x) y)\n'
    data = json.loads(rules("check", write(tmp_path, text), "--json").out)
    found = [(p["line"], p["rule"]) for p in data["problems"]]
    assert found == [(2, "r"), (3, ""), (3, ""), (3, ""), (3, "")]
    assert data["tests"] == 0
    assert data["not_run"] > 300


def test_a_check_that_fails_shows_the_terms(rules: Rules, tmp_path: Path) -> None:
    text = """; [ramp-zero] fires
(let $term (Ramp (Sym "a") (Int 0) 4))
(check (= 4 (lanes $term))
       (= $term (Broadcast (Sym "b") 4)))
(check (tile $term 1 2 3 b x y z))
"""
    path = write(tmp_path, text)
    done = rules("check", path)
    assert done.code == 1
    assert f"""{path}:4:8: [ramp-zero] this does not hold
           (= $term (Broadcast (Sym "b") 4)))
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    $term is
      (Broadcast (Sym "a") 4)
      (Ramp (Sym "a") (Int 0) 4)
    (Broadcast (Sym "b") 4) is not in the graph
""" in done.out.replace("            (=", "           (=")
    assert f"{path}:5:8: [ramp-zero] this does not hold" in done.out
    assert "there is no tile" in done.out


def test_rows_of_a_relation_are_shown(rules: Rules, tmp_path: Path) -> None:
    text = """; [demand-m] fires
(demand (Ramp (Sym "a") (Sym "s") 4) 4 1 1)
(check (want (Ramp (Sym "a") (Sym "s") 4) 2))
"""
    done = rules("check", write(tmp_path, text))
    assert "of want there are" in done.out
    assert '(want (Ramp (Sym "a") (Sym "s") 4) 4)' in done.out


def test_what_must_not_be(rules: Rules, tmp_path: Path) -> None:
    text = """; [ramp-zero] must not fire
(let $term (Ramp (Sym "a") (Int 0) 4))
(fail (check (= $term (Broadcast (Sym "a") 4))))
; [ramp-one] fires
(let $term (Ramp (Sym "a") (Int 0) 4))
(check (= $term $term))
"""
    path = write(tmp_path, text)
    done = rules("check", path)
    assert f"{path}:1:1: [ramp-zero] the rule matches once and must not" in done.out
    assert f"{path}:3:14: [ramp-zero] this holds and must not" in done.out
    assert f"{path}:4:1: [ramp-one] the rule does not match in this graph" in done.out
    assert done.code == 1


def test_a_mistake_in_a_test_has_its_place(rules: Rules, tmp_path: Path) -> None:
    text = "; [ramp-one] fires\n(let $term\n  (Ramp (Imt 3) (Int 0) 4))\n(check (= $term $term))\n"
    path = write(tmp_path, text)
    assert f"{path}:3:9: [ramp-one] Unbound function Imt" in rules("test", path).out


def test_vectors_of_other_length_are_laid_to_their_rule(rules: Rules, tmp_path: Path) -> None:
    text = """; xm(ramp) -> ramp, which it is not
(rewrite (Broadcast (Ramp b s n) m) (Ramp b s n) :ruleset axioms :name "drops-copies")
"""
    path = write(tmp_path, text)
    done = rules("check", path)
    assert done.code == 1
    assert f"{path}:2:1: [drops-copies] two values of `lanes` meet in one class" in done.out
    assert '16 lanes: (Broadcast (Ramp (Sym "a") (Int 1) 8) 2)' in done.out
    assert '8 lanes: (Ramp (Sym "a") (Int 1) 8)' in done.out
    assert " not run" in done.out


def test_an_action_that_cannot_be_done_by_a_schedule_of_the_test(
    rules: Rules, tmp_path: Path
) -> None:
    """It stops the test where its commands say when rules run, and is told once."""
    text = """; lanes divided by nothing
(rule ((= e (Not (Not (Not x))))) ((set (lanes e) (/ 1 0))) :ruleset supporting :name "by-zero")
; [by-zero] fires
(let $term (Not (Not (Not (Always 4)))))
(run supporting 1)
(check (= $term $term))
"""
    path = write(tmp_path, text)
    done = rules("test", path)
    assert done.code == 1
    assert f"{path}:2:" in done.out
    assert done.out.count("call of primitive / failed") == 1


def test_an_action_that_cannot_be_done(rules: Rules, tmp_path: Path) -> None:
    text = """; lanes divided by nothing
(rule ((= e (Broadcast x n))) ((set (lanes e) (/ n 0))) :ruleset supporting :name "by-zero")
"""
    path = write(tmp_path, text)
    done = rules("check", path)
    assert f"{path}:2:47: [by-zero]" in done.out
    assert "call of primitive / failed" in done.out


def test_saturation_without_end_is_stopped(rules: Rules, tmp_path: Path) -> None:
    text = """; a copy more, for ever
(rule ((= e (Broadcast (Sym a) m))) ((Broadcast (Sym a) (+ m 1)))
      :ruleset supporting :name "endless")
; [endless] fires
(let $term (Broadcast (Sym "a") 2))
(check (= $term $term))
"""
    path = write(tmp_path, text)
    done = rules("check", path)
    assert done.code == 1
    assert "saturation does not end" in done.out
    assert f"endless ({path}:2:1)" in done.out


def test_test_by_name(rules: Rules) -> None:
    done = rules("test", "-k", r"^\S+ ramp-zero ")
    assert done.code == 0, done.out
    assert "1 rule, 2 tests, 0 failed" in done.out
    data = json.loads(rules("test", "-k", "tile-fill", "--json").out)
    assert (data["tests"], data["passed"]) == (2, 2)


def test_instructions_restrict_the_tests(rules: Rules) -> None:
    assert rules("test", "-k", "] ?swizzle fires|swizzle fires").code == 0
    done = rules("test", "-k", "swizzle fires", "--instructions", "wmma")
    assert done.code == 1
    assert "[swizzle] the rule does not match in this graph" in done.out
    assert rules("test", "-k", "swizzle fires", "--target", "sm_80").code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "nowhere.egg"), "cannot read nowhere.egg"),
        (("test", "-k", "nothing-of-that-name"), "no test matches"),
        (("test", "-k", "("), "no regular expression"),
        (("check", "--target", "sm_1"), "unknown target 'sm_1'"),
        (("check", "--instructions", "wmmma"), "no instruction or family is called 'wmmma'"),
        (("list", "--rules", "nowhere.egg"), "cannot read nowhere.egg"),
        (("list", "-k", "["), "no regular expression"),
    ],
)
def test_what_cannot_be_run_is_one_message(
    rules: Rules, arguments: tuple[str, ...], message: str
) -> None:
    done = rules(*arguments)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert message in done.err
