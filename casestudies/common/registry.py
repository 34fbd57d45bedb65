"""The case studies by name."""

from __future__ import annotations

import importlib
from typing import Any

from casestudies.common.case import Case
from selector.diagnostics import UserError

NAMES = (
    "conv1d",
    "conv2d",
    "gemm",
    "conv_layer",
    "attention",
    "downsample",
    "upsample",
    "resample",
    "dct_denoise",
    "recursive_filter",
    "amx_matmul",
)
JOBS = (
    "attention", "bank", "block_mask", "dct", "depthwise", "filter", "layer", "lengths", "resize",
    "rows", "scan",
)  # fmt: skip
PLAIN = tuple(f"plain.{name}" for name in JOBS)  # of the public sweep alone


def find_case(name: str) -> Case:
    """The case of that name; ``UserError`` lists the names there are."""
    if name not in (*NAMES, *PLAIN):
        raise UserError(f"no case study {name!r}", hint=f"case studies: {', '.join(NAMES)}")
    case: Case = importlib.import_module(f"casestudies.{name}").CASE
    return case


def problem_type(name: str) -> Any:
    """The class of a case study's problems."""
    module = f"casestudies.{name}" if name in PLAIN else f"casestudies.{name}.problem"
    return importlib.import_module(module).Problem


def all_cases() -> tuple[Case, ...]:
    return tuple(find_case(name) for name in NAMES)


def gpu_cases() -> tuple[Case, ...]:
    """The cases that have a schedule for a GPU."""
    return tuple(case for case in all_cases() if gpu_schedules(case))


def is_stock(schedule: str) -> bool:
    """Whether stock Halide compiles a schedule of that name, not the selector."""
    return schedule == "plain" or schedule.startswith("cuda")


def is_amx(schedule: str) -> bool:
    """Whether a schedule is one for tile registers of a CPU."""
    return schedule.startswith("amx")


def gpu_schedules(case: Case) -> tuple[str, ...]:
    """The schedules of a case that run on a GPU, ours and stock Halide's."""
    return tuple(s for s in case.schedules if not is_amx(s))
