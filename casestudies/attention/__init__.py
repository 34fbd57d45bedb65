"""Attention: softmax(Q K' / sqrt(depth)) V for many heads, in one loop (paper section IV)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.attention.bench import PEERS
from casestudies.attention.problem import BENCHMARK, SCORES, SMALL, Problem
from casestudies.attention.reference import reference
from casestudies.common.case import Arrays, Case, Option, check_schedule, given, positive, size_of
from casestudies.common.data import random_inputs
from selector.diagnostics import UserError
from selector.families.attention import Tiling
from selector.families.attention.tiling import COLUMNS
from selector.targets import Target

WARPS = Tiling()
NARROW = Tiling(keys=COLUMNS)  # where shared memory does not hold runs of as many keys


def build(problem: Problem, schedule: str) -> Any:
    """The pipeline's output, scheduled as ``tensor`` (``mma``), ``narrow`` (with less shared
    memory), ``wgmma`` (sm_90a), ``cuda`` or ``plain`` (Halide's default, for the CPU).
    """
    from casestudies.attention.algorithm import attend, plain
    from casestudies.attention.schedule import tensor
    from casestudies.attention.scores import variant

    check_schedule(schedule, "tensor", "mma", "narrow", "wgmma", "cuda", "plain")
    if schedule == "cuda":
        from casestudies.attention.stock import cuda

        return cuda(problem)
    tiling = problem.tiling if schedule == "wgmma" else NARROW if schedule == "narrow" else WARPS
    assert tiling is not None
    pipeline = attend(
        problem.depth, causal=problem.causal, run=tiling.keys, scale=problem.scale,
        variant=variant(problem.score), types=problem.types,
        sharing=problem.sharing // problem.packed,
        window=problem.window, part=tiling.part,
    )  # fmt: skip
    if schedule == "plain":
        return plain(pipeline)
    return tensor(pipeline, tiling)


def on_target(problem: Problem, schedule: str, target: Target) -> str:
    """``tensor`` means warpgroups where there are any; ``mma`` is then the one for warps."""
    wide = target.has("wgmma") and problem.tiling is not None
    if schedule == "mma" and not wide:
        raise UserError(
            f"attention of depth {problem.depth} on {target.name}: tensor is mma already"
        )
    if schedule != "tensor":
        return schedule
    matrices = problem.shape.matrices
    fits = WARPS.shared_bytes(problem.depth, matrices) < target.shared_memory - 1024
    return "wgmma" if wide else schedule if fits else "narrow"


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
        Option("depth", "channels of a head (default 64)", positive),
        Option("score", "the variant of the scores (default plain)", choices=SCORES),
        Option("scale", "factor of the scores (default 1/sqrt(depth))", float),
        Option("causal", "1: of the keys up to the query's place only (default 0)", int),
    ),
    schedules=("tensor", "mma", "cuda"),
    on_target=on_target,
)
