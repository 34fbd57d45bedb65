"""A 3 x 3 convolution layer over channels, with bias and ReLU, NHWC (paper section IV)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from casestudies.common.case import Case, Option, positive, size_of
from casestudies.conv_layer.bench import PEERS
from casestudies.conv_layer.problem import BENCHMARK, SMALL, Problem
from casestudies.conv_layer.reference import reference
from casestudies.conv_layer.tiles import (
    NARROW,
    WARP_SHARED,
    GroupChunks,
    Groups,
    group_tiles,
    warp_chunks,
)
from selector.diagnostics import UserError
from selector.families.layers import Tiling
from selector.targets import Target

WARPGROUPS = ("wgmma", "tcgen05")


def build(problem: Problem, schedule: str) -> Any:
    """The pipeline's output, scheduled as ``tensor`` (warps), ``narrow`` (the same with less shared
    memory), ``wgmma`` (warpgroups, sm_90a), ``tcgen05`` (sm_100a), ``cuda`` or
    ``plain`` (Halide's default, for the CPU).
    """
    from casestudies.conv_layer import chunks
    from casestudies.conv_layer import schedule as schedules
    from casestudies.conv_layer.algorithm import layer
    from casestudies.conv_layer.family import by_family
    from casestudies.conv_layer.warpgroups import warpgroups

    tile = group_tiles(problem.extents) if schedule in WARPGROUPS else None
    dealt = schedule not in ("cuda", "plain") and not isinstance(tile, Tiling)
    pipeline = layer(
        problem.channels, problem.filters, problem.stride, dealt=dealt, padded=problem.padded,
        residual=problem.residual, result=problem.result, window=problem.window,
    )  # fmt: skip
    match tile:
        case Tiling():
            return by_family(pipeline, tile)
        case Groups():
            return warpgroups(pipeline, tile)
        case GroupChunks():
            one = schedule == "tcgen05"
            return chunks.groups(pipeline, replace(tile, cluster=1) if one else tile)
        case None:
            pass
    if schedule == "cuda":
        return schedules.cuda(pipeline, problem)
    if schedule == "plain":
        pipeline.conv.compute_root()
        return pipeline.output
    room = NARROW if schedule == "narrow" else WARP_SHARED
    layer = problem.channels, problem.filters, problem.stride, room, problem.window
    if schedules.fits(*layer):
        return schedules.tensor(pipeline, schedules.tiles_for(*layer))
    size = warp_chunks(problem.filters, problem.stride, room, problem.window)
    return chunks.warps(pipeline, size)


def on_target(problem: Problem, schedule: str, target: Target) -> str:
    """``tensor`` means warpgroups where there are any; ``mma`` is then the one for warps."""
    wide = next((name for name in WARPGROUPS if target.has(name)), "")
    if schedule == "mma" and not wide:
        raise UserError(f"{problem.program} on {target.name}: tensor is mma already")
    if schedule != "tensor":
        return schedule
    return wide or ("narrow" if target.shared_memory < WARP_SHARED else schedule)


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
    arguments=(
        Option("batch", "number of images (default 4096)", positive),
        Option("channels", "channels of the input (default 16)", positive),
        Option("filters", "channels of the output (default: those of the input)", positive),
        Option("stride", "outputs of every so many pixels and rows (default 1)", positive),
    ),
)
