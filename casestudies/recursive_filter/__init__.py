"""Second-order recursive filter of sound (paper section V-D)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from casestudies.common.case import Arrays, Case, Option, Sounds, check_schedule, given, size_of
from casestudies.recursive_filter.bench import PEERS
from casestudies.recursive_filter.problem import BENCHMARK, SMALL, Problem
from casestudies.recursive_filter.reference import reference


def defined(problem: Problem) -> Any:
    """The pipeline without a schedule."""
    from casestudies.recursive_filter.algorithm import recursion

    return recursion(problem.a, problem.b)


def build(problem: Problem, schedule: str) -> Any:
    """The pipeline's output, scheduled as ``cuda`` or ``plain`` (Halide's default, for the CPU)."""
    from casestudies.recursive_filter import schedule as schedules

    check_schedule(schedule, "cuda", "plain")
    return schedules.cuda(problem) if schedule == "cuda" else defined(problem)


def from_options(options: Mapping[str, Any]) -> Problem:
    """``size``, (samples, channels), and the coefficients."""
    samples, channels = (*size_of(options, "SAMPLES or SAMPLESxCHANNELS", (1, 2), (2**21,)), 2)[:2]
    return Problem(samples, channels, **given(options, "a", "b"))


def sound_inputs(problem: Problem, sound: np.ndarray) -> Arrays:
    """A sound of shape (samples, channels) as channels of f16."""
    samples = np.ascontiguousarray(sound.T, dtype=np.float16)
    return {"X": samples}


def output_sound(problem: Problem, output: np.ndarray) -> np.ndarray:
    """The output as a sound, scaled down as a whole to a peak of 1 if it is louder than that."""
    sound = output.T.astype(np.float32)
    return sound / max(1.0, float(np.abs(sound).max()))


CASE = Case(
    name="recursive_filter",
    summary="second-order recursive filter of sound, f16 -> f16",
    build=build,
    reference=reference,
    benchmark=BENCHMARK,
    small=SMALL,
    options=from_options,
    peers=PEERS,
    compared=BENCHMARK,
    plain=defined,
    arguments=(
        Option("a", "factor of the last output (1.8)", float),
        Option("b", "factor of the output before (-0.9)", float),
    ),
    sounds=Sounds(sound_inputs, output_sound),
    interpreted=(65536, 2),
)
