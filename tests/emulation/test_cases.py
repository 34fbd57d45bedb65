"""The CUDA text of every case study computes what its reference does, at a small size; at all small
sizes at night.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest

import halide_bridge as hb
from casestudies.common.case import Case
from casestudies.common.data import case_inputs, decoded, relative_error
from casestudies.common.registry import gpu_cases
from emulation import check

TARGETS = ("sm_80", "sm_90a")
WORTH_RUNNING = 1000  # elements of an output: blocks inside, at the edges and across them


def by_day(case: Case) -> list[tuple[Any, str]]:
    """A problem of a case with each target: the one with the least to do of those worth running."""
    ordered = sorted(case.small, key=lambda p: p.multiply_adds)
    worth = [p for p in ordered if prod(p.output.shape) >= WORTH_RUNNING] or ordered[-1:]
    return [(worth[0], target) for target in TARGETS]


def problems() -> list[Any]:
    found: list[Any] = []
    for case in gpu_cases():
        day = by_day(case)
        for problem in case.small:
            for target in TARGETS:
                marks = () if (problem, target) in day else pytest.mark.nightly
                name = f"{problem.name}-{target}"
                found.append(pytest.param(case, problem, target, marks=marks, id=name))
    return found


PROGRAMS = {p.program: (case, p) for case in gpu_cases() for p in case.small}


@cache
def compiled(program: str, target: str) -> Any:
    """The kernel of all problems of that program."""
    case, problem = PROGRAMS[program]
    return hb.compile(case.scheduled(problem, "tensor", target), target=target)


@pytest.mark.parametrize(("case", "problem", "target"), problems())
def test_text_computes_what_the_reference_does(case: Case, problem: Any, target: str) -> None:
    kernel = compiled(problem.program, target)
    inputs = case_inputs(case, problem, 11, np)
    found = check(kernel, **inputs, sizes=problem.output.shape)
    truth = case.reference(problem, decoded(problem, inputs, np), np)
    assert relative_error(found, truth, np) <= case.tolerance[problem.output.element]
