"""Second-order recursive filter of sound (paper section V-D)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from casestudies.common.case import Arrays, Case, Option, Sounds, given, positive, size_of
from casestudies.common.data import random_inputs
from casestudies.recursive_filter.bench import PEERS
from casestudies.recursive_filter.design import lookahead_tables, tables
from casestudies.recursive_filter.problem import BENCHMARK, METHODS, SMALL, Problem
from casestudies.recursive_filter.reference import reference


def build(problem: Problem, schedule: str) -> Any:
    """The pipeline's output, scheduled as ``tensor``, ``cuda`` or ``plain`` (Halide's default, for
    the CPU).
    """
    if problem.method == "lookahead":
        from casestudies.recursive_filter import lookahead_schedule

        return lookahead_schedule.scheduled(problem, schedule)
    from casestudies.recursive_filter import schedule as schedules

    return schedules.scheduled(problem, schedule)


def designed(problem: Problem) -> Arrays:
    """The tables of the problem's filter."""
    make = lookahead_tables if problem.method == "lookahead" else tables
    return dict(make(problem.a, problem.b, problem.sizes))


def inputs_of(problem: Problem, seed: int, xp: Any) -> Arrays:
    """Normally distributed samples and the problem's filter."""
    numbers = {name: xp.asarray(table) for name, table in designed(problem).items()}
    return {**random_inputs(problem, seed, xp), **numbers}


def from_options(options: Mapping[str, Any]) -> Problem:
    """``size``, (samples, channels), the ``method`` and the coefficients."""
    samples, channels = (*size_of(options, "SAMPLES or SAMPLESxCHANNELS", (1, 2), (2**21,)), 2)[:2]
    return Problem(samples, channels, **given(options, "method", "a", "b", "block"))


def sound_inputs(problem: Problem, sound: np.ndarray) -> Arrays:
    """A sound of shape (samples, channels) as channels of f16."""
    samples = np.ascontiguousarray(sound.T, dtype=np.float16)
    return {"X": samples, **designed(problem)}


def output_sound(problem: Problem, output: np.ndarray) -> np.ndarray:
    """The output as a sound, scaled down as a whole to a peak of 1 if it is louder than that."""
    sound = output.T.astype(np.float32)
    return sound / max(1.0, float(np.abs(sound).max()))


CASE = Case(
    name="recursive_filter",
    summary="second-order recursive filter of sound, tiled scan with fix-up, f16 -> f16",
    build=build,
    reference=reference,
    benchmark=BENCHMARK,
    small=SMALL,
    options=from_options,
    peers=PEERS,
    compared=BENCHMARK,
    arguments=(
        Option("method", "how the recursion is made parallel", choices=tuple(METHODS)),
        Option("a", "factor of the last output (1.8)", float),
        Option("b", "factor of the output before (-0.9)", float),
        Option("block", "samples that are filtered together: 16, 32 or 64", positive),
    ),
    sounds=Sounds(sound_inputs, output_sound),
    random=inputs_of,
    interpreted=(65536, 2),
)
