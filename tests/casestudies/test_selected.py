"""Each case study on tensor instructions: selected, right in the interpreter, in the SASS."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from known_code import assert_known
from machine_code import ON_CORES, assert_machine_code, side_by_side
from verified import INTERPRETED, MACHINE_CODE, Verified, text_of, texts_of_case

import halide_bridge as hb
from casestudies.common.case import Case
from casestudies.common.data import case_inputs, decoded, relative_error
from casestudies.common.registry import find_case, gpu_cases
from selector.runtime.nvrtc import compile_to_cubin, version

TARGETS = ("sm_80", "sm_90a")
SMALL = [(case, problem) for case in gpu_cases() for problem in case.small]
PROGRAMS = {  # the first benchmark problem stands for its program, as in the record
    p.program: (case, p) for case in gpu_cases() for p in reversed((*case.benchmark, *case.small))
}


def compile_case(case: Case, problem: Any, target: str) -> Any:
    return hb.compile(case.scheduled(problem, "tensor", target), target=target)


@cache
def compiled(program: str, target: str) -> Any:
    """The kernel of all problems of that program: there is one for any size."""
    return compile_case(*PROGRAMS[program], target)


def assert_selected(kernel: Any) -> None:
    """Every update is on a tensor instruction, and nothing was missed."""
    updates = [s for s in kernel.report.statements if s.stage == "update"]
    assert updates, "no update reached a tensor unit"
    assert all(s.block is not None and not s.miss for s in updates), str(kernel.report)
    assert not kernel.report.misses


@INTERPRETED
@pytest.mark.parametrize(("case", "problem"), SMALL, ids=[p.name for _, p in SMALL])
def test_selected_program_is_right(case: Case, problem: Any, verified: Verified) -> None:
    kernel = compiled(problem.program, "sm_90a")
    if case.name not in ON_CORES:
        assert_selected(kernel)
    if verified(str(kernel.module), text_of(kernel), repr(problem), texts_of_case(case)):
        return
    inputs = case_inputs(case, problem, 11, np)
    result = kernel.interpret(**inputs, sizes=problem.output.shape)
    truth = case.reference(problem, decoded(problem, inputs, np), np)
    assert relative_error(result, truth, np) <= case.tolerance[problem.output.element]


TABLES = {p.program for case in gpu_cases() for p in case.benchmark}


def batches(target: str, size: int = 8) -> Iterator[tuple[str, list[str]]]:
    """The programs of the tables, and of the others those whose turn it is; `make digests` compares
    all texts. The disassembler takes half a second for a file of any length.
    """
    turn = TARGETS.index(target)
    names = [p for i, p in enumerate(sorted(PROGRAMS)) if p in TABLES or i % len(TARGETS) == turn]
    yield from ((target, names[i : i + size]) for i in range(0, len(names), size))


BATCHES = [batch for target in TARGETS for batch in batches(target)]


@pytest.mark.slow
@pytest.mark.nvrtc
@MACHINE_CODE
@pytest.mark.parametrize(
    ("target", "programs"), BATCHES, ids=[f"{t}-{p[0]}-and-{len(p) - 1}" for t, p in BATCHES]
)
def test_machine_code(target: str, programs: list[str], verified: Verified) -> None:
    """The recorded text; compiles for the target, to tensor instructions and without spills."""
    emitted = {p: compiled(p, target).source for p in programs}
    for program, source in emitted.items():
        assert_known(program, target, source)
    sources = side_by_side(emitted)
    whole = "\n".join(sources.values())
    if not verified(whole, target, version()):
        assert_machine_code(sources, compile_to_cubin(whole, target))


def test_compiling_twice_gives_the_same_source() -> None:
    case = find_case("conv1d")
    first, second = (compile_case(case, case.small[2], "sm_80").source for _ in range(2))
    assert first == second


@pytest.mark.gpu
@pytest.mark.parametrize(("case", "problem"), SMALL, ids=[p.name for _, p in SMALL])
def test_on_the_gpu(case: Case, problem: Any) -> None:
    from casestudies.common.runner import run

    outcome = run(case, problem, case_inputs(case, problem, 13, np), "tensor", "gpu", "cuda")
    assert outcome.passed, f"relative error {outcome.error}"
