"""What jobs of ``tests/gpu/run_plain.py`` compute in torch is what their pipelines compute, at the
pipelines' small sizes. There some compute a part of what torch does.
"""

from __future__ import annotations

import ctypes
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_plain_pipelines import PIPELINES, by_halide

from halide_bridge.names import plain

torch = pytest.importorskip("torch")
sys.path.append(str(Path(__file__).parents[1] / "gpu"))

from plain_all_jobs import JOBS  # noqa: E402

pytestmark = pytest.mark.verified
BY_PIPELINE = {job.pipeline: job for job in JOBS}


def as_torch(value: Any) -> Any:
    """Floats as float64: the truth of a measurement."""
    if not isinstance(value, np.ndarray):
        return value
    found = torch.from_numpy(value.copy())
    return found.double() if found.is_floating_point() else found


@pytest.mark.parametrize("name", BY_PIPELINE)
def test_torch_computes_what_the_pipeline_does(name: str) -> None:
    job, case = BY_PIPELINE[name], PIPELINES[name]()
    given = {p.name(): v for p, v in case.arguments}
    order = [*job.inputs, *job.numbers]
    assert sorted(order) == sorted(given)
    found = job.call(*(as_torch(given[n]) for n in order))
    for f, w in zip(found if isinstance(found, tuple) else (found,), by_halide(case), strict=True):
        own = f.double().numpy()[tuple(slice(n) for n in w.shape)]
        w = w[tuple(slice(n) for n in own.shape)]
        assert own.shape == w.shape
        if w.dtype.kind == "f":
            off = np.linalg.norm(own - w.astype(np.float64)) / np.linalg.norm(own)
            assert off <= max(job.error, case.tolerance)
        else:
            off = np.abs(own - w.astype(np.float64))
            assert np.count_nonzero(off) <= job.astray * off.size or off.max() <= job.error


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.slug)
def test_a_job_names_the_arrays_of_its_pipeline(job: Any) -> None:
    case = PIPELINES[job.pipeline]()
    kinds = {p.name(): v.dtype for p, v in case.arguments if isinstance(v, np.ndarray)}
    own = {n: torch.empty(0, dtype=kind).numpy().dtype for n, (_, kind) in job.inputs.items()}
    assert own == kinds
    outputs = case.outputs if isinstance(case.outputs, list) else [case.outputs]
    assert [*job.outputs] == ([plain(f.name()) for f in outputs] if len(outputs) > 1 else [""])


def test_jobs_have_names_of_their_own() -> None:
    assert len({job.slug for job in JOBS}) == len(JOBS) >= 40


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_halide_s_own_search_is_carried_as_a_library(tmp_path: Path) -> None:
    import build_halide
    from halide_peer import Buffer, HalidePipeline

    build_halide.main([str(tmp_path), "--match", "^brighten, RGB planes$"])
    (job,) = (j for j in JOBS if j.name == "brighten, RGB planes")
    found = HalidePipeline(tmp_path / f"{job.slug}.0.so", job)
    assert found.names == ["picture", "gain"]
    assert ctypes.sizeof(Buffer) == 56  # halide_buffer_t on 64 bits
    for name in ("pipeline", "peer_stream", "halide_cuda_acquire_context"):
        assert hasattr(found.library, name)
