"""Calls by way of the native module and by way of Python: the same launches, the same errors.

The driver is a shared object that notes what it is told; CuPy and torch are stand-ins.
"""

from __future__ import annotations

import gc
import struct
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_cuda import CONTEXTS, FakeCuda, Foreign, Tensor
from known_calls import both, conv_arrays, executable, image, known, unknown
from runtime_plans import conv_plan, scale_plan, zero_to

from selector.diagnostics import ArgumentError
from selector.ir.nodes import Var
from selector.runtime import libcuda
from selector.runtime.cuda import native_libraries
from selector.runtime.execute import Executable

pytestmark = pytest.mark.gcc


def test_one_launch(cuda: FakeCuda) -> None:
    pixels, taps, out = conv_arrays(cuda)
    ((entry, grid, block, shared, stream, context, early, *args),) = both(
        cuda, conv_plan(), lambda run: run((pixels, taps), {}, out=out)
    )
    assert (entry, grid, block, shared, stream) == ("conv_kernel", (3, 5, 1), (64, 1, 1), 0, 0)
    assert (context, early) == (CONTEXTS[0], False)
    addresses = [struct.unpack("Q", a)[0] for a in args[:3]]
    assert addresses == [a.data.ptr for a in (pixels, taps, out)]
    assert [struct.unpack("i", a)[0] for a in args[3:]] == [192, 5, 9, 200, 192]


def test_several_launches_with_an_early_one(cuda: FakeCuda) -> None:
    plan = scale_plan()
    first, second = plan.launches
    plan = replace(plan, launches=(first, replace(second, early=True)))
    x, out = cuda.cupy.ndarray((100,)), cuda.cupy.ndarray((100,))
    for native in (False, True):
        run = executable(cuda, plan, native)
        for expected in ((False, False), (False, True), (False, True)):
            run((x, 2.0), {}, out=out)
            taken = cuda.taken()
            assert [(r[0], r[6]) for r in taken] == list(
                zip(("first", "second"), expected, strict=True)
            )
            assert taken[0][8] == taken[1][7]  # the buffer between them
            assert taken[0][9] == struct.pack("f", 2)
    known(run)(x, 3.0, out=out)
    assert cuda.taken()[0][9] == struct.pack("f", 3)


def test_what_runs_once_is_not_repeated(cuda: FakeCuda) -> None:
    plan = scale_plan()
    first, second = plan.launches
    run = executable(cuda, replace(plan, launches=(replace(first, once=True), second)))
    x, out = cuda.cupy.ndarray((100,)), cuda.cupy.ndarray((100,))
    for _ in range(2):
        run((x, 2.0), {}, out=out)
    known(run)(x, 2.0, out=out)
    assert [r[0] for r in cuda.taken()] == ["first", "second", "second", "second"]


@pytest.mark.parametrize("kind", ["cupy", "torch", "foreign"])
def test_arrays_of_every_kind(cuda: FakeCuda, kind: str) -> None:
    def make(values: Any) -> Any:
        if kind == "foreign":
            return Foreign(values)
        return Tensor(values) if kind == "torch" else cuda.cupy.ndarray(values)

    pixels, taps = make(np.zeros((5, 208), np.float16)[:, :200]), make(np.zeros(9, np.float16))
    out = make(np.zeros((5, 192), np.float32))
    both(cuda, conv_plan(), lambda run: run((pixels,), {"K": taps}, out={"output": out}))
    run = executable(cuda, conv_plan())
    assert run((pixels, taps), {}, out=out) is out
    assert known(run)(I=pixels, K=taps, out=out) is out
    unknown(run, make(np.zeros((5, 200), np.float16)), taps, out=out)  # other strides
    unknown(run, make(np.zeros((5, 208), np.int16)[:, :200]), taps, out=out)  # another type
    if kind == "foreign":
        out.values.flags.writeable = False
        with pytest.raises(ArgumentError, match="read-only"):
            run((pixels, taps), {}, out=out)


@pytest.mark.parametrize("kind", ["cupy", "torch"])
def test_outputs_come_from_the_callers_library(cuda: FakeCuda, kind: str) -> None:
    make = Tensor if kind == "torch" else cuda.cupy.ndarray
    x = make((100,), np.float32)
    for native in (False, True):
        run = executable(cuda, scale_plan(), native)
        cuda.allocations.clear()
        results = [run((x, 2.0), {}) for _ in range(3)]
        assert cuda.allocations == [kind, f"{kind} zeros", kind, kind]
        assert {(type(r), r.shape) for r in results} == {(type(x), (100,))}
    result = known(run)(x, 2.0)
    assert type(result) is type(x)
    assert cuda.taken()[-1][8] == struct.pack("Q", result.values.__array_interface__["data"][0])


def test_several_outputs_are_a_dict(cuda: FakeCuda) -> None:
    plan = conv_plan()
    source, _, output = plan.buffers
    (launch,) = plan.launches
    both_out = (source, replace(output, name="K"), output)
    x = image(cuda)
    plan = replace(plan, buffers=both_out, requirements=(zero_to("I", 0, Var("output.extent.0")),))
    run = executable(cuda, replace(plan, launches=(launch,)))
    sizes = {"K": (2, 2), "output": (3, 3)}
    outs = run((x,), {}, sizes=sizes)
    run((x,), {}, out=outs)
    assert known(run)(x, sizes=dict(reversed(sizes.items())))["K"].shape == (2, 2)
    assert run._known.call((x,), {}, None, None, {"K": (2, 2), "output": (3, 4)}) is NotImplemented
    found = known(run)(x, out={"output": outs["output"], "K": outs["K"]})
    assert list(found) == ["K", "output"]
    assert found["K"] is outs["K"]


def test_sizes_are_part_of_the_signature(cuda: FakeCuda) -> None:
    pixels, taps, _ = conv_arrays(cuda)
    run = executable(cuda, conv_plan())
    for sizes in (None, (3, 100), (2, 50)):
        run((pixels, taps), {}, sizes=sizes)
    for sizes, shape in (
        (None, (5, 192)), ((3, 100), (3, 100)), ((2, 50), (2, 50)), ({"output": (3, 100)}, (3, 100))
    ):  # fmt: skip
        assert known(run)(pixels, taps, sizes=sizes).shape == shape
    assert run._known.call((pixels, taps), {}, None, None, (1, 50)) is NotImplemented


def test_streams(cuda: FakeCuda) -> None:
    pixels, taps, out = conv_arrays(cuda)
    run = executable(cuda, conv_plan())
    run((pixels, taps), {}, out=out)
    run((pixels, taps), {})
    call = known(run)
    cuda.taken()
    with cuda.cupy.cuda.Stream.from_external(type("S", (), {"ptr": 70})):
        call(pixels, taps, out=out)
        call(pixels, taps)
        unknown(run, pixels, taps, stream=80)  # what it makes would belong to another stream
        run((pixels, taps), {}, stream=80)
    call(pixels, taps, out=out, stream=90)
    call(pixels, taps, out=out, stream=type("S", (), {"ptr": 91}))
    call(pixels, taps, out=out, stream=type("S", (), {"cuda_stream": 92}))
    assert [r[4] for r in cuda.taken()] == [70, 70, 80, 90, 91, 92]
    unknown(run, pixels, taps, out=out, stream="s")
    with pytest.raises(ArgumentError, match="expected a stream, got str"):
        run((pixels, taps), {}, out=out, stream="s")


def test_torch_runs_on_its_own_stream(cuda: FakeCuda) -> None:
    x, out = Tensor((100,)), Tensor((100,))
    cuda.torch_stream = 60
    records = both(cuda, scale_plan(), lambda run: run((x, 2.0), {}, out=out))
    assert {r[4] for r in records} == {60}
    pixels, taps = Tensor((5, 200), np.float16), Tensor((9,), np.float16)
    run = executable(cuda, conv_plan())
    run((pixels, taps), {})
    known(run)(pixels, taps)
    assert {r[4] for r in cuda.taken()} == {60}


def test_torch_may_be_imported_after_the_first_call(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its arrays are never taken for others with ``__cuda_array_interface__``, whose stream is
    CuPy's.
    """
    monkeypatch.delitem(sys.modules, "torch")
    run = executable(cuda, conv_plan())
    pixels, taps, out = conv_arrays(cuda)
    run((pixels, taps), {}, out=out)
    monkeypatch.setitem(sys.modules, "torch", cuda.torch)
    cuda.torch_stream = 60
    cuda.taken()
    image, weights = Tensor((5, 200), np.float16), Tensor((9,), np.float16)
    for _ in range(2):
        assert isinstance(run((image, weights), {}), Tensor)
    assert isinstance(known(run)(image, weights), Tensor)
    assert {r[4] for r in cuda.taken()} == {60}


def test_each_stream_has_its_own_intermediates(cuda: FakeCuda) -> None:
    run = executable(cuda, scale_plan())
    x, out = cuda.cupy.ndarray((100,)), cuda.cupy.ndarray((100,))
    for stream in (10, 20):
        run((x, 2.0), {}, out=out, stream=stream)
    cuda.taken()
    call = known(run)
    for stream in (10, 20, 10):
        call(x, 2.0, out=out, stream=stream)
    middles = [r[8] for r in cuda.taken() if r[0] == "first"]
    assert middles[0] == middles[2] != middles[1]
    unknown(run, x, 2.0, out=out, stream=30)
    for stream in range(100, 140):
        run((x, 2.0), {}, out=out, stream=stream)
    unknown(run, x, 2.0, out=out, stream=10)  # forgotten


def test_another_device_is_made_current(cuda: FakeCuda) -> None:
    x, out = (cuda.cupy.ndarray((100,), np.float32, 1) for _ in range(2))
    records = both(cuda, scale_plan(), lambda run: run((x, 2.0), {}, out=out))
    assert {r[5] for r in records} == {CONTEXTS[1]}
    run = executable(cuda, scale_plan())
    for device in (0, 1, 0, 1):
        run([cuda.cupy.ndarray((100,), np.float32, device), 2.0], {}, out=None)
        assert {r[5] for r in cuda.taken()} == {CONTEXTS[device]}
    run((x, 2.0), {})
    unknown(run, x, 2.0)  # Python makes arrays there
    cuda.use(1)
    assert known(run)(x, 2.0).shape == (100,)
    cuda.use(0)


def test_many_signatures_do_not_pile_up(cuda: FakeCuda) -> None:
    run = executable(cuda, conv_plan())
    _, taps, _ = conv_arrays(cuda)
    images = [image(cuda, 1, width) for width in range(20, 320)]
    for pixels in images:
        run((pixels, taps), {})
    assert len(run._known.launcher) == 128
    unknown(run, images[0], taps)
    assert known(run)(images[-1], taps).shape == (1, 311)


def test_errors_are_those_of_python(cuda: FakeCuda) -> None:
    """After a good call, so that the native module is asked first."""
    pixels, taps, out = conv_arrays(cuda)
    inside = cuda.cupy.ndarray(
        pixels.values.view(np.uint8).reshape(-1)[: 4 * 96].view(np.float32).reshape(1, 96)
    )
    wrong: list[Callable[[Executable], object]] = [
        lambda run: run((pixels,), {}),
        lambda run: run((pixels, taps, taps), {}),
        lambda run: run((pixels,), {"L": taps}),
        lambda run: run((pixels, taps), {"K": taps}),
        lambda run: run((pixels, 3), {}),
        lambda run: run((cuda.cupy.ndarray((5, 200)), taps), {}, out=out),
        lambda run: run((pixels, taps), {}, out={"other": out}),
        lambda run: run((pixels, taps), {}, out=cuda.cupy.ndarray((5, 193))),
        lambda run: run((image(cuda, 5, 201), taps), {}, out=inside),
        lambda run: run((pixels, taps), {}, out=inside),
        lambda run: run((pixels, taps), {}, out=out, sizes=(5, 192)),
    ]
    for call in wrong:
        errors: list[str] = []
        for native in (False, True):
            run = executable(cuda, conv_plan(), native)
            run((pixels, taps), {}, out=out)
            run((pixels, taps), {})
            run((pixels, taps), {}, out=cuda.cupy.ndarray((1, 96)))
            cuda.taken()
            try:
                call(run)
            except ArgumentError as error:
                errors.append(str(error))
            else:
                errors.append(repr([r[:7] for r in cuda.taken()]))
        assert errors[0] == errors[1]
    run((pixels, taps), {}, out=out)


def test_an_output_that_shares_memory_is_refused_when_the_signature_is_known(
    cuda: FakeCuda,
) -> None:
    run = executable(cuda, conv_plan())
    room, (_, taps, _) = np.zeros(3000, np.float32), conv_arrays(cuda)
    pixels = cuda.cupy.ndarray(room[:500].view(np.float16).reshape(5, 200))
    apart = cuda.cupy.ndarray(room[500:1460].reshape(5, 192))
    shared = cuda.cupy.ndarray(room[499:1459].reshape(5, 192))
    run((pixels, taps), {}, out=apart)
    known(run)(pixels, taps, out=apart)
    cuda.taken()
    with pytest.raises(ArgumentError, match="output: the out= array shares memory with I"):
        run((pixels, taps), {}, out=shared)
    assert cuda.taken() == []


def test_a_launch_that_fails_is_the_same_error(cuda: FakeCuda) -> None:
    pixels, taps, out = conv_arrays(cuda)
    errors: list[tuple[type, str]] = []
    for native in (False, True):
        run = executable(cuda, conv_plan(), native)
        run((pixels, taps), {}, out=out)
        cuda.number("fake_status").value = 719
        with pytest.raises(RuntimeError) as caught:
            run((pixels, taps), {}, out=out)
        cuda.number("fake_status").value = 0
        errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]
    assert "719" in errors[0][1]


def test_bounded_waits_are_waited_for_in_python(cuda: FakeCuda) -> None:
    assert executable(cuda, replace(conv_plan(), patience=2.0))._known is None


def test_without_a_driver_all_goes_through_python(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libcuda, "NAME", "libno-such-driver.so")
    assert native_libraries(cuda.cupy) is None
    monkeypatch.setitem(sys.modules, "selector.runtime._launch", None)
    monkeypatch.delattr("selector.runtime._launch")
    assert libcuda.native_module() is None
    assert native_libraries(cuda.cupy) is None


@pytest.mark.parametrize("native", [True, False])
def test_threads_do_not_share_what_lies_between_launches(cuda: FakeCuda, native: bool) -> None:
    """Calls of one kernel on one stream follow each other whole: the buffer between the launches
    holds one call's values at a time.
    """
    run = executable(cuda, scale_plan(), native)
    arrays = [(cuda.cupy.ndarray((100,)), cuda.cupy.ndarray((100,))) for _ in range(4)]
    run((arrays[0][0], 1.0), {}, out=arrays[0][1], stream=7)
    cuda.taken()

    def work(number: int) -> None:
        cuda.use(0)
        x, out = arrays[number]
        for _ in range(100):
            run((x, float(number)), {}, out=out, stream=7)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = cuda.taken()
    outs = {struct.pack("Q", x.data.ptr): struct.pack("Q", o.data.ptr) for x, o in arrays}
    numbers = {struct.pack("Q", x.data.ptr): float(n) for n, (x, _) in enumerate(arrays)}
    assert len(records) == 800
    for first, second in zip(records[::2], records[1::2], strict=True):
        assert (first[0], second[0]) == ("first", "second")
        assert second[8] == outs[first[7]]
        assert struct.unpack("f", first[9])[0] == numbers[first[7]]


def test_threads_may_meet_new_signatures(cuda: FakeCuda) -> None:
    run = executable(cuda, scale_plan())
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        cuda.use(0)
        generator = np.random.default_rng(seed)
        try:
            for _ in range(150):
                count = int(generator.integers(1, 200))
                x = cuda.cupy.ndarray((count,))
                assert run((x, 2.0), {}, stream=int(generator.integers(3, 25))).shape == (count,)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_nothing_stays_behind(cuda: FakeCuda) -> None:
    x, out = cuda.cupy.ndarray((100,)), cuda.cupy.ndarray((100,))
    run = executable(cuda, scale_plan())
    for _ in range(3):
        run((x, 2.0), {}, out=out)
    seen = [weakref.ref(x), weakref.ref(out), weakref.ref(run)]
    scratch = [weakref.ref(s.owners[0]) for p in run._prepared.values() for s in p.scratch.values()]
    counts = [sys.getrefcount(o) for o in (None, np.dtype(np.float32), cuda.cupy.ndarray)]
    for _ in range(1000):
        run((x, 2.0), {}, out=out)
    after = [sys.getrefcount(o) for o in (None, np.dtype(np.float32), cuda.cupy.ndarray)]
    assert all(abs(a - b) < 50 for a, b in zip(counts, after, strict=True))
    del x, out, run
    gc.collect()
    assert all(reference() is None for reference in seen + scratch)
