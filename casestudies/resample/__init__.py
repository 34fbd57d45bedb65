"""Lanczos-3 resampling of an RGB image by any factor (paper section V-C)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from casestudies.common.case import Arrays, Case, Option, Pictures, check_schedule, picture_size
from casestudies.common.images import fit
from casestudies.resample.bench import PEERS
from casestudies.resample.problem import BENCHMARK, GROUP, SMALL, Problem
from casestudies.resample.reference import reference


def build(problem: Problem, schedule: str) -> Any:
    """The pipeline's output, scheduled as ``tensor``, ``cuda`` (the same block-sparse algorithm),
    ``cuda-direct`` (each output has its own taps) or ``plain`` (Halide's default, for the CPU).
    """
    from casestudies.resample import schedule as schedules
    from casestudies.resample.algorithm import resample

    check_schedule(schedule, "tensor", "cuda", "cuda-direct", "plain")
    if schedule == "cuda-direct":
        return schedules.cuda(resample(1), problem)
    if schedule == "tensor":
        return schedules.tensor(resample(GROUP, problem.runs), schedules.tiles_for(problem.runs))
    pipeline = resample(GROUP)
    return schedules.plain(pipeline) if schedule == "plain" else schedules.cuda(pipeline, problem)


def extents(text: str) -> tuple[int, int]:
    """(width, height) of ``WIDTHxHEIGHT``, or of one number for both."""
    numbers = tuple(int(part) for part in text.lower().split("x"))
    if not 1 <= len(numbers) <= 2 or min(numbers) < 1:
        raise ValueError(f"{text} is not WIDTHxHEIGHT")
    return numbers[0], numbers[-1]


def from_options(options: Mapping[str, Any]) -> Problem:
    """``size``, the (width, height) of the image, and ``to``, that of the output."""
    width, height = picture_size(options, 2048)
    to_width, to_height = options.get("to") or (-(-width * 450 // 2048), -(-height * 450 // 2048))
    return Problem(width, height, to_width, to_height)


def picture_inputs(problem: Problem, picture: np.ndarray) -> Arrays:
    """A picture of shape (height, width, 3) as colour planes."""
    planes = fit(picture, problem.height, problem.width).transpose(2, 0, 1)
    return {"I": np.ascontiguousarray(planes, dtype=np.float16)}


def output_picture(problem: Problem, output: np.ndarray) -> np.ndarray:
    """Colour planes as a picture; Lanczos weights overshoot, so that values may leave [0, 1]."""
    return output.transpose(1, 2, 0).astype(np.float32)


CASE = Case(
    name="resample",
    summary="Lanczos-3 resampling of an RGB image to any size, f16 -> f16",
    build=build,
    reference=reference,
    benchmark=BENCHMARK,
    small=SMALL,
    options=from_options,
    peers=PEERS,
    compared=BENCHMARK,
    schedules=("tensor", "cuda", "cuda-direct"),
    arguments=(Option("to", "WIDTHxHEIGHT of the result", extents),),
    pictures=Pictures(3, picture_inputs, output_picture),
    interpreted=(160, 120),
)
