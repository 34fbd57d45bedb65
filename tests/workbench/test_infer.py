"""``python -m selector rules infer``: what was taken out is found again, what is false is not."""

from __future__ import annotations

import json

import pytest
from workbench_command import Rules

from selector.workbench.infer.fingerprints import Fingerprints, agree, keys
from selector.workbench.infer.grammar import PLACE, holes
from selector.workbench.infer.holes import Recogniser, fill
from selector.workbench.infer.patterns import instance, match, read, show
from selector.workbench.infer.run import Findings, Options, infer
from selector.workbench.infer.shapes import proposals
from selector.workbench.ruleset import standard_files

pytestmark = pytest.mark.verified


def found(hole: str, *without: str, size: int = 3, seed: int = 0) -> Findings:
    return infer(
        standard_files(),
        Options((hole,), size=size, seconds=300, seed=seed, without=without, cost=False),
    )


@pytest.mark.parametrize("hole", holes())
def test_what_is_written_best_is_recognised(hole: str):
    h = holes()[hole]
    assert Recogniser(standard_files()).ask([fill(h.update, PLACE, h.best)]) == [True]


@pytest.mark.parametrize(
    ("hole", "without", "law"),
    [
        ("taps", "binary-broadcasts", "(xn0(1) * x0) -> x0"),
        ("index", "ramp-times-scalar", "(x0 * xn0(1)) -> x0"),
        ("taps", "ramp-times-scalar", "(x0 * xn0(2)) -> (x0 + x0)"),
    ],
)
@pytest.mark.slow
def test_what_a_rule_that_was_taken_out_did_is_found_again(hole: str, without: str, law: str):
    """An equality brings back a program that the missing rule selected."""
    files = standard_files()
    best, poor = Recogniser(files), Recogniser(files, frozenset([without]))
    found_again = [
        f.candidate
        for f in found(hole, without).found
        if best.ask([fill(f.candidate.pair.update, PLACE, f.candidate.pair.refused)]) == [True]
    ]
    (again,) = [c for c in found_again if c.law == f"; {law}"]
    update = fill(again.pair.update, PLACE, again.pair.refused)
    assert poor.ask([update]) == [False]
    assert poor.helps(again.rule, update)


def test_fingerprints_tell_apart_what_differs():
    prints = Fingerprints(3)
    pairs = {
        '(Sym "a")': '(Sym "b")',
        '(Bop "min" (Sym "a") (Int 0))': '(Int 0)',
        '(Bop "/" (Sym "a") (Int 2))': '(Bop "/" (Bop "+" (Sym "a") (Int 1)) (Int 2))',
        '(Bop "-" (Bop "+" (Atom "float32" 1 "x") (FLit "float32" 1.0)) (FLit "float32" 1.0))':
            '(Atom "float32" 1 "x")',
        '(Load "int8" "A" (Sym "a") (Always 1))': '(Load "int8" "B" (Sym "a") (Always 1))',
    }  # fmt: skip
    for a, b in pairs.items():
        x, y = prints.value(read(a)), prints.value(read(b))
        assert not agree(x, y), a
        assert x is not None
        assert y is not None
        assert keys(x[1].reshape(1, -1)) != keys(y[1].reshape(1, -1)), a


def test_equal_terms_have_one_fingerprint_whatever_came_before():
    first, second = Fingerprints(5), Fingerprints(5)
    second.value(read('(Sym "z")'))
    a, b = read('(Bop "+" (Sym "a") (Sym "b"))'), read('(Bop "+" (Sym "b") (Sym "a"))')
    assert agree(first.value(a), second.value(b))
    assert first.value(read('(Bop "+" (Sym "a") (Always 1))')) is None


def test_sizes_become_unknowns():
    left = read('(Bop "+" (Ramp (Sym "a") (Sym "r") 2) (Broadcast (Int 0) 2))')
    texts = [p.text("p") for p in proposals(left, left[2], Fingerprints())]  # type: ignore[arg-type]
    assert texts[0].startswith('(rewrite (Bop "+" x0 (Broadcast (Int 0) n0)) x0')


def test_what_is_false_of_other_sizes_is_not_proposed():
    """2 * 2 is 2 + 2, and of no other numbers."""
    left = read('(Bop "*" (Broadcast (Int 2) 2) (Broadcast (Int 2) 2))')
    right = read('(Bop "+" (Broadcast (Int 2) 2) (Broadcast (Int 2) 2))')
    for p in proposals(left, right, Fingerprints()):
        assert "(Int n0)" not in p.text("p") or "(Int n1)" in p.text("p")


def test_patterns_are_read_matched_and_filled_in():
    p = read('(Bop "+" x (Broadcast (Int n) m))')
    bound: dict[str, object] = {}
    assert match(p, read('(Bop "+" (Sym "a") (Broadcast (Int 3) 4))'), bound)
    assert bound == {"x": ("Sym", "a"), "n": 3, "m": 4}
    assert show(instance(p, bound)) == '(Bop "+" (Sym "a") (Broadcast (Int 3) 4))'
    assert not match(p, read('(Bop "+" (Sym "a") (Sym "b"))'), {})
    with pytest.raises(ValueError, match="/"):
        instance(read("(Always (/ n m))"), bound)


@pytest.mark.slow
def test_the_same_seed_finds_the_same():
    first, second = (found("sum").as_dict() for _ in range(2))
    assert first == second
    assert first["found"]


def test_the_command(rules: Rules):
    done = rules("infer", "sum", "--size", 2, "--no-cost", "--json")
    assert done.code == 0
    data = json.loads(done.out)
    assert {"name", "law", "rule", "test", "refused", "recognised"} <= data["found"][0].keys()
    assert "] fires" in data["found"][0]["test"]
    shown = rules("infer", "sum", "--size", 2, "--no-cost")
    assert data["found"][0]["rule"] in shown.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("hat",), "there is no hole 'hat'"),
        (("--size", 0), "terms of size 0"),
        (("--seconds", 0), "0 seconds"),
        (("--without", "no-rule"), "there is no rule 'no-rule'"),
    ],
)
def test_a_mistake_is_one_error(rules: Rules, arguments: tuple[object, ...], said: str):
    done = rules("infer", *arguments)
    assert done.code
    assert said in done.err
