"""2-D convolution with 16 x 16 and 32 x 32 taps (paper section V-A)."""

from __future__ import annotations

from functools import partial
from typing import Any

from casestudies.common.boundary import BOUNDARY
from casestudies.common.case import Case, Option, check_operands
from casestudies.common.filtering import ELEMENTS, scheduled, tunable
from casestudies.common.pictures import PICTURES, TAPS
from casestudies.conv2d.bench import PEERS
from casestudies.conv2d.problem import BENCHMARK, SMALL, Problem
from casestudies.conv2d.reference import reference


def defined(problem: Problem) -> Any:
    """The pipeline without a schedule."""
    from casestudies.conv2d.algorithm import convolve

    return convolve(problem.taps, problem.boundary, problem.element)


def build(problem: Problem, schedule: str) -> Any:
    """The pipeline's output, scheduled as ``cuda``, ``amx`` or ``plain`` (Halide's default, for the
    CPU); in tiles that the model has for warps or for warpgroups, ``mma`` or ``wgmma``.
    """
    check_operands(schedule, problem.element, "--element bf16")
    return scheduled(defined(problem), problem, schedule)


CASE = Case(
    name="conv2d",
    summary="2-D convolution, f16 -> f32, 16 x 16 and 32 x 32 taps",
    build=build,
    reference=reference,
    benchmark=BENCHMARK,
    small=SMALL,
    options=partial(Problem.from_options, taps=16),
    peers=PEERS,
    compared=BENCHMARK,
    arguments=(TAPS, BOUNDARY, Option("element", "of image and taps", choices=ELEMENTS)),
    schedules=("tensor", "cuda", "amx"),
    pictures=PICTURES,
    tuning=tunable(defined),
    plain=lambda problem: defined(problem).output,
)
