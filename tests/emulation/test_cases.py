"""The CUDA text of every case study computes what its reference does, at all small sizes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from verified import EMULATED, Verified, text_of, texts_of_case

import halide_bridge as hb
from casestudies.common.case import Case
from casestudies.common.data import case_inputs, decoded, relative_error
from casestudies.common.registry import gpu_cases
from emulation import check

TARGETS = ("sm_80", "sm_90a")
QUICK = {case.small[0] for case in gpu_cases()}
JOBS = [
    pytest.param(case, p, t, id=f"{p.name}-{t}", marks=() if p in QUICK else pytest.mark.slow)
    for case in gpu_cases()
    for p in case.small
    for t in TARGETS
]
PROGRAMS = {p.program: (case, p) for case in gpu_cases() for p in case.small}


@cache
def compiled(program: str, target: str) -> Any:
    """The kernel of all problems of that program."""
    case, problem = PROGRAMS[program]
    return hb.compile(case.scheduled(problem, "tensor", target), target=target)


@EMULATED
@pytest.mark.parametrize(("case", "problem", "target"), JOBS)
def test_text_computes_what_the_reference_does(
    case: Case, problem: Any, target: str, verified: Verified
) -> None:
    kernel = compiled(problem.program, target)
    if verified(text_of(kernel), repr(problem), texts_of_case(case)):
        return
    inputs = case_inputs(case, problem, 11, np)
    found = check(kernel, **inputs, sizes=problem.output.shape)
    truth = case.reference(problem, decoded(problem, inputs, np), np)
    assert relative_error(found, truth, np) <= case.tolerance[problem.output.element]
