"""Every program of the case studies and of the corpus of ``tests/gpu``, for each of its targets.

A program is compiled once for all sizes; the case studies' are named after the problem's program
and the schedule (``conv1d-k64``, ``gemm-f16-f32-mma``), the corpus's ``corpus/NAME``.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import halide_bridge as hb
import selector
from casestudies.common.case import Case
from casestudies.common.registry import all_cases, is_amx, is_stock
from selector.diagnostics import PerformanceWarning

GPU_TARGETS = ("sm_80", "sm_90a")


@dataclass(frozen=True, slots=True)
class Program:
    """``lower`` gives its module, ``instructions`` are the only ones it may have. One of a case
    study has its ``case``, its ``schedule``, and the ``problems`` that it solves at their sizes.
    """

    name: str
    target: str
    lower: Callable[[], Any]
    instructions: tuple[str, ...] | None = None
    case: Case | None = None
    schedule: str = ""
    problems: tuple[Any, ...] = ()

    def compile(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PerformanceWarning)
            return selector.compile(
                self.lower(), target=self.target, cache=False, instructions=self.instructions
            )


def targets_of(schedule: str) -> tuple[str, ...]:
    """Of a case study: Blackwell in the one schedule that it has there."""
    if is_amx(schedule):
        return ("amx",)
    return (*GPU_TARGETS, "sm_120") if schedule == "tensor" else GPU_TARGETS


def programs_of(case: Case) -> Iterator[Program]:
    """The programs of a case study, in every schedule but stock Halide's."""
    problems: dict[str, list[Any]] = {}
    for problem in (*case.benchmark, *case.small):  # sizes choose blocks: those of the table
        problems.setdefault(problem.program, []).append(problem)
    for name, found in problems.items():
        for schedule in (s for s in case.schedules if not is_stock(s)):
            for target in targets_of(schedule):

                def lower(problem: Any = found[0], s: str = schedule, t: str = target) -> Any:
                    return hb.lower(case.scheduled(problem, s, t), target=t)

                label = name if schedule == "tensor" else f"{name}-{schedule}"
                yield Program(
                    label, target, lower, case=case, schedule=schedule, problems=tuple(found)
                )


def corpus_programs() -> Iterator[Program]:
    sys.path.append(str(Path(__file__).resolve().parent / "gpu"))
    from corpus import CORPUS  # who times the case studies of an older checkout has not its own

    for name, case in CORPUS.items():
        for target in GPU_TARGETS if case.target is None else (case.target,):

            def lower(build: Any = case.build, t: str = target, name: str = name) -> Any:
                return hb.lower(build(), target=t, name=name)

            yield Program(f"corpus/{name}", target, lower, case.only)


def programs() -> Iterator[Program]:
    for case in all_cases():
        yield from programs_of(case)
    yield from corpus_programs()
