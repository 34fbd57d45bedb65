"""1-D convolution of an image's rows, 8 to 256 taps (paper sections V-A and B-A)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.common.case import Case
from casestudies.common.pictures import PICTURES, TAPS
from casestudies.conv1d.bench import PEERS
from casestudies.conv1d.problem import BENCHMARK, SMALL, Problem
from casestudies.conv1d.reference import reference


def build(problem: Problem, schedule: str) -> Any:
    """The pipeline's output, scheduled as ``tensor``, ``cuda`` or ``plain`` (Halide's default, for
    the CPU).
    """
    from casestudies.conv1d import schedule as schedules
    from casestudies.conv1d.algorithm import convolve

    pipeline = convolve(problem.taps)
    if schedule == "cuda":
        return schedules.cuda(pipeline, problem)
    if schedule == "plain":
        pipeline.conv.compute_root()
        return pipeline.output
    return schedules.tensor(pipeline)


def from_options(options: Mapping[str, Any]) -> Problem:
    """``taps`` (default 64) and ``size``, the (width, height) of the image."""
    width, height = options.get("size") or (4096, 4096)
    return Problem.of_image(width, height, options.get("taps") or 64)


CASE = Case(
    name="conv1d",
    summary="1-D convolution of an image's rows, f16 -> f32, any number of taps",
    build=build,
    reference=reference,
    benchmark=BENCHMARK,
    small=SMALL,
    options=from_options,
    peers=PEERS,
    compared=tuple(p for p in BENCHMARK if p.taps in (8, 32, 64, 128, 256)),
    arguments=(TAPS,),
    pictures=PICTURES,
)
