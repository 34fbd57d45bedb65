"""Sums of products in other words are right as ``tests/gpu/sums.py`` schedules them, at ragged
sizes, and are what they are timed beside.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plain_pipelines import Plain
from plain_sums import SUMS
from test_plain_pipelines import by_halide

import halide_bridge as hb

sys.path.append(str(Path(__file__).parents[1] / "gpu"))

from sums import Job, jobs, scheduled

pytestmark = pytest.mark.verified
BY_NAME = {job.pipeline: job for job in jobs()}


def off(found: Any, wanted: Any) -> float:
    return float(
        np.linalg.norm(found - wanted.astype(float)) / np.linalg.norm(wanted.astype(float))
    )


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_is_right_on_tensor_units(name: str) -> None:
    job, case = BY_NAME[name], SUMS[name]()
    kernel = hb.compile(scheduled(job), target="sm_90a", cache=False)
    assert kernel.report.updates
    assert all(u.block is not None for u in kernel.report.updates)
    arrays = {p.name(): v for p, v in case.arguments}
    found = kernel.interpret(**arrays, sizes=case.sizes)
    (wanted,) = by_halide(case)
    assert off(found, wanted) <= max(job.error, case.tolerance)


@pytest.mark.parametrize("name", SUMS)
def test_it_is_what_it_is_timed_beside(name: str) -> None:
    torch = pytest.importorskip("torch")
    job, case = BY_NAME[name], SUMS[name]()
    assert {n: str(v.dtype) for n, v in _arrays(case).items()} == {
        n: kind for n, (kind, _) in job.inputs.items()
    }
    given = [torch.from_numpy(v.copy()) for v in _in_order(job, case)]
    truth = job.truth(*(v.double() if v.is_floating_point() else v for v in given))
    (wanted,) = by_halide(case)
    own = truth.numpy()[tuple(slice(n) for n in wanted.shape)]
    assert off(wanted[tuple(slice(n) for n in own.shape)], own) <= max(job.error, case.tolerance)


def _arrays(case: Plain) -> dict[str, Any]:
    return {p.name(): v for p, v in case.arguments}


def _in_order(job: Job, case: Plain) -> list[Any]:
    return [_arrays(case)[name] for name in job.inputs]
