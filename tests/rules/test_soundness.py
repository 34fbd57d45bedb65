"""The rules are right: all nodes of every class, and all claims of the relations, agree on random
memory; every rule takes part."""

from __future__ import annotations

from collections import Counter

import pytest
from soundness_programs import (
    ENGINE,
    FACTS,
    SMALL,
    Program,
    checked,
    declared,
    engine,
    near_misses,
    programs,
    rule_cases,
    rule_forms,
)
from verified import SOUND, Verified

from rules import rule_files
from selector.diagnostics import InternalError
from selector.eqsat.blame import blame
from selector.eqsat.claims import ASKS, CLAIMS
from selector.eqsat.claims import FACTS as GIVEN
from selector.eqsat.saturate import Engine
from selector.eqsat.solve import saturated
from selector.eqsat.soundness import Soundness, check_commands

pytestmark = pytest.mark.verified


def check(program: Program, seed: int = 0) -> Soundness:
    result = (
        check_commands(program.commands, engine(program.facts), seed) if seed else checked(program)
    )
    if result.mismatches:
        guilty = blame(program.commands, program.facts, seed=seed)
        pytest.fail(f"{program.name}: {guilty}\n" + "\n".join(result.mismatches[:5]))
    return result


@SOUND
@pytest.mark.parametrize("program", programs(), ids=lambda p: p.name)
def test_programs(program: Program, verified: Verified):
    if verified(ENGINE, *program.commands):
        return
    total = Soundness()
    for seed in (0, 1):
        total.add(check(program, seed))
    assert total.nodes > total.classes > 20
    assert total.claims > 20
    assert total.fired["multiply-add"] + total.fired["multiply-add-packed"] > 0


@pytest.mark.slow
@SOUND
def test_every_rule_takes_part(verified: Verified):
    """The gate: a rule that matches nowhere in here has not been checked.

    One test, so that it counts the same whatever the order and the number of workers.
    """
    if verified(ENGINE):
        return
    fired: Counter[str] = Counter()
    for program in (*rule_cases(), *near_misses(), *programs()):
        result = check(program)
        assert not result.capped, program.name
        fired.update(result.fired)
    assert not sorted(set(rule_forms()) - {r for r, n in fired.items() if n})


def test_the_gate_is_closed_for_a_rule_that_never_matches():
    text = '(rewrite (Not (Not (Not x))) (Not x) :ruleset axioms :name "not-not-not")'
    trial = Engine(SMALL, rules=(*rule_files(), ("99_more.egg", text)))
    fired: Counter[str] = Counter()
    for program in programs()[:3]:
        fired.update(check_commands(program.commands, trial).fired)
    assert fired["multiply-add"]
    assert not fired["not-not-not"]


def test_every_relation_is_a_claim_or_only_asks():
    """A new relation or function belongs into CLAIMS, ASKS or FACTS of selector/eqsat/claims.py."""
    tables = set(declared("relation", "function"))
    known = [*CLAIMS, *ASKS, *GIVEN]
    assert len(known) == len(set(known))
    assert tables <= set(known), sorted(tables - set(known))
    assert set(known) <= tables, sorted(set(known) - tables)


def test_every_constructor_is_evaluated():
    """No constructor is left out of the comparison for want of a meaning: together the programs
    hold nodes of all of them, and every node was given a value."""
    missing = set(declared("constructor"))
    for program in (*programs(), *rule_cases()):
        own = engine(program.facts)
        with own.saturated(program.commands):
            functions = own.graph.freeze().functions
            missing -= {name for name, f in functions.items() if f.rows}
        if not missing:
            break
    assert not missing


WRONG = {
    "lanes": '(rewrite (Broadcast x n) x :ruleset axioms :name "wrong")',
    "division": "(rewrite (Broadcast x n) (Broadcast x (/ n (- n n))) "
    ':ruleset axioms :name "wrong")',
    "type": '(rewrite (Cast t x) (Cast "int8" x) :ruleset axioms :name "wrong")',
    "value": '(rewrite (Bop "-" x y) (Bop "-" y x) :ruleset axioms :name "wrong")',
}
SUBJECT = {
    "lanes": '(Broadcast (Sym "a") 4)',
    "division": '(Broadcast (Sym "a") 4)',
    "type": '(Cast "float32" (Load "float16" "x" (Sym "a") (Always 1)))',
    "value": '(Bop "-" (Sym "a") (Sym "b"))',
}
FINDING = {
    "lanes": "Illegal merge attempted for function lanes",
    "division": "call of primitive / failed",
    "type": "types ",
    "value": "lane 0 differs",
}


def wrong(kind: str) -> tuple[tuple[str, str], ...]:
    return (*rule_files(), ("99_wrong.egg", f"; a law\n{WRONG[kind]}"))


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_rule_is_found_and_named(kind: str):
    commands = [f"(let $subject {SUBJECT[kind]})"]
    result = check_commands(commands, Engine(FACTS, rules=wrong(kind)))
    assert any(FINDING[kind] in m for m in result.mismatches), result.mismatches
    guilty = blame(commands, FACTS, wrong(kind))
    assert guilty is not None
    assert (guilty.rule, guilty.file, guilty.line) == ("wrong", "99_wrong.egg", 2)
    assert FINDING[kind] in guilty.finding


def test_the_right_rules_are_not_blamed():
    assert blame([f"(let $subject {SUBJECT['lanes']})"], FACTS) is None


@pytest.mark.parametrize("kind", ["lanes", "division"])
def test_a_selection_stopped_by_an_unsound_rule_names_it(kind: str):
    """Not a panic of the engine: an error that names the rule and its file."""
    statement = f'(Store "out" {SUBJECT[kind]} {SUBJECT[kind]} (Always 4))'
    with pytest.raises(InternalError, match=r"unsound rule, 99_wrong\.egg:2: \[wrong\]"):
        saturated((statement,), Engine(FACTS, rules=wrong(kind)))


def test_an_instruction_in_the_wrong_place_is_found():
    text = dict(rule_files())["80_lowering.egg"]
    rule, rest = text.split(':name "multiply-add")')
    for old in (
        '(Store acc i (Move "mem" l v) (Always MN))',
        '(= v (Bop "+" (Move l "mem" x) r)) (= x (Load c acc i (Always MN)))',
    ):
        assert rule.count(old) == 1
        rule = rule.replace(old, old.replace(" l ", " h ").replace("(Move l", "(Move h"))
    text = f'{rule}:name "multiply-add"){rest}'
    rules = tuple((n, text if n == "80_lowering.egg" else t) for n, t in rule_files())
    program = next(p for p in programs() if p.name == "matmul")
    moved = tuple(c.replace('"wmma"', '"wgmma"') for c in program.commands)
    result = check_commands(moved, Engine(FACTS, rules=rules))
    assert any("does not execute in ['wgmma']" in m for m in result.mismatches), result.mismatches


def test_memory_covers_its_types_and_edges():
    """Bytes take their whole range, and the last elements of a buffer are read as well as what lies
    beyond it."""
    import numpy as np

    from selector.eqsat.extract import read_graph
    from selector.eqsat.valuation import MEMORY, WORLDS, World

    loads = [
        f'(Load "{t}" "{t}" (Ramp (Sym "s{i}") (Sym "t{i}") 16) (Always 16))'
        for i in range(24)
        for t in ("int8", "uint8", "int16", "bfloat16")
    ]
    with engine().saturated([f"(let $load{i} {t})" for i, t in enumerate(loads)]):
        world = World(read_graph(engine().graph, 0), np.random.default_rng(0))
    data = {t: world.memory(t)[0].data for t in ("int8", "uint8", "int16", "bfloat16")}
    assert all(d.shape == (WORLDS, MEMORY) for d in data.values())
    assert (data["int8"].min(), data["int8"].max()) == (-128, 127)
    assert (data["uint8"].min(), data["uint8"].max()) == (0, 255)
    assert (data["int16"].min(), data["int16"].max()) == (-(2**15), 2**15 - 1)
    symbols = [v for n, v in world.frame.variables.items() if n[0] in "st"]
    assert any((s >= MEMORY - 16).any() for s in symbols)
    assert any((s < 0).any() for s in symbols)
    assert any((s == 0).any() for s in symbols)
