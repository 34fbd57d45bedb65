"""Each case study on tensor instructions: selected, right in the interpreter, in the SASS."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from machine_code import assert_machine_code, side_by_side

import halide_bridge as hb
from casestudies.common.case import Case
from casestudies.common.data import case_inputs, decoded, relative_error
from casestudies.common.registry import find_case, gpu_cases
from selector.runtime.nvrtc import compile_to_cubin

# No case study has a copy that a directive would mend.
pytestmark = pytest.mark.filterwarnings("error::selector.diagnostics.PerformanceWarning")

TARGETS = ("sm_80", "sm_90a")
SMALL = [(case, problem) for case in gpu_cases() for problem in case.small]
PROGRAMS = {p.program: (case, p) for case in gpu_cases() for p in (*case.small, *case.benchmark)}


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


@pytest.mark.parametrize(("case", "problem"), SMALL, ids=[p.name for _, p in SMALL])
def test_selected_program_is_right(case: Case, problem: Any) -> None:
    kernel = compiled(problem.program, "sm_90a")
    assert_selected(kernel)
    inputs = case_inputs(case, problem, 11, np)
    result = kernel.interpret(**inputs, sizes=problem.output.shape)
    truth = case.reference(problem, decoded(problem, inputs, np), np)
    assert relative_error(result, truth, np) <= case.tolerance[problem.output.element]


# test_limits.py compiles these, takes the time, and looks at the machine code in the same way.
TIMED = {(p.program, "sm_90a") for case in gpu_cases() for p in case.benchmark}
CODE = {t: [p for p in sorted(PROGRAMS) if (p, t) not in TIMED] for t in TARGETS}
# The disassembler takes half a second for a file of any length.
BATCHES = [(t, CODE[t][i : i + 8]) for t in TARGETS for i in range(0, len(CODE[t]), 8)]


@pytest.mark.nvrtc
@pytest.mark.parametrize(
    ("target", "programs"), BATCHES, ids=[f"{t}-{p[0]}-and-{len(p) - 1}" for t, p in BATCHES]
)
def test_machine_code(target: str, programs: list[str]) -> None:
    """Compiles for the target, to tensor instructions and without spills."""
    sources = side_by_side({p: compiled(p, target).source for p in programs})
    assert_machine_code(sources, compile_to_cubin("\n".join(sources.values()), target))


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
