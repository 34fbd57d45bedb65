"""The rules are right on the programs that people write: the variants of the robustness corpus, the
programs of the workbench, the case studies."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from soundness_programs import ENGINE, FACTS, engine
from verified import SOUND, Verified

from selector.eqsat.blame import blame
from selector.eqsat.soundness import Soundness, check_commands, scopes_of
from selector.ir.module import Module
from selector.workbench.programs import corpus

sys.path.append(str(Path(__file__).parent.parent / "robustness"))

from machines import MACHINES, Machine
from statement_variants import variants
from text_variants import filters, products

pytestmark = pytest.mark.verified(
    "casestudies", "selector/families", "selector/lowering", "selector/machine"
)


@cache
def check_scope(statements: tuple[str, ...]) -> Soundness:
    """Variants often have one normal form: each is checked once."""
    commands = [f"(set (statement {i}) {s})" for i, s in enumerate(statements)]
    result = check_commands(commands, engine(FACTS))
    if result.mismatches:
        pytest.fail(f"{blame(commands, FACTS)}\n" + "\n".join(result.mismatches[:5]))
    assert not result.capped
    return result


def check(module: Module) -> Soundness:
    total = Soundness()
    for statements in dict.fromkeys(scopes_of(module)):
        total.add(check_scope(statements))
    return total


@pytest.mark.slow
@SOUND
@pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))
def test_variants(machine: Machine, verified: Verified):
    if verified(ENGINE):
        return
    total = Soundness()
    for variant in (*products(machine), *filters(machine), *variants(machine)):
        total.add(check(variant.module()))
    assert total.nodes > total.classes > 1000
    assert total.fired["matmul"]
    assert total.fired["toeplitz"]


def test_programs_of_the_workbench():
    modules = corpus()
    assert modules
    assert all(check(m).nodes > 20 for m in modules)


def studies() -> list[Any]:
    """The smallest problem of each kind of each case study with statements for tensor units."""
    registry = pytest.importorskip("casestudies.common.registry")
    cases = [c for c in registry.gpu_cases() if c.name != "recursive_filter"]
    return [(case, problem) for case in cases for problem in case.small[:2]]


@SOUND
@pytest.mark.parametrize(("case", "problem"), studies(), ids=[p.name for _, p in studies()])
def test_case_studies(case: Any, problem: Any, verified: Verified):
    bridge = pytest.importorskip("halide_bridge")
    module = bridge.lower(case.scheduled(problem, "tensor", "sm_80"))
    if verified(ENGINE, str(module)):
        return
    result = check(module)
    assert result.fired["multiply-add"] + result.fired["multiply-add-packed"]
