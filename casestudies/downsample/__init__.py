"""Downsampling by an integer factor with a 2-D filter (paper section V-B)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.common.boundary import BOUNDARY
from casestudies.common.case import Case, Option, given, picture_size, positive
from casestudies.common.filtering import scheduled, tunable
from casestudies.common.pictures import PICTURES, TAPS
from casestudies.downsample.bench import PEERS
from casestudies.downsample.problem import BENCHMARK, SMALL, Problem
from casestudies.downsample.reference import reference


def defined(problem: Problem) -> Any:
    """The pipeline without a schedule."""
    from casestudies.downsample.algorithm import downsample

    return downsample(problem.taps, problem.factor, problem.boundary)


def build(problem: Problem, schedule: str) -> Any:
    """The pipeline's output, scheduled as ``mma``, ``wgmma`` (sm_90a), ``cuda`` or
    ``plain`` (Halide's default, for the CPU).
    """
    return scheduled(defined(problem), problem, schedule)


def from_options(options: Mapping[str, Any]) -> Problem:
    """``taps`` (default 16), ``factor`` (2), ``boundary`` (valid) and ``size``, the (width, height)
    of the image.
    """
    width, height = picture_size(options, 4096)
    return Problem.of_image(width, height, **given(options, "factor", "boundary", taps=16))


CASE = Case(
    name="downsample",
    summary="downsampling by an integer factor, f16 -> f32, 16 x 16 and 32 x 32 taps",
    build=build,
    reference=reference,
    benchmark=BENCHMARK,
    small=SMALL,
    options=from_options,
    peers=PEERS,
    compared=BENCHMARK,
    arguments=(TAPS, Option("factor", "pixels to one, along each axis (2)", positive), BOUNDARY),
    pictures=PICTURES,
    tuning=tunable(defined),
    plain=lambda problem: defined(problem).output,
)
