"""Calls on a stream that is being captured, on a driver that notes what it is told."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda, Tensor
from known_calls import conv_arrays, executable
from runtime_plans import conv_plan, scale_plan

from selector.diagnostics import ArgumentError, TargetError
from selector.runtime import capture, libcuda

pytestmark = pytest.mark.gcc


@pytest.mark.parametrize("native", [True, False])
def test_a_captured_call_has_buffers_as_long_as_the_graph(cuda: FakeCuda, native: bool) -> None:
    plan = scale_plan()
    first, second = plan.launches
    run = executable(cuda, replace(plan, launches=(replace(first, once=True), second)), native)
    x, out = cuda.cupy.ndarray((100,)), cuda.cupy.ndarray((100,))
    for _ in range(2):
        run((x, 2.0), {}, out=out, stream=50)
    eager = cuda.taken()[0][8]
    cuda.capture(50)
    cuda.capture_modes.clear()
    made: list[weakref.ref[Any]] = []
    zeros = cuda.cupy.zeros

    def noted(*args: Any) -> Any:
        array = zeros(*args)
        made.append(weakref.ref(array))
        return array

    cuda.cupy.zeros = noted
    for _ in range(2):
        run((x, 2.0), {}, out=out, stream=50)
    cuda.capture(0)
    records = cuda.taken()
    assert [(r[0], r[4]) for r in records] == [("first", 60), ("second", 50), ("second", 50)]
    assert records[0][8] != eager
    assert len({r[7] for r in records[1:]}) == 1  # calls that follow each other share them
    assert cuda.capture_modes == [2]  # relaxed while it allocates, once
    assert cuda.number("fake_mode").value == 0
    capture.let_go()
    gc.collect()
    assert made[0]() is not None
    cuda.library.fake_destroy_graph()
    capture.let_go()
    gc.collect()
    assert made[0]() is None
    run((x, 2.0), {}, out=out, stream=50)
    assert [r[0] for r in cuda.taken()] == ["second"]


@pytest.mark.parametrize("stream", [None, 50])
def test_torch_keeps_what_is_made_for_its_graph(cuda: FakeCuda, stream: int | None) -> None:
    """On its current stream; another one that is captured may be somebody else's. Intermediate
    buffers are never torch's: graphs of torch's own may share its memory.
    """
    run = executable(cuda, scale_plan())
    x = Tensor((100,))
    cuda.torch_stream = 0 if stream else 50
    cuda.capture(50)
    run((x, 2.0), {}, stream=stream)
    assert {"torch", "cupy zeros"} <= {*cuda.allocations}
    assert "torch zeros" not in cuda.allocations
    assert [r[0] for r in cuda.taken()] == ["first", "second"]
    (owner,) = capture._held.values()
    found = gc.get_referents(owner, *gc.get_referents(owner))
    assert any(isinstance(o, Tensor) for o in found) == (stream is not None)
    cuda.library.fake_destroy_graph()


@pytest.mark.parametrize("native", [True, False])
def test_a_graph_holds_the_code_and_the_output_of_a_captured_call(
    cuda: FakeCuda, native: bool
) -> None:
    pixels, taps, out = conv_arrays(cuda)
    run = executable(cuda, conv_plan(), native)
    run((pixels, taps), {}, out=out, stream=50)
    cuda.capture(50)
    run((pixels, taps), {}, out=out, stream=50)
    with cuda.cupy.cuda.Stream.from_external(type("S", (), {"ptr": 50})):
        result = weakref.ref(run((pixels, taps), {}))
    cuda.capture(0)
    code = weakref.ref(next(iter(run._functions.values())))
    del run
    gc.collect()
    capture.let_go()
    assert code() is not None
    assert result() is not None
    cuda.library.fake_destroy_graph()
    capture.let_go()
    gc.collect()
    assert code() is None
    assert result() is None


@pytest.mark.parametrize("native", [True, False])
def test_the_default_stream_cannot_be_used_while_another_is_captured(
    cuda: FakeCuda, native: bool
) -> None:
    pixels, taps, out = conv_arrays(cuda)
    run = executable(cuda, conv_plan(), native)
    run((pixels, taps), {}, out=out)
    cuda.taken()
    cuda.capture(50)
    with pytest.raises(ArgumentError, match="default stream, and another stream is being captured"):
        run((pixels, taps), {}, out=out)
    assert cuda.taken() == []


@pytest.mark.parametrize("native", [True, False])
def test_arrays_of_the_host_cannot_be_captured(cuda: FakeCuda, native: bool) -> None:
    run = executable(cuda, scale_plan(), native)
    cuda.capture(50)
    with pytest.raises(ArgumentError, match="not on the GPU cannot be captured"):
        run((np.zeros(100, np.float32), 2.0), {}, stream=50)
    assert cuda.taken() == []


def test_a_driver_that_cannot_hold_says_so(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    run = executable(cuda, scale_plan())
    x, out = cuda.cupy.ndarray((100,)), cuda.cupy.ndarray((100,))
    cuda.capture(50)
    found = libcuda.driver_function
    monkeypatch.setattr(
        capture, "driver_function", lambda name: None if "Retain" in name else found(name)
    )
    with pytest.raises(TargetError, match="cannot be captured here") as caught:
        run((x, 2.0), {}, out=out, stream=50)
    assert "cuGraphRetainUserObject is not in this driver" in str(caught.value)
