"""Tensor maps as kernel arguments: made from the arrays of a call, once for each address."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from runtime_plans import DeviceArray, Recorder, conv_plan

from selector.ir.nodes import Binary, BinaryOp, Var
from selector.ir.types import FLOAT16, FLOAT32
from selector.runtime import tensor_map
from selector.runtime.execute import Executable
from selector.runtime.plan import BufferArgument, MapArgument, MapsReady, Plan
from selector.runtime.plan_json import plan_from_json, plan_to_json
from selector.runtime.tensor_map import TensorMap


def mapped_plan() -> Plan:
    """A kernel that takes its image by a map of at most as many rows as the output has columns."""
    rows = Binary(BinaryOp.MIN, Var("I.extent.1"), Var("output.extent.0"))
    image = MapArgument("I", FLOAT16, (Var("I.extent.0"), rows), (Var("I.stride.1"),), (64, 8))
    plan = conv_plan()
    (launch,) = plan.launches
    arguments = (image, BufferArgument("K"), BufferArgument("output"), MapsReady())
    return replace(plan, launches=(replace(launch, arguments=arguments),))


def aligned(height: int, width: int, offset: int = 0) -> DeviceArray:
    """An array ``offset`` elements past an address that is a multiple of 16 bytes."""
    room = np.zeros(height * width + 64, np.float16)
    first = -(room.__array_interface__["data"][0] // 2) % 8 + offset
    return DeviceArray(room[first : first + height * width].reshape(height, width))


def image(height: int, width: int) -> DeviceArray:
    """Of any width, in rows of whole 16 bytes."""
    return DeviceArray(aligned(height, 256).values[:, :width])


def run(recorder: Recorder, *images: DeviceArray) -> list[tuple[Any, ...]]:
    executable = Executable(mapped_plan(), lambda: b"cubin", recorder)
    taps = DeviceArray(np.zeros(9, np.float16))
    for image in images:
        executable((image, taps), {})
    return [args for _, _, _, args, _, _ in recorder.launches]


def test_a_map_holds_address_sizes_and_strides_of_the_array() -> None:
    recorder, image = Recorder(), aligned(300, 200)
    ((made, _, _, ready),) = run(recorder, image)
    shape = TensorMap(FLOAT16, (200, 192), (400,), (64, 8))
    assert made == ("map", shape, recorder.pointer(image))
    assert ready == 1
    assert type(ready) is np.int32


def test_the_driver_is_called_as_its_manual_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuTensorMapEncodeTiled: the map, type and rank, the address; extents and strides in 64 bits,
    box and steps in 32; four choices.
    """
    function = SimpleNamespace()
    monkeypatch.setattr(tensor_map, "driver_function", lambda name: function)
    tensor_map._encoder.cache_clear()
    assert tensor_map._encoder() is function
    tensor_map._encoder.cache_clear()
    wide, narrow = ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint32)
    first = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p]
    assert function.argtypes == [*first, wide, wide, narrow, narrow, *[ctypes.c_int] * 4]
    assert function.restype is ctypes.c_int


def test_a_map_is_made_once_for_each_address() -> None:
    recorder, first, second = Recorder(), aligned(5, 200), aligned(5, 200)
    calls = run(recorder, first, second, first, second)
    assert [args[0][2] for args in calls] == 2 * [recorder.pointer(a) for a in (first, second)]
    assert len(recorder.maps) == 2


@pytest.mark.parametrize(("width", "offset"), [(200, 1), (201, 0)])
def test_without_a_map_the_kernel_is_told_so(width: int, offset: int) -> None:
    recorder = Recorder()
    aligned_first, other = aligned(5, 200), aligned(5, width, offset)
    (_, (nothing, _, _, ready)) = run(recorder, aligned_first, other)
    assert ready == 0
    assert nothing.nbytes == 128
    assert nothing.tobytes() == bytes(128)


@pytest.mark.parametrize(
    "change",
    [
        {"extents": (0, 8)},
        {"strides": (0,)},
        {"strides": (-128,)},
        {"strides": (120,)},
        {"strides": (1 << 40,)},
        {"box": (64, 257)},
    ],
)
def test_what_the_copy_engine_cannot_read(change: dict[str, Any]) -> None:
    shape = TensorMap(FLOAT16, (64, 8), (128,), (64, 8))
    assert shape.possible(256)
    assert not shape.possible(264)
    assert not replace(shape, **change).possible(256)
    assert replace(shape, **change).encode(256) is None


def test_a_box_of_every_second_element_reaches_twice_as_far() -> None:
    """Box and steps as the driver wants them, which counts what lies between."""
    shape = TensorMap(FLOAT16, (64, 90, 8), (128, 11520), (64, 32, 4), steps=(1, 2, 1))
    assert shape.described()[4:6] == ((64, 64, 4), (1, 2, 1))
    assert replace(shape, steps=()).described()[4:6] == ((64, 32, 4), (1, 1, 1))
    assert shape.promotion == replace(shape, steps=()).promotion
    assert replace(shape, box=(64, 128, 4)).possible(0)
    assert not replace(shape, box=(64, 129, 4)).possible(0)


def test_a_kernel_is_told_of_each_kind_of_map() -> None:
    """What it reads may have maps although what it stores has none."""
    plan = mapped_plan()
    (launch,) = plan.launches
    rows = (Var("output.extent.0"), Var("output.extent.1"))
    stored = MapArgument("output", FLOAT16, rows, (Var("output.stride.1"),), (64, 8), steps=(1, 2))
    arguments = (*launch.arguments[:2], stored, MapsReady(("I",)), MapsReady(("output",)))
    plan = replace(plan, launches=(replace(launch, arguments=arguments),))
    assert plan_from_json(plan_to_json(plan), plan.source) == plan
    recorder, taps = Recorder(), DeviceArray(np.zeros(9, np.float16))
    executable = Executable(plan, lambda: b"cubin", recorder)
    executable((aligned(8, 200), taps), {})
    executable((aligned(8, 201), taps), {})
    told = [args[3:] for _, _, _, args, _, _ in recorder.launches]
    assert told[0][0] == 1
    assert told[1][0] == 0


@pytest.mark.parametrize(("width", "stored"), [(64, 1), (60, 1), (61, 0), (62, 0)])
def test_rows_that_end_inside_16_bytes_are_not_stored_by_boxes(width: int, stored: int) -> None:
    """The copy engine would write to the end of the last 16 bytes: into what lies between rows."""
    plan = mapped_plan()
    (launch,) = plan.launches
    rows = (Var("output.extent.0"), Var("output.extent.1"))
    output = MapArgument("output", FLOAT32, rows, (Var("output.stride.1"),), (32, 8))
    arguments = (*launch.arguments[:2], output, MapsReady(("I",)), MapsReady(("output",)))
    plan = replace(plan, launches=(replace(launch, arguments=arguments),))
    recorder, taps = Recorder(), DeviceArray(np.zeros(9, np.float16))
    room = np.zeros(8 * 64 + 4, np.float32)
    first = -(room.__array_interface__["data"][0] // 4) % 4
    out = DeviceArray(room[first : first + 8 * 64].reshape(8, 64)[:, :width])
    executable = Executable(plan, lambda: b"cubin", recorder)
    executable((image(8, width + 8), taps), {}, out)
    ((_, _, _, args, _, _),) = recorder.launches
    assert args[3:] == (1, stored)


def test_a_row_may_end_anywhere_where_it_is_read() -> None:
    read = TensorMap(FLOAT32, (67, 8), (272,), (32, 8))
    assert read.possible(256)
    assert not replace(read, stored=True).possible(256)
    assert replace(read, stored=True, extents=(68, 8)).possible(256)


def test_maps_survive_the_artifact() -> None:
    plan = mapped_plan()
    assert plan_from_json(plan_to_json(plan), plan.source) == plan


@pytest.mark.parametrize(
    ("box", "strides", "promotion"),
    [
        ((16, 8, 4), (256, 4096), 1),  # 32 bytes of each pixel of 256
        ((16, 8, 4), (32, 4096), 3),  # neighbours are the next row
        ((16, 8, 4), (4096, 32), 3),  # in whatever order
        ((32, 8, 4), (256, 4096), 1),
        ((64, 8, 4), (256, 4096), 3),
        ((64,), (), 3),
        ((64, 8), (10000,), 2),  # rows of 128 bytes begin within lines
        ((64, 8, 4), (1024, 10000), 2),  # some of them
        ((64, 8), (10240,), 3),  # none
        ((64, 8, 4), (208, 10000), 3),  # the next row is there as well
    ],
)
def test_rows_that_lie_apart_bring_no_others(
    box: tuple[int, ...], strides: tuple[int, ...], promotion: int
) -> None:
    assert TensorMap(FLOAT16, (128,) * len(box), strides, box).promotion == promotion
