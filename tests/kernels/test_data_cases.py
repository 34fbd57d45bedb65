"""The kernels of every case study, run with numbers, compute what its reference does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from verified import SIMULATED, Verified, texts_of_case

import halide_bridge as hb
from casestudies.common.case import Case
from casestudies.common.data import case_inputs, decoded, relative_error
from casestudies.common.registry import gpu_cases
from selector.gpu.codegen.program import emit_kernels
from selector.gpu.ir.text import print_kernels
from selector.simulate import simulate
from selector.targets import find_target

TARGETS = ("sm_80", "sm_90a")
JOBS = [
    pytest.param(
        case, problem, target, id=f"{problem.name}-{target}",
        marks=() if i == number % 2 == 0 else pytest.mark.slow,
    )
    for number, case in enumerate(gpu_cases())
    for problem in case.small[:1]
    for i, target in enumerate(TARGETS)
]  # fmt: skip


@SIMULATED
@pytest.mark.parametrize(("case", "problem", "target"), JOBS)
def test_kernels_compute_what_the_reference_does(
    case: Case, problem: Any, target: str, verified: Verified
) -> None:
    kernel = hb.compile(case.scheduled(problem, "tensor", target), target=target)
    kernels, plan = emit_kernels(kernel.module, find_target(target))
    if verified(kernel.source, print_kernels(kernels), repr(problem), texts_of_case(case)):
        return
    inputs = case_inputs(case, problem, 11, np)
    truth = case.reference(problem, decoded(problem, inputs, np), np)
    (output,) = plan.buffers[-1:]
    for flags in (True, False):
        found = simulate(kernels, plan, inputs, problem.output.shape, flags=flags)
        assert found.faults == ()
        error = relative_error(found.outputs[output.name], truth, np)
        assert error <= case.tolerance[problem.output.element]
