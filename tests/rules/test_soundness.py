"""The rules are right: all nodes of every class, and all claims of the relations, agree on random
memory."""

from __future__ import annotations

from collections import Counter

import pytest
from cases import CASES, EXTRA
from tensor_programs import SM80, Spec, convolution, matmul

from selector.eqsat.facts import instruction_facts, legal_instructions
from selector.eqsat.movement import annotate_movement
from selector.eqsat.saturate import Engine
from selector.eqsat.scopes import is_tensor, open_scope
from selector.eqsat.soundness import check_program, check_term
from selector.ir.nodes import Allocate, Module, Store
from selector.ir.traverse import walk_stmt

ENGINE = Engine(instruction_facts(legal_instructions(SM80)))

PROGRAMS: dict[str, Module] = {
    "matmul": matmul(16, 16, 4),
    "matmul, unnested sums": matmul(16, 8, 4, style="sums"),
    "matmul, both transposed": matmul(8, 32, 2, a_layout="column", b_layout="column"),
    "matmul, f16 accumulator": matmul(16, 8, 4, Spec("float16", "float16")),
    "matmul, bytes": matmul(16, 8, 4, Spec("int8", "int32")),
    "convolution": convolution(128, 3),
    "one tap": convolution(128, 1, 3),
    "strided, dilated, kernel reversed": convolution(128, 5, 2, 3, reverse="K"),
    "strided, image reversed": convolution(128, 3, 4, 2, reverse="I"),
}


def skeletons(module: Module) -> list[Store]:
    """The distinct statements of the first scope, as they are encoded."""
    annotated = annotate_movement(module)
    allocation = next(
        s for s in walk_stmt(annotated.body) if isinstance(s, Allocate) and is_tensor(s)
    )
    return list({k.term: k.store for k in open_scope(allocation).skeletons}.values())


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("seed", [0, 1])
def test_programs(name: str, seed: int):
    result = check_program(skeletons(PROGRAMS[name]), ENGINE, seed)
    assert not result.mismatches, "\n".join(result.mismatches[:5])
    assert result.nodes > result.classes > 20
    assert result.claims > 0


def test_every_rule_case():
    """The cases of the rules' own tests: together they make every rule fire."""
    fired: Counter[str] = Counter()
    relations = ("want", "want-gcd", "demand", "factor")
    terms = [c for pair in CASES.values() for c in pair] + list(EXTRA)
    for term in dict.fromkeys(terms):
        if term[1:].split(" ", 1)[0] in relations:
            continue
        result = check_term(term, ENGINE)
        assert not result.mismatches, term + "\n" + "\n".join(result.mismatches[:5])
        fired.update(result.fired)
    silent = {rule for rule in CASES if not fired[rule]}
    assert silent <= {"want-ramp"}


WRONG = {
    "ramp-plus-broadcast": (
        '(rewrite (Bop "+" (Ramp b s n) (Broadcast v n)) (Ramp b (Bop "+" s v) n) '
        ':ruleset axioms :name "wrong")'
    ),
    "commutes": '(rewrite (Bop "-" x y) (Bop "-" y x) :ruleset axioms :name "wrong")',
    "broadcast": (
        "(rewrite (Broadcast (Ramp b s n) m) (Ramp (Broadcast b m) s n) "
        ':ruleset axioms :name "wrong")'
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_axiom_is_found(name: str):
    engine = Engine(instruction_facts(legal_instructions(SM80)))
    engine.run(WRONG[name])
    term = {
        "ramp-plus-broadcast": CASES["ramp-plus-broadcast"][0],
        "commutes": '(Bop "-" (Sym "a") (Sym "b"))',
        "broadcast": '(Broadcast (Ramp (Sym "a") (Sym "s") 4) 2)',
    }[name]
    assert check_term(term, engine).mismatches
