"""Pipelines without a schedule: all compile, and compute what Halide computes on a CPU."""

from __future__ import annotations

from functools import cache
from typing import Any

import halide as hl
import numpy as np
import pytest
from clock import assert_quick
from plain_chains import CHAINS
from plain_models import MODELS
from plain_others import OTHER_USERS
from plain_pipelines import PIPELINES as OTHERS
from plain_pipelines import Plain
from plain_signals import SIGNALS
from plain_windows import WINDOWS, gathering
from verified import MACHINE_CODE, Verified

import halide_bridge as hb
from selector.runtime import nvrtc

PIPELINES = OTHERS | WINDOWS | CHAINS | MODELS | OTHER_USERS | SIGNALS
BATCHES = 16  # texts that NVRTC gets in one piece: all of a piece have the time of one kernel
ENTRY = 'extern "C" __global__'

pytestmark = pytest.mark.verified


def by_halide(case: Plain) -> list[Any]:
    """The outputs by Halide's own compiler, on the CPU."""
    outputs = case.outputs if isinstance(case.outputs, list) else [case.outputs]
    for func in hb.funcs(outputs).values():
        func.compute_root()
    for parameter, value in case.arguments:
        parameter.set(hl.Buffer(value) if isinstance(value, np.ndarray) else value)
    shapes = [*case.sizes.values()] if isinstance(case.sizes, dict) else [case.sizes]
    found = [hl.Buffer(f.type(), [*s][::-1]) for f, s in zip(outputs, shapes, strict=True)]
    hl.Pipeline(outputs).realize(found)
    return [np.array(b) for b in found]


def ours(kernel: Any, case: Plain) -> list[Any]:
    named = {p.name(): value for p, value in case.arguments}
    result = kernel.interpret(sizes=case.sizes, **named)
    return list(result.values()) if isinstance(result, dict) else [result]


def close(found: Any, wanted: Any, tolerance: float) -> bool:
    if wanted.dtype.kind in "iu":
        return bool(
            np.abs(found.astype(np.int64) - wanted.astype(np.int64)).max() <= (tolerance > 1)
        )
    wanted = wanted.astype(np.float64)
    return bool(np.linalg.norm(found - wanted) <= tolerance * np.linalg.norm(wanted))


@cache
def scheduled(name: str) -> tuple[Plain, hb.Schedule, Any]:
    case = PIPELINES[name]()
    schedule = hb.autoschedule(case.outputs, target="sm_90a")
    with gathering(name):
        return case, schedule, hb.compile(case.outputs, target="sm_90a", name=name)


@pytest.mark.parametrize("name", PIPELINES)
def test_a_plain_pipeline_computes_what_halide_does(name: str) -> None:
    case, schedule, kernel = scheduled(name)
    for f, w in zip(ours(kernel, case), by_halide(PIPELINES[name]()), strict=True):
        assert f.shape == w.shape
        assert close(f, w, case.tolerance), f"{schedule.report}\n{schedule.source}"


@pytest.mark.parametrize("name", PIPELINES)
def test_the_source_gives_the_same_program(name: str) -> None:
    _, schedule, kernel = scheduled(name)
    again = PIPELINES[name]().outputs
    exec(schedule.source, {"hb": hb, "hl": hl, "output": again})
    with gathering(name):
        assert hb.compile(again, target="sm_90a", name=name).source == kernel.source


@pytest.mark.nvrtc
@MACHINE_CODE
@pytest.mark.parametrize("batch", range(BATCHES))
def test_emitted_source_compiles(batch: int, verified: Verified) -> None:
    texts = (scheduled(name)[2].source for name in [*PIPELINES][batch::BATCHES])
    parts = (
        f"namespace n{i} {{\n{t.replace(ENTRY, '__global__')}\n}}" for i, t in enumerate(texts)
    )
    whole = "\n".join(parts)
    if not verified(whole, nvrtc.version()):
        assert nvrtc.compile_to_cubin(whole, "sm_90a")


@pytest.mark.parametrize("name", ["harris", "softmax", "pyramid"])
def test_the_same_pipeline_gets_the_same_schedule(name: str) -> None:
    again = hb.autoschedule(PIPELINES[name]().outputs, target="sm_90a")
    assert again == scheduled(name)[1]


def test_ten_funcs_are_scheduled_at_once() -> None:
    cases = iter([PIPELINES["red_black_relaxation"]() for _ in range(5)])
    assert_quick(lambda: hb.autoschedule(next(cases).outputs, target="sm_90a"), 0.2, 5)
