"""Matrix product, f16, bf16 and s8 (paper section IV), in four layouts, with epilogues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from casestudies.common.case import (
    Arrays,
    Case,
    Option,
    Tunable,
    check_operands,
    check_schedule,
    given,
    positive,
    product_size,
)
from casestudies.common.data import random_inputs
from casestudies.gemm.bench import PEERS
from casestudies.gemm.problem import BENCHMARK, EPILOGUES, LAYOUTS, SMALL, TYPES, Problem
from casestudies.gemm.reference import reference
from selector.diagnostics import UserError
from selector.targets import Target


def build(problem: Problem, schedule: str) -> Any:
    """The pipeline's output, scheduled as ``tensor`` (``mma``), ``narrow`` (with less shared
    memory), ``wgmma`` (sm_90a), ``tcgen05`` (sm_100a), ``cuda``, ``amx`` or ``plain`` (Halide's
    default, for the CPU).
    """
    from casestudies.gemm import schedule as schedules
    from casestudies.gemm.algorithm import multiply
    from casestudies.gemm.tiles import groups_for, tensor_groups_for, warps_for

    known = "tensor", "mma", "narrow", "wgmma", "tcgen05", "cuda", "amx", "plain"
    check_schedule(schedule, *known)
    check_operands(schedule, problem.operand, "--types bf16-f32 or s8-s32")
    if problem.batch > 1 and schedule in ("amx", "cuda"):
        raise UserError(f"the schedule `{schedule}` of gemm is for one pair of matrices")
    batched = problem.batch > 1
    product = multiply(problem.types, problem.layout, problem.epilogue, batched=batched)
    if schedule == "wgmma":
        return schedules.tensor(product, groups_for(problem.shape))
    if schedule == "tcgen05":
        return schedules.tensor(product, tensor_groups_for(problem.shape))
    if schedule == "amx":
        from casestudies.amx_matmul.schedule import Tiles, parallel

        return parallel(product, Tiles(vector_n=16))
    if schedule == "cuda":
        return schedules.cuda(product, problem)
    if schedule == "plain":
        product.mm.compute_root()
        return product.output
    return schedules.tensor(product, warps_for(problem.shape, narrow=schedule == "narrow"))


def space(problem: Problem) -> Iterable[Any]:
    """Configurations of the schedule for warpgroups."""
    from casestudies.gemm import tuning

    return tuning.space(problem)


def configured(problem: Problem, configuration: Any) -> Any:
    """The output in one of them."""
    from casestudies.gemm import tuning

    return tuning.schedule(problem, configuration)


def on_target(problem: Problem, schedule: str, target: Target) -> str:
    """``tensor`` means warpgroups where there are any; ``mma`` is then the one for warps."""
    from casestudies.gemm.tiles import SHARED

    wide = next((name for name in ("wgmma", "tcgen05") if target.has(name)), "")
    if schedule == "mma" and not wide:
        raise UserError(f"gemm of {problem.types} on {target.name}: tensor is mma already")
    if schedule != "tensor" or target.family == "amx":
        return schedule
    return wide or ("narrow" if target.shared_memory < SHARED else schedule)


def from_options(options: Mapping[str, Any]) -> Problem:
    """``size``: (m, n, k) or one number for all; ``types`` (default f16-f32), ``layout`` (nn),
    ``epilogue`` (none), ``batch`` (1).
    """
    chosen = given(options, "types", "layout", "epilogue", "batch")
    return Problem(*product_size(options), **chosen)


def random(problem: Problem, seed: int, xp: Any) -> Arrays:
    """Normally distributed inputs; scales of sums of bytes leave few results beyond s8."""
    inputs = random_inputs(problem, seed, xp)
    if problem.output.element == "s8":
        inputs["scale"] *= xp.float32(40 / (48 * 48 * problem.k**0.5))
    return inputs


CASE = Case(
    name="gemm",
    summary="matrix product, f16 -> f32 and f16, bf16 -> f32 and bf16, s8 -> s32",
    build=build,
    reference=reference,
    benchmark=BENCHMARK,
    small=SMALL,
    options=from_options,
    peers=PEERS,
    compared=BENCHMARK,
    arguments=(
        Option("types", "of operands and result", choices=TYPES),
        Option("layout", "t for A, then for B, where it is stored transposed", choices=LAYOUTS),
        Option("batch", "pairs of matrices (default 1)", positive),
        Option("epilogue", "what becomes of the sums", choices=EPILOGUES[1:]),
    ),
    schedules=("tensor", "mma", "cuda", "amx"),
    on_target=on_target,
    interpreted=(512,),
    output_name="C",
    random=random,
    tuning=Tunable(space, configured),
)
