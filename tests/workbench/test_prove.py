"""``python -m selector rules prove``: every rule is proved, what is wrong is not."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
import z3
from workbench_command import Rules

from rules import rule_files
from selector.workbench.prove import bits
from selector.workbench.prove.conditions import read_rule
from selector.workbench.prove.refute import counterexample, matches
from selector.workbench.prove.sorts import Signatures
from selector.workbench.prove.verdicts import (
    Kind,
    Verdict,
    prove,
    prove_lemmas,
    prove_rule,
    prove_text,
)
from selector.workbench.ruleset import read_rules, standard_files

pytestmark = pytest.mark.verified
MOST_SECONDS = 20.0  # on two cores


def _seconds() -> float:
    """Of the processor, processes that have ended among them."""
    return sum(os.times()[:4])


@pytest.mark.slow
def test_every_rule_is_proved():
    """A rule that is not is named, with what is missing. Two cores take less than 20 s."""
    start = _seconds()
    verdicts = prove(standard_files())
    assert _seconds() - start < 2 * MOST_SECONDS
    missing = {v.name: v.why for v in verdicts.found if v.kind is not Kind.PROVED}
    assert not missing
    assert {r.name for r in read_rules(standard_files())} <= {v.name for v in verdicts.found}
    page = Path(__file__).parents[2] / "docs" / "reference" / "proofs.md"
    assert page.read_text(encoding="utf-8").endswith(verdicts.as_markdown()), (
        "python docs/reference.py"
    )
    finite = {v.name for v in verdicts.found if any("finite" in c for c in v.contracts)}
    assert {"select-product", "matmul", "toeplitz", "toeplitz-rows"} <= finite
    assert len(finite) < 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_verdict_is_the_same_whatever_came_before(seed: int):
    """Rules whose proofs ask z3 most, after terms of other people, in another order."""
    draw = random.Random(seed)
    known = [z3.Int(f"known{i}") + i for i in range(draw.randrange(50_000))]
    signatures = Signatures.of(standard_files())
    rules = [r for r in read_rules(standard_files()) if "band-whole" in r.name or r.name == "tile"]
    assert len(rules) == 2
    for rule in draw.sample(rules, 2):
        del known[: draw.randrange(len(known))]
        assert prove_rule(rule, signatures).kind is Kind.PROVED
        assert z3.simplify(known[-1] - known[-1]).ctx is z3.main_ctx()  # theirs is as it was


def verdict(text: str) -> Verdict:
    return prove_text("trial", text, Signatures.of(rule_files()))


RIGHT = {
    "values": '(rewrite (Bop "-" (Sym x) (Sym x)) (Bop "*" (Sym x) (Int 0)))',
    "copies of any type": "(rule ((want e 1)) ((union e (Ramp e (Int 0) 1))))",
    "0 times any type": '(rule ((= e (Bop "*" (Cast t x) (Int 0)))) ((union e (Int 0))))',
    "0 added to any type": '(rewrite (Broadcast x 1) (Bop "+" x (Int 0)) :when ((= 1 (lanes x))))',
    "nests": "(rewrite (Ramp (Ramp b s n) (Int 0) m) (Broadcast (Ramp b s n) m))",
    "both ways": '(birewrite (Bop "&&" p q) (Bop "&&" q p))',
    "truth": '(rewrite (Not (Bop "&&" p q)) (Bop "||" (Not p) (Not q)))',
}
WRONG = {
    "a value": ('(rewrite (Bop "-" x y) (Bop "-" y x))', "the value of a lane"),
    "lanes": ("(rewrite (Broadcast x n) x)", "lanes"),
    "a count that may be 0": ("(rewrite (Broadcast x n) (Broadcast x (- n 1)))", "n - 1 > 0"),
    "a type": ('(rewrite (Cast t x) (Cast "int8" x))', "types t and int8"),
    "a division by 0": ("(rewrite (Int a) (Int (* b (/ a b))) :when ((= b (- a 1))))", "!= 0"),
    "the order of a nest": (
        "(rewrite (Broadcast (Ramp b s n) m) (Ramp (Broadcast b m) s n) :when ((= 1 (lanes b))))",
        "the value of a lane",
    ),
    "a truth that is none": (
        '(rewrite (Not (Bop "&&" p q)) (Bop "&&" (Not p) (Not q)))', "the value of a lane",
    ),
    "a claim": (
        "(rule ((demand e M N K) (= e (Broadcast b L)))"
        " ((tile e M N K b (Int 0) (Int 0) (Int 0))))",
        "lanes",
    ),
    "a precondition": ("(rule ((= e (Int c))) ((want-divided e c)))", "c > 0"),
    "a number beside any type": (
        '(rewrite (Bop "-" x x) (Bop "*" x (Int 0)) :when ((= 1 (lanes x))))',
        "a number beside what need not be of a type of integers",
    ),
    "steps of any type": (
        "(rule ((want e 1)) ((union e (Ramp e (Int 1) 1))))",
        "a type that need not be one of integers",
    ),
    "float ramps": (
        '(rewrite (Bop "+" x y) (Ramp (Bop "+" x y) (Bop "+" x y) 1))',
        "need not be one of integers",
    ),
}  # fmt: skip


@pytest.mark.parametrize("law", RIGHT)
def test_a_right_rule_is_proved(law: str):
    assert verdict(RIGHT[law]).kind is Kind.PROVED, verdict(RIGHT[law]).why


@pytest.mark.parametrize("law", WRONG)
def test_a_wrong_rule_is_not_and_says_why(law: str):
    text, why = WRONG[law]
    found = verdict(text)
    assert found.kind is Kind.UNDECIDED
    assert any(why in line for line in found.why), found.why


REFUTED = {
    "a value": "the value of a lane fails",
    "a count that may be 0": "with n = 2: as many lanes fails: 2 and 4",
    "the order of a nest": "the value of a lane fails in lane ",
    "a truth that is none": "True and False",
    "a precondition": "c > 0 fails",
}


@pytest.mark.parametrize("law", REFUTED)
def test_a_wrong_rule_is_refuted_with_sizes_lane_and_values(law: str):
    found = prove_text("trial", WRONG[law][0], Signatures.of(rule_files()), refute=True)
    assert found.kind is Kind.REFUTED, found.why
    assert REFUTED[law] in found.why[0]


@pytest.mark.slow
def test_a_right_rule_matches_and_is_not_refuted():
    for law in (*RIGHT.values(), *(r.form.text for r in read_rules(standard_files())[::20])):
        for way in read_rule(law, Signatures.of(rule_files())):
            assert list(matches(way)), law
            assert counterexample(way) is None, law


def test_premises_that_cannot_hold_prove_nothing():
    texts = (
        "(rule ((= e (Broadcast x n)) (= 2 (lanes e)) (= 3 (lanes e))) ((union e x)))",
        "(rule ((= e (Ramp b s n)) (> n 4) (< n 3)) ((union e b)))",
        "(rule ((= e (Cmp o a b)) (= e (Sym s))) ((union e a)))",
    )
    for text in texts:
        assert verdict(text).kind is Kind.VACUOUS, text


def test_what_has_no_meaning_says_what_to_write():
    relation = "(relation likes (Expr))"
    signatures = Signatures.of((*rule_files(), ("99.egg", relation)))
    found = prove_text("trial", "(rule ((= e (Not x))) ((likes e)))", signatures)
    assert found.kind is Kind.UNDECIDED
    assert found.why[0].startswith("the relation likes has no meaning")
    assert "relations.py" in found.why[-1]
    signatures = Signatures.of((*rule_files(), ("99.egg", "(constructor Twice (Expr) Expr)")))
    found = prove_text("trial", "(rewrite (Twice x) x)", signatures)
    assert found.kind is Kind.UNDECIDED
    assert found.why[0].startswith("the constructor Twice has no meaning")
    assert "meaning.py" in found.why[-1]


NO_RULE = {
    "(rewrite (Ramp b s n) (Ramp b (* n 2) s))": "`(* n 2)` is an integer where a term belongs",
    "(rule ((= e (Int c))) ((scaled e (- 0 c) 1)))": "`(- 0 c)` is an integer where a term belongs",
    "(rule ((= e (Int c))) ((set (* c 1) 1)))": "`(* c 1)` is no function's, and cannot be set",
    '(rule ((block r M N)) ((mask r M N "A" 1)))': '`"A"` is a string where an integer belongs',
    "(rewrite (Not x) (Not y))": "`y` is bound by nothing that the rule looks for",
    "(rewrite x (Broadcast x 1))": "`x` is bound by nothing that the rule looks for",
    "(rewrite (Not x) (Broadcast x))": "`(Broadcast x)` has 1 arguments, not 2",
    "(relation likes (Expr))": "`(relation likes (Expr))` is neither a rule nor a rewrite",
}


@pytest.mark.parametrize("text", NO_RULE)
def test_what_is_no_rule_says_why(text: str):
    found = verdict(text)
    assert (found.kind, found.why) == (Kind.NO_RULE, (NO_RULE[text],))


def test_lemmas_are_proved_and_need_their_premises():
    assert all(v.kind is Kind.PROVED for v in prove_lemmas())
    assert len(prove_lemmas()) >= 5


@pytest.mark.parametrize(
    "row",
    [
        ("embeds", "int16", "int8"), ("embeds", "int8", "uint8"), ("embeds", "uint8", "int8"),
        ("embeds", "uint32", "int32"), ("embeds", "float16", "bfloat16"),
        ("embeds", "bfloat16", "float16"), ("embeds", "float32", "float16"),
        ("embeds", "float16", "int32"), ("product-fits", "int8", "int8"),
        ("product-fits", "uint8", "int16"), ("product-fits", "int16", "int16"),
        ("product-fits", "uint16", "int32"),
    ],
)  # fmt: skip
def test_a_wrong_fact_about_types_has_a_counterexample(row: tuple[str, str, str]):
    assert bits.counterexample(*row)


def test_right_facts_about_types_have_none():
    for row in (("embeds", "int8", "float16"), ("embeds", "float16", "float32")):
        assert bits.counterexample(*row) == ""
    assert bits.counterexample("embeds", "uint32", "float64") is None  # too many to try


def test_the_command(rules: Rules, tmp_path: Path):
    done = rules("prove", "-k", "^broadcast-one")
    assert done.code == 0
    assert done.out.startswith("broadcast-one  proved")
    wrong = tmp_path / "mine.egg"
    wrong.write_text('; a law\n(rewrite (Not x) x :ruleset axioms :name "not-not")\n')
    done = rules("prove", "-k", "not-not", "--rules", wrong, "--json")
    assert done.code == 1
    (found,) = json.loads(done.out)["verdicts"]
    assert (found["name"], found["verdict"]) == ("not-not", "undecided")
    assert "the value of a lane" in found["why"][0]
    assert rules("prove", "-k", "no such rule").out == "no rules\n"


def test_a_relation_without_a_meaning_names_its_rule(rules: Rules, tmp_path: Path):
    more = tmp_path / "mine.egg"
    more.write_text(
        "(relation likes (Expr))\n; a law\n"
        '(rule ((= e (Not x))) ((likes e)) :ruleset axioms :name "likes-it")\n'
    )
    done = rules("prove", "-k", "likes-it", "--rules", more)
    assert done.code == 1
    assert "likes-it  undecided" in done.out
    assert "the relation likes has no meaning" in done.out


def test_a_rule_that_is_none_leaves_the_others_proved(rules: Rules, tmp_path: Path):
    more = tmp_path / "mine.egg"
    more.write_text(
        '; a law\n(rewrite (Not x) (Not 1) :ruleset axioms :name "mine-1")\n'
        '; a law\n(rewrite (Not (Not x)) x :ruleset axioms :name "mine-2")\n'
    )
    done = rules("prove", "-k", "^mine-", "--rules", more)
    assert done.code == 1
    assert "mine-1  no rule" in done.out
    assert "`1` is an integer where a term belongs" in done.out
    assert "mine-2  proved" in done.out
