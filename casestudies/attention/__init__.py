"""Attention: softmax(Q K' / sqrt(depth)) V for many heads, in one loop (paper section IV)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.attention.bench import PEERS
from casestudies.attention.problem import BENCHMARK, SMALL, Problem
from casestudies.attention.reference import reference
from casestudies.common.case import Case, Option, positive
from selector.diagnostics import UserError
from selector.targets import Target


def build(problem: Problem, schedule: str) -> Any:
    """The pipeline's output, scheduled as ``tensor`` (mma), ``wgmma`` (sm_90a), ``cuda`` or
    ``plain`` (Halide's default, for the CPU).
    """
    from casestudies.attention import schedule as schedules
    from casestudies.attention.algorithm import attend

    if schedule == "cuda":
        from casestudies.attention.stock import cuda

        return cuda(problem)
    tiles = schedules.groups_for(problem.depth) if schedule == "wgmma" else schedules.Tiles()
    pipeline = attend(problem.depth, causal=problem.causal, run=tiles.keys)
    if schedule == "plain":
        return schedules.plain(pipeline)
    return schedules.tensor(pipeline, tiles)


def on_target(problem: Problem, schedule: str, target: Target) -> str:
    """``tensor`` means warpgroups where there are any, and whole rows of 128 bytes for them;
    ``mma`` is then the one for warps.
    """
    wide = target.has("wgmma") and problem.depth % 64 == 0
    if schedule == "mma" and not wide:
        raise UserError(
            f"attention of depth {problem.depth} on {target.name}: tensor is mma already"
        )
    return "wgmma" if schedule == "tensor" and wide else schedule


def from_options(options: Mapping[str, Any]) -> Problem:
    """``length`` of a head (default 4096), ``heads`` (default 64) and ``depth`` (default 64);
    ``size`` is (length, heads).
    """
    size = options.get("size") or (4096, 64)
    length, heads = size[:2] if len(size) > 1 else (size[0], 64)
    chosen = options.get("heads") or heads, options.get("length") or length
    return Problem(*chosen, options.get("depth") or 64, bool(options.get("causal")))


CASE = Case(
    name="attention",
    summary="attention, softmax(Q K' / sqrt(depth)) V, f16 -> f32, 64 heads of 4096",
    build=build,
    reference=reference,
    benchmark=BENCHMARK,
    small=SMALL,
    options=from_options,
    peers=PEERS,
    compared=BENCHMARK,
    interpreted=(256, 2),
    arguments=(
        Option("heads", "number of heads (default 64)", positive),
        Option("length", "queries and keys of a head (default 4096)", positive),
        Option("depth", "channels of a head, a multiple of 16 (default 64)", positive),
        Option("causal", "1: of the keys up to the query's place only (default 0)", int),
    ),
    schedules=("tensor", "mma", "cuda"),
    on_target=on_target,
)
