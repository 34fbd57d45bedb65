"""1-D convolution of an image's rows, 8 to 256 taps (paper sections V-A and B-A)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.common.boundary import BOUNDARY, VALID
from casestudies.common.case import Case, Option
from casestudies.common.pictures import PICTURES, TAPS
from casestudies.conv1d.bench import PEERS
from casestudies.conv1d.problem import BENCHMARK, ELEMENTS, SMALL, Problem
from casestudies.conv1d.reference import reference
from selector.diagnostics import UserError


def build(problem: Problem, schedule: str) -> Any:
    """The pipeline's output, scheduled as ``tensor``, ``cuda``, ``amx`` or ``plain`` (Halide's
    default, for the CPU).
    """
    from casestudies.conv1d import schedule as schedules
    from casestudies.conv1d.algorithm import convolve

    if schedule == "cuda" and problem.element == "bf16":
        raise UserError("stock Halide 21 cannot compile bfloat16 arithmetic for CUDA")
    if schedule == "amx" and problem.element == "f16":
        raise UserError("AMX multiplies bf16 and bytes, not f16", hint="--element bf16")
    pipeline = convolve(problem.taps, problem.boundary, problem.element)
    if schedule == "amx":
        from casestudies.conv1d.amx import amx

        return amx(pipeline)
    if schedule == "cuda":
        return schedules.cuda(pipeline, problem)
    if schedule == "plain":
        pipeline.total.compute_root()
        return pipeline.output
    return schedules.tensor(pipeline)


def from_options(options: Mapping[str, Any]) -> Problem:
    """``taps`` (default 64), ``boundary`` (valid), ``element`` (f16) and ``size``, the (width,
    height) of the image.
    """
    width, height = options.get("size") or (4096, 4096)
    return Problem.of_image(
        width,
        height,
        options.get("taps") or 64,
        options.get("boundary") or VALID,
        options.get("element") or "f16",
    )


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
    arguments=(TAPS, BOUNDARY, Option("element", "of image and taps", choices=ELEMENTS)),
    schedules=("tensor", "cuda", "amx"),
    pictures=PICTURES,
)
