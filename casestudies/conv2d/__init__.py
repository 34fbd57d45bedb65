"""2-D convolution with 16 x 16 and 32 x 32 taps (paper section V-A)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.common.boundary import BOUNDARY, VALID
from casestudies.common.case import Case, Option
from casestudies.common.pictures import PICTURES, TAPS
from casestudies.conv2d.bench import PEERS
from casestudies.conv2d.problem import BENCHMARK, ELEMENTS, SMALL, Problem
from casestudies.conv2d.reference import reference
from selector.diagnostics import UserError
from selector.targets import Target


def build(problem: Problem, schedule: str) -> Any:
    """The pipeline's output, scheduled as ``tensor`` (mma), ``wgmma`` (sm_90a), ``cuda``, ``amx``
    or ``plain`` (Halide's default, for the CPU).
    """
    from casestudies.conv2d import schedule as schedules
    from casestudies.conv2d.algorithm import convolve

    if schedule == "cuda" and problem.element == "bf16":
        raise UserError("stock Halide 21 cannot compile bfloat16 arithmetic for CUDA")
    if schedule == "amx" and problem.element == "f16":
        raise UserError("AMX multiplies bf16 and bytes, not f16", hint="--element bf16")
    pipeline = convolve(problem.taps, problem.boundary, problem.element)
    if schedule == "amx":
        from casestudies.conv2d.amx import amx

        return amx(pipeline)
    if schedule == "cuda":
        return schedules.cuda(pipeline, problem)
    if schedule == "plain":
        pipeline.total.compute_root()
        return pipeline.output
    if schedule == "wgmma":
        from casestudies.conv2d.warpgroups import warpgroups

        return warpgroups(pipeline, problem.block)
    return schedules.tensor(pipeline)


def on_target(problem: Problem, schedule: str, target: Target) -> str:
    """``tensor`` means warpgroups where there are any and the image has work for all of them."""
    wide = schedule == "tensor" and target.has("wgmma")
    return "wgmma" if wide and problem.block is not None else schedule


def from_options(options: Mapping[str, Any]) -> Problem:
    """``taps`` (default 16), ``boundary`` (valid), ``element`` (f16) and ``size``, the (width,
    height) of the image.
    """
    width, height = options.get("size") or (4096, 4096)
    return Problem.of_image(
        width,
        height,
        options.get("taps") or 16,
        options.get("boundary") or VALID,
        options.get("element") or "f16",
    )


CASE = Case(
    name="conv2d",
    summary="2-D convolution, f16 -> f32, 16 x 16 and 32 x 32 taps",
    build=build,
    reference=reference,
    benchmark=BENCHMARK,
    small=SMALL,
    options=from_options,
    peers=PEERS,
    on_target=on_target,
    compared=BENCHMARK,
    arguments=(TAPS, BOUNDARY, Option("element", "of image and taps", choices=ELEMENTS)),
    schedules=("tensor", "cuda", "amx"),
    pictures=PICTURES,
)
