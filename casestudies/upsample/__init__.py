"""Upsampling by an integer factor with a 2-D filter (paper section V-B)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.common.boundary import BOUNDARY
from casestudies.common.case import Case, Option, given, picture_size, positive
from casestudies.common.filtering import scheduled, tunable
from casestudies.upsample.bench import PEERS
from casestudies.upsample.pictures import PICTURES
from casestudies.upsample.problem import BENCHMARK, SMALL, Problem
from casestudies.upsample.reference import reference


def defined(problem: Problem) -> Any:
    """The pipeline without a schedule."""
    from casestudies.upsample.algorithm import upsample

    return upsample(problem.phase_taps, problem.factor, problem.boundary)


def build(problem: Problem, schedule: str) -> Any:
    """The pipeline's output, scheduled as ``mma``, ``wgmma`` (sm_90a), ``cuda`` or
    ``plain`` (Halide's default, for the CPU).
    """
    from casestudies.upsample.schedule import threads_for

    return scheduled(defined(problem), problem, schedule, threads_for(problem))


def from_options(options: Mapping[str, Any]) -> Problem:
    """``taps`` of all phases (default 8 a phase), ``factor`` (2), ``boundary`` (valid) and
    ``size``, the (width, height) of the image.
    """
    width, height = picture_size(options, 2048)
    taps = 8 * (options.get("factor") or 2)
    return Problem.of_image(width, height, **given(options, "factor", "boundary", taps=taps))


CASE = Case(
    name="upsample",
    summary="upsampling by an integer factor, f16 -> f32, 8 x 8 and 16 x 16 taps a phase",
    build=build,
    reference=reference,
    benchmark=BENCHMARK,
    small=SMALL,
    options=from_options,
    peers=PEERS,
    compared=BENCHMARK,
    arguments=(
        Option("taps", "of the filter, all phases", positive),
        Option("factor", "pixels from one, along each axis (2)", positive),
        BOUNDARY,
    ),
    pictures=PICTURES,
    tuning=tunable(defined),
    plain=lambda problem: defined(problem).output,
)
