"""The schedules for AMX of cases that run on GPUs, too: in C on this machine's CPU, or on software
tiles where it has no AMX.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from known_code import assert_known
from verified import IN_C, Verified, text_of, texts_of_case

pytest.importorskip("halide")

import halide_bridge as hb
from casestudies.common.case import Case
from casestudies.common.data import decoded, poisoned, random_inputs, relative_error
from casestudies.common.registry import all_cases, find_case
from selector.diagnostics import UserError

JOBS = [
    (case, problem)
    for case in all_cases()
    if "amx" in case.schedules
    for problem in case.small
    if problem.inputs[0].element != "f16"
]


def test_there_are_jobs() -> None:
    assert {case.name for case, _ in JOBS} >= {"gemm"}


PROGRAMS = {problem.program: (case, problem) for case, problem in JOBS}


@cache
def compiled(program: str) -> Any:
    """The kernel of all problems of that program: there is one for any size."""
    case, problem = PROGRAMS[program]
    return hb.compile(case.build(problem, "amx"), target="amx")


@IN_C
@pytest.mark.parametrize(("case", "problem"), JOBS, ids=[p.name for _, p in JOBS])
def test_result(case: Case, problem: Any, verified: Verified) -> None:
    kernel = compiled(problem.program)
    assert_known(f"{problem.program}-amx", "amx", kernel.source)
    assert not kernel.report.misses
    if verified(text_of(kernel), repr(problem), texts_of_case(case)):
        return
    inputs = random_inputs(problem, 5, np)
    output = poisoned(problem.output, np)
    kernel(**inputs, out=output)
    truth = case.reference(problem, decoded(problem, inputs, np), np)
    assert relative_error(output, truth, np) <= case.tolerance[problem.output.element]


def test_amx_has_no_f16() -> None:
    gemm = find_case("gemm")
    with pytest.raises(UserError, match="AMX multiplies bf16 and bytes, not f16"):
        gemm.build(gemm.options({"size": (64,)}), "amx")
