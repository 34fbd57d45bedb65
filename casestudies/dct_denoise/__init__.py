"""Denoising by coring in overlapped tiles of the DCT (paper section V-E)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.common.case import Case, Option, check_schedule, given, picture_size
from casestudies.dct_denoise.bench import PEERS
from casestudies.dct_denoise.pictures import PICTURES, random_inputs
from casestudies.dct_denoise.problem import BENCHMARK, SMALL, Problem
from casestudies.dct_denoise.reference import reference


def defined(problem: Problem) -> Any:
    """The pipeline without a schedule."""
    from casestudies.dct_denoise.algorithm import denoise

    return denoise().output


def build(problem: Problem, schedule: str) -> Any:
    """The pipeline's output, scheduled as ``cuda`` (the direct DCT), ``cuda-fast`` (butterflies) or
    ``plain`` (Halide's default, for the CPU).
    """
    from casestudies.dct_denoise import fast
    from casestudies.dct_denoise import schedule as schedules
    from casestudies.dct_denoise.algorithm import denoise

    check_schedule(schedule, "cuda", "cuda-fast", "plain")
    if schedule == "cuda-fast":
        return fast.cuda(fast.denoise(), problem)
    pipeline = denoise()
    return schedules.cuda(pipeline, problem) if schedule == "cuda" else schedules.plain(pipeline)


def from_options(options: Mapping[str, Any]) -> Problem:
    """``size``, the (width, height) of the picture, and ``strength`` (default 0.1)."""
    width, height = picture_size(options, 1024)
    return Problem(width, height, **given(options, "strength"))


CASE = Case(
    name="dct_denoise",
    summary="denoising in overlapped 16 x 16 tiles of the DCT, RGB, f16 -> f16",
    build=build,
    reference=reference,
    benchmark=BENCHMARK,
    small=SMALL,
    options=from_options,
    peers=PEERS,
    compared=BENCHMARK,
    plain=defined,
    schedules=("tensor", "cuda", "cuda-fast"),
    arguments=(Option("strength", "standard deviation of the noise; pixels are 0 to 1", float),),
    pictures=PICTURES,
    random=random_inputs,
    interpreted=(256, 192),
)
