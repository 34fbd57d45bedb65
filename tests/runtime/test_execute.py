"""Calls of a plan on a device that records: what is launched with which arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from runtime_plans import DeviceArray, Recorder, conv, conv_plan, scale_plan

from selector.diagnostics import ArgumentError, TargetError
from selector.ir.nodes import IntImm
from selector.ir.types import BFLOAT16, FLOAT16, INT8
from selector.runtime.execute import Executable
from selector.runtime.plan import Launch, Plan
from selector.runtime.prepare import grid_of


def executable(plan: Plan, recorder: Recorder) -> Executable:
    return Executable(plan, lambda: b"cubin", recorder)


def conv_effect(memory: dict[int, Any], image: int, taps: int, out: int, *rest: Any) -> None:
    memory[out][...] = conv(memory[image], memory[taps])


@pytest.fixture
def recorder() -> Recorder:
    recorder = Recorder()
    recorder.effects["conv_kernel"] = conv_effect
    return recorder


def image(height: int, width: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal((height, width)).astype(np.float16)


def test_the_launch_holds_addresses_and_sizes_in_the_order_of_the_plan(recorder: Recorder) -> None:
    inputs = DeviceArray(image(5, 200)), DeviceArray(image(1, 9)[0])
    result = executable(conv_plan(), recorder)(inputs, {})
    entry, grid, block, args, shared, stream = recorder.launches[0]
    assert (entry, grid, block, shared, stream) == ("conv_kernel", (3, 5, 1), (64, 1, 1), 0, 0)
    assert args[:3] == tuple(map(recorder.pointer, (*inputs, result)))
    assert args[3:] == (192, 5, 9, 200, 192)
    assert all(type(a) is np.int32 for a in args[3:])


def test_numpy_in_numpy_out(recorder: Recorder) -> None:
    pixels, taps = image(7, 90), image(1, 16)[0]
    result = executable(conv_plan(), recorder)((pixels,), {"K": taps})
    assert type(result) is np.ndarray
    np.testing.assert_allclose(result, conv(pixels, taps), rtol=1e-6)


@pytest.mark.parametrize("step", [2, -1])
def test_numpy_inputs_of_any_strides_are_copied(recorder: Recorder, step: int) -> None:
    pixels, taps = image(7, 90)[:, ::step], image(1, 16)[0, ::step]
    np.testing.assert_allclose(
        executable(conv_plan(), recorder)((pixels, taps), {}), conv(pixels, taps), rtol=1e-6
    )


def test_numpy_out_is_filled_and_returned(recorder: Recorder) -> None:
    pixels, taps = image(7, 90), image(1, 16)[0]
    room = np.full((7, 150), np.nan, np.float32)
    out = room[:, ::2]
    assert executable(conv_plan(), recorder)((pixels, taps), {}, out=out) is out
    np.testing.assert_allclose(out, conv(pixels, taps), rtol=1e-6)
    assert np.isnan(room[:, 1::2]).all()


def test_a_repeated_call_neither_loads_nor_allocates(recorder: Recorder) -> None:
    run = executable(conv_plan(), recorder)
    arrays = DeviceArray(image(5, 200)), DeviceArray(image(1, 9)[0])
    out = DeviceArray(np.empty((5, 192), np.float32))
    for _ in range(3):
        run(arrays, {}, out=out)
    assert (recorder.loads, recorder.allocations, len(recorder.launches)) == (1, 0, 3)


def test_a_call_with_new_addresses_uses_them(recorder: Recorder) -> None:
    run = executable(conv_plan(), recorder)
    for _ in range(2):
        pixels, taps = image(5, 200), image(1, 9)[0]
        result = run((DeviceArray(pixels), DeviceArray(taps)), {})
        np.testing.assert_allclose(result.values, conv(pixels, taps), rtol=1e-6)


def test_arrays_that_touch_share_nothing(recorder: Recorder) -> None:
    """The output lies right behind the image; one element earlier it would be written over."""
    room, taps = np.zeros(3000, np.float32), DeviceArray(image(1, 9)[0])
    pixels = room[:500].view(np.float16).reshape(5, 200)
    run = executable(conv_plan(), recorder)
    run((DeviceArray(pixels), taps), {}, out=DeviceArray(room[500:1460].reshape(5, 192)))
    assert len(recorder.launches) == 1
    with pytest.raises(ArgumentError, match="output: the out= array shares memory with I"):
        run((DeviceArray(pixels), taps), {}, out=DeviceArray(room[499:1459].reshape(5, 192)))


def test_intermediates_are_kept_per_stream() -> None:
    recorder = Recorder()
    run = executable(scale_plan(), recorder)
    x, out = (DeviceArray(np.zeros(100, np.float32)) for _ in range(2))
    for stream in (1, 2, 1, 2, 1):
        run((x, 2.0), {}, out=out, stream=stream)
    assert recorder.allocations == 2
    firsts = {(stream, args[1]) for entry, _, _, args, _, stream in recorder.launches[::2]}
    seconds = {(stream, args[0]) for entry, _, _, args, _, stream in recorder.launches[1::2]}
    assert firsts == seconds
    assert len(firsts) == 2


def test_intermediates_start_as_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no kernel writes may meet the zeros of a band."""
    recorder = Recorder()
    monkeypatch.setattr(
        recorder, "empty", lambda shape, *_: DeviceArray(np.full(shape, 0xFF, np.uint8))
    )
    seen: list[np.ndarray[Any, Any]] = []
    first = scale_plan().launches[0].entry
    recorder.effects[first] = lambda memory, x, middle, *rest: seen.append(memory[middle].copy())
    x, out = (DeviceArray(np.ones(100, np.float32)) for _ in range(2))
    executable(scale_plan(), recorder)((x, 2.0), {}, out=out)
    assert len(seen) == 1
    assert seen[0].size >= 100
    assert not seen[0].any()


def test_what_follows_from_the_sizes_is_launched_once_for_a_stream_and_a_size() -> None:
    recorder = Recorder()
    plan = scale_plan()
    first, second = plan.launches
    run = executable(replace(plan, launches=(replace(first, once=True), second)), recorder)
    for stream, size in ((1, 100), (1, 100), (2, 100), (1, 50), (1, 100), (2, 100)):
        x, out = (DeviceArray(np.zeros(size, np.float32)) for _ in range(2))
        run((x, 2.0), {}, out=out, stream=stream)
    entries = [entry for entry, *_ in recorder.launches]
    assert entries == ["first", "second", "second"] + 2 * ["first", "second"] + 2 * ["second"]


def test_a_launch_starts_early_only_behind_one_that_is_repeated_as_well() -> None:
    recorder = Recorder()
    plan = scale_plan()
    first, second = plan.launches
    run = executable(replace(plan, launches=(first, replace(second, early=True))), recorder)
    x, out = (DeviceArray(np.zeros(100, np.float32)) for _ in range(2))
    run((x, 2.0), {}, out=out)
    assert recorder.early_launches == []
    run((x, 2.0), {}, out=out)
    assert recorder.early_launches == ["second"]
    graph = run.graph((x, 2.0), {}, out=out)
    assert recorder.early_launches == ["second"]
    graph()
    assert recorder.early_launches == ["second"] * 2


@pytest.mark.parametrize(
    ("before", "blocks", "crowd", "early"),
    [
        (3, 2, 0, True),  # there is room beside the others
        (3, 2, 2, False),  # both would come to the fourth multiprocessor
        (3, 3, 2, True),  # not all of them
        (4, 1, 2, True),  # nobody is idle
        (1, 6, 2, False),
    ],
)
def test_a_launch_waits_where_all_of_it_would_crowd_on_idle_multiprocessors(
    before: int, blocks: int, crowd: int, early: bool
) -> None:
    recorder = Recorder()  # four multiprocessors
    plan = scale_plan()
    first, second = plan.launches
    one = IntImm(1)
    first = replace(first, grid=(IntImm(before), one, one))
    second = replace(second, grid=(IntImm(blocks), one, one), early=True, crowd=crowd)
    run = executable(replace(plan, launches=(first, second)), recorder)
    x, out = (DeviceArray(np.zeros(100, np.float32)) for _ in range(2))
    for _ in range(2):
        run((x, 2.0), {}, out=out)
    assert recorder.early_launches == ["second"] * early


def test_the_first_launch_of_a_call_never_starts_early() -> None:
    recorder = Recorder()
    plan = scale_plan()
    first, second = plan.launches
    launches = (replace(first, once=True), replace(second, early=True))
    run = executable(replace(plan, launches=launches), recorder)
    x, out = (DeviceArray(np.zeros(100, np.float32)) for _ in range(2))
    for _ in range(3):
        run((x, 2.0), {}, out=out)
    assert recorder.early_launches == []


def test_a_launch_that_was_captured_has_not_run() -> None:
    recorder = Recorder()
    plan = scale_plan()
    first, second = plan.launches
    run = executable(replace(plan, launches=(replace(first, once=True), second)), recorder)
    x, out = (DeviceArray(np.zeros(100, np.float32)) for _ in range(2))
    recorder.captured.add(1)
    run((x, 2.0), {}, out=out, stream=1)
    recorder.captured.clear()
    for _ in range(2):
        run((x, 2.0), {}, out=out, stream=1)
    entries = [entry for entry, *_ in recorder.launches]
    assert entries == ["first", "second"] * 2 + ["second"]


def test_scalars_have_the_type_of_the_parameter_and_may_change() -> None:
    recorder = Recorder()
    run = executable(scale_plan(), recorder)
    x = DeviceArray(np.zeros(100, np.float32))
    for factor in (2, 0.5, np.float64(3), True):
        run((x,), {"factor": factor})
    seen = [args[2] for entry, _, _, args, _, _ in recorder.launches if entry == "first"]
    assert seen == [2, 0.5, 3, 1]
    assert {type(s) for s in seen} == {np.float32}


def test_half_and_bfloat16_scalars_are_passed_in_16_bits() -> None:
    for type_, expected in ((FLOAT16, np.float16(1.1)), (BFLOAT16, np.uint16(0x3F8D))):
        recorder = Recorder()
        executable(scale_plan(scalar=type_), recorder)(
            (DeviceArray(np.zeros(4, np.float32)), 1.1), {}
        )
        assert recorder.launches[0][3][2] == expected
        assert recorder.launches[0][3][2].dtype == expected.dtype


def test_an_empty_output_launches_nothing(recorder: Recorder) -> None:
    taps = DeviceArray(image(1, 9)[0])
    out = DeviceArray(np.empty((0, 192), np.float32))
    executable(conv_plan(), recorder)((DeviceArray(image(0, 200)), taps), {}, out=out)
    assert recorder.launches == []


def test_a_size_may_be_asked_for(recorder: Recorder) -> None:
    inputs = DeviceArray(image(5, 200)), DeviceArray(image(1, 9)[0])
    for sizes in ((3, 100), {"output": (3, 100)}):
        recorder.effects.clear()
        assert executable(conv_plan(), recorder)(inputs, {}, sizes=sizes).values.shape == (3, 100)


def test_bfloat16_comes_as_bits_from_numpy_and_goes_back_as_bits() -> None:
    recorder = Recorder()
    x = np.arange(4, dtype=np.uint16)
    assert executable(scale_plan(BFLOAT16), recorder)((x, 1.0), {}).dtype == np.uint16


def test_code_for_another_gpu_is_refused() -> None:
    run = executable(conv_plan("sm_90a"), Recorder(capability=80))
    with pytest.raises(
        TargetError, match=r"compiled for sm_90a; GPU 0 has compute capability 8\.0"
    ):
        run((DeviceArray(image(5, 200)), DeviceArray(image(1, 9)[0])), {})


def test_int8_arrays_are_told_from_int16() -> None:
    run = executable(scale_plan(INT8), Recorder())
    with pytest.raises(ArgumentError, match="input: expected int8, got int16"):
        run((DeviceArray(np.zeros(4, np.int16)), 1.0), {})


def test_many_shapes_do_not_pile_up(recorder: Recorder) -> None:
    recorder.effects.clear()
    run = executable(conv_plan(), recorder)
    taps = DeviceArray(image(1, 9)[0])
    for width in range(20, 220):
        run((DeviceArray(image(1, width)), taps), {})
    assert len(run._prepared) <= 128  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("persistent", "cluster", "multiprocessors", "grid"),
    [
        (0, 1, 132, (5, 3, 2)),
        (0, 2, 132, (6, 3, 2)),
        (1, 1, 132, (30, 1, 1)),
        (1, 2, 132, (36, 1, 1)),
        (2, 2, 8, (16, 1, 1)),
        (1, 4, 6, (4, 1, 1)),
        (1, 4, 3, (4, 1, 1)),
    ],
)
def test_blocks_that_stay_are_no_more_than_there_is_work(
    persistent: int, cluster: int, multiprocessors: int, grid: tuple[int, int, int]
) -> None:
    """And whole clusters, at least one."""
    zero = IntImm(0)
    launch = Launch("k", (zero,) * 3, 128, 0, (), persistent=persistent, cluster=cluster)
    assert grid_of((5, 3, 2), launch, lambda: multiprocessors) == grid
