"""A 3 x 3 convolution layer over channels, with bias and ReLU, NHWC (paper section IV)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.common.case import Case, Option
from casestudies.conv_layer.bench import PEERS
from casestudies.conv_layer.problem import BENCHMARK, SMALL, Problem
from casestudies.conv_layer.reference import reference


def build(problem: Problem, schedule: str) -> Any:
    """The pipeline's output, scheduled as ``tensor``, ``cuda`` or ``plain`` (Halide's default, for
    the CPU).
    """
    from casestudies.conv_layer import schedule as schedules
    from casestudies.conv_layer.algorithm import layer

    pipeline = layer(problem.channels, problem.filters)
    if schedule == "cuda":
        return schedules.cuda(pipeline, problem)
    if schedule == "plain":
        pipeline.conv.compute_root()
        return pipeline.output
    return schedules.tensor(pipeline)


def from_options(options: Mapping[str, Any]) -> Problem:
    """``size``, the (width, height) of the output; ``batch`` (default 4096); ``channels`` (default
    16) and ``filters`` (default as many).
    """
    width, height = ((options.get("size") or (64, 64)) * 2)[:2]
    channels = options.get("channels") or 16
    filters = options.get("filters") or channels
    return Problem(options.get("batch") or 4096, height, width, channels, filters)


CASE = Case(
    name="conv_layer",
    summary="3 x 3 convolution layer, bias, ReLU, NHWC, f16 -> f32, 16 and 32 channels",
    build=build,
    reference=reference,
    benchmark=BENCHMARK,
    small=SMALL,
    options=from_options,
    peers=PEERS,
    compared=BENCHMARK,
    arguments=(
        Option("batch", "number of images (default 4096)", int),
        Option("channels", "channels of the input (default 16)", int),
        Option("filters", "channels of the output (default: those of the input)", int),
    ),
)
