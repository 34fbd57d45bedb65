"""Calls that are replayed, on a device that records."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from runtime_plans import DeviceArray, Recorder, conv, conv_plan, scale_plan

from selector.api import Kernel
from selector.diagnostics import ArgumentError, TargetError
from selector.pipeline import Clock
from selector.runtime.artifact import Artifact
from selector.runtime.execute import Executable
from selector.runtime.plan import Plan


def first(memory: dict[int, Any], x: int, middle: int, factor: np.float32, n: int) -> None:
    memory[middle].view(np.float32)[:n] = factor * memory[x][:n]


def second(memory: dict[int, Any], middle: int, out: int, n: int) -> None:
    memory[out][:n] = memory[middle].view(np.float32)[:n]


@pytest.fixture
def recorder() -> Recorder:
    recorder = Recorder()
    recorder.effects |= {"first": first, "second": second}
    return recorder


def executable(recorder: Recorder, plan: Plan | None = None) -> Executable:
    return Executable(plan or scale_plan(), lambda: b"cubin", recorder)


def arrays(size: int = 100) -> tuple[DeviceArray, DeviceArray]:
    x = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    return DeviceArray(x), DeviceArray(np.full(size, np.nan, np.float32))


def test_nothing_runs_before_the_first_replay(recorder: Recorder) -> None:
    x, out = arrays()
    graph = executable(recorder).graph((x, 2.0), {}, out=out)
    assert recorder.launches == []
    assert np.isnan(out.values).all()
    assert graph() is out
    np.testing.assert_array_equal(out.values, 2 * x.values)


def test_replays_see_new_values_and_neither_load_nor_allocate(recorder: Recorder) -> None:
    x, out = arrays()
    graph = executable(recorder).graph((x,), {"factor": 3.0}, out=out)
    loads, allocations = recorder.loads, recorder.allocations
    for step in range(3):
        x.values[:] = step
        graph.launch(7)
        assert (out.values == 3 * step).all()
    assert (recorder.loads, recorder.allocations) == (loads, allocations) == (1, 1)
    assert [(entry, stream) for entry, *_, stream in recorder.launches] == [
        ("first", 7), ("second", 7)
    ] * 3  # fmt: skip


def test_output_is_made_and_kept_where_none_is_given(recorder: Recorder) -> None:
    x, _ = arrays()
    graph = executable(recorder).graph((x, 2.0), {})
    assert graph() is graph.output
    np.testing.assert_array_equal(graph.output.values, 2 * x.values)


def test_intermediates_are_the_graph_s_own(recorder: Recorder) -> None:
    """Neither a call on a stream nor another graph uses them."""
    x, out = arrays()
    run = executable(recorder)
    graphs = [run.graph((x, 2.0), {}, out=out) for _ in range(2)]
    for graph in graphs:
        graph.launch(1)
    run((x, 2.0), {}, out=out, stream=1)
    middles = [args[1] for entry, _, _, args, *_ in recorder.launches if entry == "first"]
    assert len(set(middles)) == 3


def test_what_follows_from_the_sizes_is_not_replayed(recorder: Recorder) -> None:
    plan = scale_plan()
    one, two = plan.launches
    x, out = arrays()
    run = executable(recorder, replace(plan, launches=(replace(one, once=True), two)))
    graph = run.graph((x, 2.0), {}, out=out)
    assert [entry for entry, *_ in recorder.launches] == ["first"]
    for _ in range(2):
        graph()
    assert [entry for entry, *_ in recorder.launches] == ["first", "second", "second"]
    np.testing.assert_array_equal(out.values, 2 * x.values)


def test_arrays_stay_referenced(recorder: Recorder) -> None:
    x, out = arrays()
    run = executable(recorder)
    graph = run.graph((x, 2.0), {}, out=out)
    seen = weakref.ref(x), weakref.ref(out), weakref.ref(run)
    del x, out, run
    gc.collect()
    assert all(reference() is not None for reference in seen)
    graph()
    assert not np.isnan(graph.output.values).any()
    del graph
    gc.collect()
    assert all(reference() is None for reference in seen)


def test_a_single_kernel_is_a_graph_too() -> None:
    recorder = Recorder()
    recorder.effects["conv_kernel"] = lambda memory, i, k, out, *_: memory[out].__setitem__(
        ..., conv(memory[i], memory[k])
    )
    image = np.random.default_rng(0).standard_normal((5, 200)).astype(np.float16)
    graph = executable(recorder, conv_plan()).graph(
        (DeviceArray(image),), {"K": DeviceArray(image[0, :9].copy())}
    )
    np.testing.assert_allclose(graph().values, conv(image, image[0, :9]), rtol=1e-6)


def test_host_arrays_are_refused(recorder: Recorder) -> None:
    x, out = arrays()
    run = executable(recorder)
    with pytest.raises(ArgumentError, match="input: a graph works on arrays that are on the GPU"):
        run.graph((x.values, 2.0), {}, out=out)
    with pytest.raises(ArgumentError, match="output: a graph works on arrays"):
        run.graph((x, 2.0), {}, out=out.values)


def test_arrays_that_do_not_fit_are_refused_before_anything_is_recorded(recorder: Recorder) -> None:
    x, out = arrays()
    run = executable(recorder)
    with pytest.raises(ArgumentError, match="missing: factor"):
        run.graph((x,), {}, out=out)
    with pytest.raises(ArgumentError, match="shares memory"):
        run.graph((x, 2.0), {}, out=x)
    with pytest.raises(ArgumentError, match="input: axis 0 needs 101 elements"):
        run.graph((x, 2.0), {}, out=DeviceArray(np.zeros(101, np.float32)))
    assert recorder.launches == []


def kernel(target: str) -> Kernel:
    report: dict[str, Any] = {"statements": [], "seconds": {}}
    return Kernel(Artifact(scale_plan(target=target), "", "", report, {}), Clock(), None)


def test_a_kernel_for_the_cpu_has_no_graph() -> None:
    with pytest.raises(TargetError, match="compiled for amx, which has no CUDA graphs"):
        kernel("amx").graph(np.zeros(3, np.float32), 2.0)


def test_without_a_gpu_there_is_no_graph() -> None:
    try:
        from selector.runtime.cuda import driver

        driver()
    except TargetError:
        with pytest.raises(TargetError, match="CUDA"):
            kernel("sm_90a").graph(np.zeros(3, np.float32), 2.0)
    else:
        pytest.skip("there is a GPU")
