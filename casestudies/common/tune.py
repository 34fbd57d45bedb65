"""Tuning of the case studies: the ``tune`` command.

A case that can be tuned names its space and the schedule of a configuration (``Case.tuning``).
Arrays are made and compared where the GPU is.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from casestudies.common.case import Arrays, Case, Problem
from casestudies.common.data import case_inputs, decoded
from casestudies.common.options import problem_of
from casestudies.common.registry import all_cases, find_case
from selector.diagnostics import UserError
from selector.tuning import Tuning, tune_saved


def tune_case(options: argparse.Namespace) -> int:
    """Build, time what was built, or both; prints the table. Exit code 1 if nothing is right."""
    case = find_case(options.name)
    problem = problem_of(case, options, options.size)
    if case.tuning is None:
        names = ", ".join(c.name for c in all_cases() if c.tuning is not None)
        raise UserError(f"{case.name} has no space to tune over", hint=f"those that do: {names}")
    limits: dict[str, Any] = {
        name: getattr(options, name) for name in ("seconds", "most", "limit", "retry")
    }
    if options.artifacts is not None and not options.build:
        result = tune_saved(options.artifacts, **timing_of(case, problem, options.seed), **limits)
    else:
        result = _tune_here(case, problem, options, limits)
    if options.out is not None:
        result.save(options.out)
    print(json.dumps(result.as_dict(), indent=1) if options.json else report(result))
    return 0 if options.build or result.ranked else 1


def _tune_here(
    case: Case, problem: Problem, options: argparse.Namespace, limits: dict[str, Any]
) -> Tuning:
    from casestudies.measuring.live import tune

    if options.build and options.artifacts is None:
        raise UserError("--build needs --artifacts, the folder for the kernels")
    timing = {} if options.build else timing_of(case, problem, options.seed)
    return tune(
        case, problem, target=options.target or "cuda", build_only=options.build,
        folder=options.artifacts, **timing, **limits,
    )  # fmt: skip


def report(result: Tuning) -> str:
    """The table, and where the first configuration stands."""
    text = result.table(12)
    first = result.trials[0]
    if first in result.ranked:
        place, best = result.ranked.index(first) + 1, result.ranked[0]
        gain = 100 * (first.microseconds / best.microseconds - 1)
        text += f"\nthe first one: {first.microseconds:.2f} us, place {place}; {gain:.1f} % to win"
    return text


def timing_of(case: Case, problem: Problem, seed: int) -> dict[str, Any]:
    """What kernels are called with and compared to, as functions that a worker can be sent."""
    return {
        "arguments": partial(arguments, case.name, problem, seed),
        "reference": partial(reference, case.name, problem),
        "tolerance": case.tolerance[problem.output.element],
    }


def arguments(name: str, problem: Problem, seed: int) -> Arrays:
    """Random inputs on the GPU."""
    import cupy

    return case_inputs(find_case(name), problem, seed, cupy)


def reference(name: str, problem: Problem, inputs: Mapping[str, Any]) -> Any:
    """The result in float64, computed on the GPU."""
    import cupy

    return find_case(name).reference(problem, decoded(problem, inputs, cupy), cupy)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``tune`` besides those that describe the problem."""
    parser.add_argument("--build", action="store_true", help="only compile, into --artifacts")
    parser.add_argument("--artifacts", type=Path, help="folder of kernels that --build left")
    parser.add_argument("--out", type=Path, help="file for the results as data")
    parser.add_argument("--seconds", type=float, help="begin no configuration after that time")
    parser.add_argument("--most", type=int, help="try only the first so many")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each step")
    parser.add_argument("--retry", action="store_true", help="try again what failed before")
