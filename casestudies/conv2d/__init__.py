"""2-D convolution with 16 x 16 and 32 x 32 taps (paper section V-A)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.common.case import Case
from casestudies.common.pictures import PICTURES, TAPS
from casestudies.conv2d.bench import PEERS
from casestudies.conv2d.problem import BENCHMARK, SMALL, Problem
from casestudies.conv2d.reference import reference


def build(problem: Problem, schedule: str) -> Any:
    """The pipeline's output, scheduled as ``tensor``, ``cuda`` or ``plain`` (Halide's default, for
    the CPU).
    """
    from casestudies.conv2d import schedule as schedules
    from casestudies.conv2d.algorithm import convolve

    pipeline = convolve(problem.taps)
    if schedule == "cuda":
        return schedules.cuda(pipeline, problem)
    if schedule == "plain":
        pipeline.conv.compute_root()
        return pipeline.output
    return schedules.tensor(pipeline)


def from_options(options: Mapping[str, Any]) -> Problem:
    """``taps`` (default 16) and ``size``, the (width, height) of the image."""
    width, height = options.get("size") or (4096, 4096)
    return Problem.of_image(width, height, options.get("taps") or 16)


CASE = Case(
    name="conv2d",
    summary="2-D convolution, f16 -> f32, 16 x 16 and 32 x 32 taps",
    build=build,
    reference=reference,
    benchmark=BENCHMARK,
    small=SMALL,
    options=from_options,
    peers=PEERS,
    compared=BENCHMARK,
    arguments=(TAPS,),
    pictures=PICTURES,
)
