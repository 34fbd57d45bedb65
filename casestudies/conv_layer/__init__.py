"""A 3 x 3 convolution layer over channels, with bias and ReLU, NHWC (paper section IV)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from casestudies.common.case import Case, Option, check_schedule, positive, size_of
from casestudies.conv_layer.bench import PEERS
from casestudies.conv_layer.problem import BENCHMARK, SMALL, TILINGS, Problem
from casestudies.conv_layer.reference import reference
from selector.diagnostics import UserError
from selector.families.layers import Shape, Tiling, candidates
from selector.machine import machine_for
from selector.targets import Target


def funcs(problem: Problem) -> Any:
    """The pipeline without a schedule."""
    from casestudies.conv_layer.algorithm import layer

    return layer(
        problem.channels, problem.filters, problem.stride, padded=problem.padded,
        residual=problem.residual, result=problem.result, window=problem.window,
    )  # fmt: skip


def build(problem: Problem, schedule: str) -> Any:
    """The pipeline's output, scheduled as ``mma`` (as for a GPU that has only warps), ``cuda`` or
    ``plain`` (Halide's default, for the CPU).
    """
    from casestudies.common.automatic import scheduled
    from casestudies.conv_layer.schedule import cuda

    check_schedule(schedule, "mma", "cuda", "plain")
    pipeline = funcs(problem)
    if schedule == "mma":
        return scheduled(pipeline.output, (*problem.inputs, problem.output), "sm_80")
    if schedule == "cuda":
        return cuda(pipeline, problem)
    pipeline.conv.compute_root()
    return pipeline.output


def tilings(problem: Problem, target: Target) -> dict[str, Tiling]:
    """Those of the table's layers. For tensor memory, of which nothing was measured, the machine
    model's for an older GPU, with a loop in which one role goes ahead.
    """
    if not target.has("wgmma") and not target.has("tcgen05"):
        return {}
    found = TILINGS.get(problem)
    if found is None and target.has("tcgen05"):
        reach, steps = (problem.window.reach,) * 2, (problem.stride,) * 2
        shape = Shape(
            (problem.width, problem.height, problem.batch), problem.filters, problem.channels,
            problem.taps**2, steps=(*steps, 1), reach=(*reach, 0), rows=1, fixed=True, across=True,
        )  # fmt: skip
        found = candidates(shape, machine_for("sm_90a"))[0]
        if found.taps > 1 and found.k >= shape.channels:  # all in one run: a role has no loop
            found = replace(found, taps=1, reach=(), steps=())
    return {} if found is None else {"conv": found}


def on_target(problem: Problem, schedule: str, target: Target) -> str:
    """``mma`` is for targets that have warpgroups as well."""
    if schedule == "mma" and not (target.has("wgmma") or target.has("tcgen05")):
        raise UserError(f"{problem.name} on {target.name}: tensor is mma already")
    return schedule


def from_options(options: Mapping[str, Any]) -> Problem:
    """``size``, the (width, height, images) of the output or the first of them, ``batch`` for the
    images; ``channels`` (default 16) and ``filters`` (default as many); ``stride`` (default 1).
    """
    size = size_of(options, "WIDTHxHEIGHTxIMAGES, without the last or one number", (1, 2, 3), (64,))
    width, height = (size * 2)[:2]
    batch = options.get("batch") or (size[2] if len(size) > 2 else 4096)
    channels = options.get("channels") or 16
    filters = options.get("filters") or channels
    return Problem(batch, height, width, channels, filters, options.get("stride") or 1)


CASE = Case(
    name="conv_layer",
    summary="3 x 3 convolution layer, bias, ReLU, NHWC, f16 -> f32, any channels",
    build=build,
    reference=reference,
    benchmark=BENCHMARK,
    small=SMALL,
    options=from_options,
    peers=PEERS,
    compared=BENCHMARK,
    interpreted=(64, 64, 4),
    schedules=("tensor", "mma", "cuda"),
    on_target=on_target,
    plain=lambda problem: funcs(problem).output,
    tilings=tilings,
    arguments=(
        Option("batch", "number of images (default 4096)", positive),
        Option("channels", "channels of the input (default 16)", positive),
        Option("filters", "channels of the output (default: those of the input)", positive),
        Option("stride", "outputs of every so many pixels and rows (default 1)", positive),
    ),
)
