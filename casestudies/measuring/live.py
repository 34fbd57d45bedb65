"""Measuring what is compiled on the spot: the selector's kernels, stock Halide's, and the
libraries.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from casestudies.common.case import Case, Problem
from casestudies.common.progress import say, step
from casestudies.common.registry import gpu_schedules, is_stock
from casestudies.measuring.measure import (
    Contender,
    Row,
    kernel_contender,
    measure,
    peer,
    stock_contender,
)
from selector.diagnostics import UserError
from selector.tuning import Tuning


def bench(
    case: Case, problem: Problem, seed: int, schedule: str | None = None, target: str | None = None
) -> Iterator[Row]:
    """Compile and measure one problem; peers only where all schedules are measured."""
    if schedule is not None and schedule not in gpu_schedules(case):
        hint = f"schedules: {', '.join(gpu_schedules(case))}"
        raise UserError(f"{case.name} has no schedule {schedule!r} for a GPU", hint=hint)
    say(problem.name)
    with tempfile.TemporaryDirectory() as folder:
        contenders: list[Contender] = []
        for name in gpu_schedules(case) if schedule is None else (schedule,):
            if is_stock(name):
                contenders += _compile_stock(case, problem, name, Path(folder, f"{name}.so"))
            else:
                contenders += _compile_ours(case, problem, name, target or "cuda")
        if schedule is None:
            contenders += [peer(problem, p) for p in case.peers]
        yield from measure(case, problem, contenders, seed)


def _compile_ours(case: Case, problem: Problem, schedule: str, target: str) -> list[Contender]:
    import halide_bridge as hb

    try:
        output = case.scheduled(problem, schedule, target)
    except UserError as error:
        say(f"  no {schedule}: {error}")
        return []
    with step(f"compile {schedule} for {target}"):
        return [kernel_contender(hb.compile(output, target=target), schedule)]


def _compile_stock(case: Case, problem: Problem, schedule: str, path: Path) -> list[Contender]:
    from casestudies.common.stock import argument_order, compile_shared

    try:
        with step(f"compile {schedule} with stock Halide"):
            output = case.build(problem, schedule)
            compile_shared(output, path)
    except UserError as error:
        say(f"  no baseline: {error}")
        return []
    return [stock_contender(path, problem, argument_order(output)[:-1], schedule)]


def tune(case: Case, problem: Problem, **options: Any) -> Tuning:
    """Compile the configurations of a case, and time them unless ``build_only``: the options of
    ``halide_bridge.tune``.
    """
    import halide_bridge as hb

    assert case.tuning is not None
    schedule = partial(case.tuning.schedule, problem)
    return hb.tune(schedule, case.tuning.space(problem), name=problem.program, **options)
