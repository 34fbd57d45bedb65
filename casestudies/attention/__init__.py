"""Attention: softmax(Q K' / sqrt(depth)) V for many heads, in one loop (paper section IV)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.attention.bench import PEERS
from casestudies.attention.problem import BENCHMARK, SCORES, SMALL, Problem
from casestudies.attention.reference import reference
from casestudies.common.case import Arrays, Case, Option, given, positive, size_of
from casestudies.common.data import random_inputs
from selector.diagnostics import UserError
from selector.targets import Target


def build(problem: Problem, schedule: str) -> Any:
    """The pipeline's output, scheduled as ``tensor`` (mma), ``narrow`` (the same with less shared
    memory), ``wgmma`` (sm_90a), ``cuda`` or ``plain`` (Halide's default, for the CPU).
    """
    from casestudies.attention import schedule as schedules
    from casestudies.attention.algorithm import attend
    from casestudies.attention.scores import variant

    if schedule == "cuda":
        from casestudies.attention.stock import cuda

        return cuda(problem)
    other = variant(problem.score)
    tiles = schedules.narrow() if schedule == "narrow" else schedules.Tiles()
    if schedule == "wgmma":
        tiles = schedules.groups_for(problem.depth, bool(other and other.matrices))
    pipeline = attend(
        problem.depth, causal=problem.causal, run=tiles.keys, scale=problem.scale, variant=other,
        types=problem.types, sharing=problem.sharing, window=problem.window,
    )  # fmt: skip
    if schedule == "plain":
        return schedules.plain(pipeline)
    return schedules.tensor(pipeline, schedules.for_depth(tiles, problem.depth))


def on_target(problem: Problem, schedule: str, target: Target) -> str:
    """``tensor`` means warpgroups where there are any, and whole rows of 128 bytes for them;
    ``mma`` is then the one for warps.
    """
    wide = target.has("wgmma") and problem.depth % 64 == 0 and _fits(problem, target, groups=True)
    if schedule == "mma" and not wide:
        raise UserError(
            f"attention of depth {problem.depth} on {target.name}: tensor is mma already"
        )
    if schedule != "tensor":
        return schedule
    return "wgmma" if wide else schedule if _fits(problem, target) else "narrow"


def _fits(problem: Problem, target: Target, *, groups: bool = False) -> bool:
    """Whether a block of warps, or of groups, has shared memory for runs of as many keys as
    usual.
    """
    from casestudies.attention.schedule import Tiles, groups_for
    from casestudies.attention.scores import variant

    other = variant(problem.score)
    matrices = len(other.matrices) if other else 0
    tiles = groups_for(problem.depth, bool(matrices)) if groups else Tiles()
    return tiles.shared_bytes(problem.depth, matrices) < target.shared_memory - 1024


def from_options(options: Mapping[str, Any]) -> Problem:
    """``length`` of a head (default 4096), ``heads`` (default 64) and ``depth`` (default 64);
    ``size`` is (length, heads).
    """
    length, heads = (*size_of(options, "LENGTH or LENGTHxHEADS", (1, 2), (4096,)), 64)[:2]
    chosen = given(options, "score", "scale", heads=heads, length=length, depth=64)
    return Problem(causal=bool(options.get("causal")), **chosen)


def random(problem: Problem, seed: int, xp: Any) -> Arrays:
    """Normally distributed inputs; slopes fall from head to head as those of ALiBi: 2^(-8 h/heads)
    from h = 1 on.
    """
    inputs = random_inputs(problem, seed, xp)
    if "slopes" in inputs:
        heads = xp.arange(1, problem.heads + 1, dtype=xp.float32)
        inputs["slopes"] = xp.exp2(-8 * heads / problem.heads).astype(xp.float32)
    return inputs


CASE = Case(
    name="attention",
    summary="attention, softmax(Q K' / sqrt(depth)) V, f16 -> f32, 64 heads of 4096",
    build=build,
    reference=reference,
    benchmark=BENCHMARK,
    small=SMALL,
    options=from_options,
    random=random,
    peers=PEERS,
    compared=BENCHMARK,
    interpreted=(256, 2),
    arguments=(
        Option("heads", "number of heads (default 64)", positive),
        Option("length", "queries and keys of a head (default 4096)", positive),
        Option("depth", "channels of a head, a multiple of 16 (default 64)", positive),
        Option("score", "the variant of the scores (default plain)", choices=SCORES),
        Option("scale", "factor of the scores (default 1/sqrt(depth))", float),
        Option("causal", "1: of the keys up to the query's place only (default 0)", int),
    ),
    schedules=("tensor", "mma", "cuda"),
    on_target=on_target,
)
