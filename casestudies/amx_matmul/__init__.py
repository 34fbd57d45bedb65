"""Matrix product on AMX tiles: bf16 and bytes, B in VNNI and in standard layout (paper table I)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from casestudies.amx_matmul.problem import BENCHMARK, LAYOUTS, PAIRS, SCHEDULES, SMALL, Problem
from casestudies.amx_matmul.reference import reference
from casestudies.common.case import Case, Option, given, product_size

FASTEST = "blocked_parallel"  # what the schedule ``amx`` stands for


def build(problem: Problem, schedule: str) -> Any:
    """The pipeline's output, scheduled as ``amx``, as one of table I (``amx-preload_a``, ...), or
    ``plain`` (Halide's default).
    """
    from casestudies.amx_matmul import schedule as schedules
    from casestudies.amx_matmul.algorithm import multiply

    product = multiply(problem.operands, problem.layout)
    if schedule == "plain":
        product.mm.compute_root()
        return product.output
    return schedules.schedule(product, schedule.removeprefix("amx").removeprefix("-") or FASTEST)


def from_options(options: Mapping[str, Any]) -> Problem:
    """``size``: (m, n, k) or one number for all; ``types`` (default bf16-bf16); ``layout``."""
    return Problem(*product_size(options), **given(options, "types", "layout"))


CASE = Case(
    name="amx_matmul",
    summary="matrix product on a CPU's AMX tiles, bf16 -> f32, bytes -> s32",
    build=build,
    reference=reference,
    benchmark=BENCHMARK,
    small=SMALL,
    options=from_options,
    schedules=("amx", *(f"amx-{name}" for name in SCHEDULES)),
    arguments=(
        Option("types", "of A and B", choices=PAIRS),
        Option("layout", "of B", choices=LAYOUTS),
    ),
    interpreted=(256,),
    output_name="C",
)
