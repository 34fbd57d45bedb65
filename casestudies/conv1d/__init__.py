"""1-D convolution of an image's rows, 8 to 256 taps (paper sections V-A and B-A)."""

from __future__ import annotations

from functools import partial
from typing import Any

from casestudies.common.boundary import BOUNDARY
from casestudies.common.case import Case, Option, check_operands
from casestudies.common.filtering import ELEMENTS, scheduled, tunable
from casestudies.common.pictures import PICTURES, TAPS
from casestudies.conv1d.bench import PEERS
from casestudies.conv1d.problem import BENCHMARK, SMALL, Problem
from casestudies.conv1d.reference import reference


def defined(problem: Problem) -> Any:
    """The pipeline without a schedule."""
    from casestudies.conv1d.algorithm import convolve

    return convolve(problem.taps, problem.boundary, problem.element)


def build(problem: Problem, schedule: str) -> Any:
    """The pipeline's output, scheduled as ``cuda``, ``amx`` or ``plain`` (Halide's default, for the
    CPU); in tiles that the model has for warps or for warpgroups, ``mma`` or ``wgmma``.
    """
    check_operands(schedule, problem.element, "--element bf16")
    return scheduled(defined(problem), problem, schedule)


CASE = Case(
    name="conv1d",
    summary="1-D convolution of an image's rows, f16 -> f32, any number of taps",
    build=build,
    reference=reference,
    benchmark=BENCHMARK,
    small=SMALL,
    options=partial(Problem.from_options, taps=64),
    peers=PEERS,
    compared=tuple(p for p in BENCHMARK if p.taps in (8, 32, 64, 128, 256)),
    arguments=(TAPS, BOUNDARY, Option("element", "of image and taps", choices=ELEMENTS)),
    schedules=("tensor", "cuda", "amx"),
    pictures=PICTURES,
    tuning=tunable(defined),
    plain=lambda problem: defined(problem).output,
)
