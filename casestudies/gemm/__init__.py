"""Matrix product, f16, bf16 and s8 (paper section IV), in four layouts, with epilogues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from casestudies.common.case import Case, Option, Tunable, check_operands, given, product_size
from casestudies.gemm.bench import PEERS
from casestudies.gemm.problem import BENCHMARK, EPILOGUES, LAYOUTS, SMALL, TYPES, Problem
from casestudies.gemm.reference import reference
from selector.diagnostics import UserError
from selector.targets import Target


def build(problem: Problem, schedule: str) -> Any:
    """The pipeline's output, scheduled as ``tensor`` (mma), ``narrow`` (the same with less shared
    memory), ``wgmma`` (sm_90a), ``tcgen05`` (sm_100a), ``cuda``, ``amx`` or ``plain`` (Halide's
    default, for the CPU).
    """
    from casestudies.gemm import schedule as schedules
    from casestudies.gemm.algorithm import multiply

    check_operands(schedule, problem.operand, "--types bf16-f32 or s8-s32")
    product = multiply(problem.types, problem.layout, problem.epilogue)
    if schedule == "wgmma":
        from casestudies.gemm.warpgroups import groups_for, warpgroups

        return warpgroups(product, groups_for(problem))
    if schedule == "tcgen05":
        from casestudies.gemm.warpgroups import tensor_groups_for, warpgroups

        return warpgroups(product, tensor_groups_for(problem))
    if schedule == "amx":
        from casestudies.gemm.amx import amx

        return amx(product)
    if schedule == "cuda":
        return schedules.cuda(product, problem)
    if schedule == "plain":
        product.mm.compute_root()
        return product.output
    return schedules.tensor(product, schedules.tiles_for(problem, narrow=schedule == "narrow"))


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
    from casestudies.gemm.schedule import SHARED

    wide = next((name for name in ("wgmma", "tcgen05") if target.has(name)), "")
    if schedule == "mma" and not wide:
        raise UserError(f"gemm of {problem.types} on {target.name}: tensor is mma already")
    if schedule != "tensor" or target.family == "amx":
        return schedule
    return wide or ("narrow" if target.shared_memory < SHARED else schedule)


def from_options(options: Mapping[str, Any]) -> Problem:
    """``size``: (m, n, k) or one number for all; ``types`` (default f16-f32), ``layout`` (nn),
    ``epilogue`` (none).
    """
    return Problem(*product_size("gemm", options), **given(options, "types", "layout", "epilogue"))


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
        Option("epilogue", "what becomes of the sums", choices=EPILOGUES[1:]),
    ),
    schedules=("tensor", "mma", "cuda", "amx"),
    on_target=on_target,
    interpreted=(512,),
    output_name="C",
    tuning=Tunable(space, configured),
)
