"""Calls in CUDA graphs on a real GPU: our own, CuPy's and torch's."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from gpu_kernels import early_plan, kernel
from runtime_plans import scale_plan

from selector.diagnostics import ArgumentError

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("before", [True, False])
def test_a_call_is_captured_and_replayed(cupy: Any, before: bool) -> None:
    """Whether or not there was a call before, and although the kernel is gone and other calls
    allocate: the intermediate array is the graph's.
    """
    run, stream = kernel(scale_plan()), cupy.cuda.Stream(non_blocking=True)
    x, out = cupy.ones(1000, cupy.float32), cupy.empty(1000, cupy.float32)
    if before:
        run(x, 3.0, out=out, stream=stream)
    with stream:
        stream.begin_capture()
        run(x, 3.0, out=out, stream=stream)
        graph = stream.end_capture()
    del run
    others = [cupy.full(1000, 11, cupy.float32) for _ in range(20)]
    for value in (5, 7):
        x.fill(value)
        out.fill(cupy.nan)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        assert (out == 3 * value).all()
    assert all((other == 11).all() for other in others)


def test_a_captured_call_may_make_its_output(cupy: Any) -> None:
    run, stream = kernel(scale_plan()), cupy.cuda.Stream(non_blocking=True)
    x = cupy.ones(1000, cupy.float32)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        result = run(x, 3.0)
        graph = stream.end_capture()
        graph.launch(stream)
    stream.synchronize()
    assert (result == 3).all()


def test_what_a_graph_held_is_let_go(cupy: Any) -> None:
    from selector.runtime import capture

    run, stream = kernel(scale_plan()), cupy.cuda.Stream(non_blocking=True)
    x, out = cupy.ones(1 << 20, cupy.float32), cupy.empty(1 << 20, cupy.float32)
    capture.let_go()
    begin = len(capture._held)
    with stream:
        stream.begin_capture()
        run(x, 3.0, out=out, stream=stream)
        graph = stream.end_capture()
    graph.launch(stream)
    stream.synchronize()
    capture.let_go()
    assert len(capture._held) == begin + 1
    del graph
    for _ in range(50):  # the driver tells in its own time
        time.sleep(0.02)
        capture.let_go()
    assert len(capture._held) == begin


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("given", [True, False])
def test_several_launches_in_a_graph_of_torch(torch: Any, before: bool, given: bool) -> None:
    run = kernel(scale_plan())
    x, y = torch.ones(1000, device="cuda"), torch.empty(1000, device="cuda")
    if before:
        run(x, 3.0, out=y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first = run(x, 3.0, out=y) if given else run(x, 3.0)
        second = run(first, 0.5)
        third = second + 1
    del run
    for value in (5, 7):
        x.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert (first == 3 * value).all()
        assert (second == 1.5 * value).all()
        assert (third == 1.5 * value + 1).all()


def test_arrays_of_cupy_in_a_graph_of_torch(cupy: Any, torch: Any) -> None:
    run = kernel(scale_plan())
    x, out = cupy.ones(1000, cupy.float32), cupy.empty(1000, cupy.float32)
    graph = torch.cuda.CUDAGraph()
    cupy.cuda.Device().synchronize()
    with torch.cuda.graph(graph):
        run(x, 3.0, out=out, stream=torch.cuda.current_stream())
    graph.replay()
    torch.cuda.synchronize()
    assert (out == 3).all()


def test_the_default_stream_waits_for_one_that_is_captured(cupy: Any) -> None:
    """That is an error; the capture goes on."""
    run, stream = kernel(scale_plan()), cupy.cuda.Stream()
    x, out = cupy.ones(1000, cupy.float32), cupy.empty(1000, cupy.float32)
    run(x, 3.0, out=out)
    cupy.cuda.Device().synchronize()
    stream.begin_capture()
    with pytest.raises(ArgumentError, match="another stream is being captured"):
        run(x, 5.0, out=out)
    run(x, 7.0, out=out, stream=stream)
    graph = stream.end_capture()
    graph.launch(stream)
    stream.synchronize()
    assert (out == 7).all()


def test_an_early_launch_in_a_graph_of_torch(torch: Any) -> None:
    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("griddepcontrol needs compute capability 9.0")
    run = kernel(early_plan())
    x, y = torch.randn(1000, device="cuda"), torch.empty(1000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(x, 3.0, out=y)
    for _ in range(20):
        x.copy_(torch.randn(1000, device="cuda"))
        y.fill_(float("nan"))
        graph.replay()
        assert (y == 3 * x).all()


def test_a_graph_is_replayed_on_any_stream(cupy: Any) -> None:
    x, out = cupy.ones(1000, cupy.float32), cupy.empty(1000, cupy.float32)
    graph = kernel(scale_plan()).graph(x, 3.0, out=out)
    streams = (cupy.cuda.Stream(), cupy.cuda.Stream(non_blocking=True), None)
    for value, stream in zip((5, 7, 9), streams, strict=True):
        x.fill(value)
        out.fill(cupy.nan)
        cupy.cuda.Device().synchronize()
        assert graph.launch(stream) is out
        cupy.cuda.Device().synchronize()
        assert (out == 3 * value).all()


def test_graphs_and_calls_on_two_streams_do_not_disturb_each_other(cupy: Any) -> None:
    """Each has intermediate arrays of its own: large ones, so that the launches overlap."""
    run, count = kernel(scale_plan()), 1 << 24
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    inputs = [cupy.full(count, value, cupy.float32) for value in (1, 2, 3, 4)]
    outs = [cupy.empty(count, cupy.float32) for _ in inputs]
    graphs = [run.graph(x, 2.0, out=out) for x, out in zip(inputs[:2], outs[:2], strict=True)]
    cupy.cuda.Device().synchronize()
    for _ in range(5):
        for graph, stream in zip(graphs, streams, strict=True):
            graph.launch(stream)
        for x, out, stream in zip(inputs[2:], outs[2:], streams, strict=True):
            run(x, 2.0, out=out, stream=stream)
    cupy.cuda.Device().synchronize()
    for x, out in zip(inputs, outs, strict=True):
        assert (out == 2 * x).all()


def test_a_graph_takes_torch_s_stream_and_refuses_host_arrays(cupy: Any, torch: Any) -> None:
    run = kernel(scale_plan())
    x = torch.ones(1000, device="cuda")
    graph = run.graph(x, 3.0)
    with torch.cuda.stream(torch.cuda.Stream()):
        result = graph()
        torch.cuda.synchronize()
    assert isinstance(result, torch.Tensor)
    assert (result == 3).all()
    with pytest.raises(ArgumentError, match="on the GPU"):
        run.graph(np.ones(1000, np.float32), 3.0)
