"""Calls by way of the native module and by way of Python: the same launches, the same errors.

The driver is a shared object that notes what it is told; CuPy and torch are stand-ins.
"""

from __future__ import annotations

import gc
import importlib.util
import struct
import sys
import sysconfig
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from fake_cuda import CONTEXTS, ROOT, FakeCuda, Foreign, Tensor, build
from runtime_plans import add, conv_plan, scale_plan, zero_to

from selector.diagnostics import ArgumentError, TargetError
from selector.ir.nodes import Var
from selector.ir.types import BFLOAT16, BOOL, FLOAT16, FLOAT32, FLOAT64, INT8, INT32, UINT16, Type
from selector.runtime import capture, libcuda, tensor_map
from selector.runtime.cuda import CupyDriver, native_libraries
from selector.runtime.execute import Executable
from selector.runtime.plan import BufferArgument, MapArgument, MapsReady, Plan

pytestmark = pytest.mark.gcc
MODULE = "selector.runtime._launch"


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The native module, from its source."""
    folder = tmp_path_factory.mktemp("launch")
    flags = ("-std=c++17", "-Werror", f"-I{sysconfig.get_paths()['include']}", "-ldl")
    path = build(folder, ROOT / "cpp/launch/module.cpp", "_launch.so", *flags)
    spec = importlib.util.spec_from_file_location(MODULE, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    import selector.runtime as package

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, MODULE, made)
        patch.setattr(package, "_launch", made, raising=False)
        yield made


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = Path(__file__).parent / "fake_libcuda.c"
    return build(tmp_path_factory.mktemp("driver"), source, "libcuda.so", "-lpthread")


@pytest.fixture
def cuda(module: ModuleType, library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    cuda = FakeCuda(library)
    monkeypatch.setattr(libcuda, "NAME", str(library))
    monkeypatch.setitem(sys.modules, "torch", cuda.torch)
    tensor_map._encoder.cache_clear()
    for name in ("launches", "maps", "status", "map_status", "mode"):
        cuda.number(f"fake_{name}").value = 0
    cuda.capture(0)
    yield cuda
    tensor_map._encoder.cache_clear()


def executable(cuda: FakeCuda, plan: Plan, native: bool = True) -> Executable:
    libraries = native_libraries(cuda.cupy) if native else None
    assert (libraries is not None) == native
    return Executable(plan, lambda: b"cubin", CupyDriver(cuda.cupy, libraries))


def known(run: Executable) -> Any:
    """Calls that the native module takes; what it does not is a failure of the test."""
    assert run._known is not None

    def call(*args: Any, out: Any = None, stream: Any = None, sizes: Any = None, **named: Any):
        result = run._known.call(args, named, out, stream, sizes)
        assert result is not NotImplemented, "left to Python"
        return result

    return call


def unknown(run: Executable, *args: Any, out: Any = None, stream: Any = None, **named: Any) -> None:
    """A call that the native module leaves to Python."""
    assert run._known is not None
    assert run._known.call(args, named, out, stream, None) is NotImplemented


def image(cuda: FakeCuda, height: int = 5, width: int = 200) -> Any:
    return cuda.cupy.ndarray((height, width), np.float16)


def conv_arrays(cuda: FakeCuda) -> tuple[Any, Any, Any]:
    return image(cuda), cuda.cupy.ndarray((9,), np.float16), cuda.cupy.ndarray((5, 192))


def mapped_plan() -> Plan:
    """A kernel that takes its image by a map, and is told whether there is one."""
    extents = (Var("I.extent.0"), Var("I.extent.1"))
    argument = MapArgument("I", FLOAT16, extents, (Var("I.stride.1"),), (64, 8))
    plan = conv_plan()
    (launch,) = plan.launches
    arguments = (argument, BufferArgument("K"), BufferArgument("output"), MapsReady())
    return replace(plan, launches=(replace(launch, entry="mapped", arguments=arguments),))


def both(cuda: FakeCuda, plan: Plan, call: Callable[[Executable], object]) -> list[Any]:
    """The launches of a call that is repeated, which are those of Python."""
    taken: list[list[Any]] = []
    for native in (False, True):
        run = executable(cuda, plan, native)
        call(run)
        cuda.taken()
        call(run)
        taken.append(cuda.taken())
        if run._known is not None:
            assert len(run._known.launcher) == 1
    assert taken[0] == taken[1]
    assert taken[0]
    return taken[0]


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
    run((x, 2.0), {})
    unknown(run, x, 2.0)  # Python makes arrays there
    cuda.use(1)
    assert known(run)(x, 2.0).shape == (100,)
    cuda.use(0)


SCALARS: list[tuple[Type, Any]] = [
    (FLOAT32, 0.1), (FLOAT32, 3), (FLOAT32, True), (FLOAT32, np.float32(0.3)),
    (FLOAT32, np.float64(0.3)), (FLOAT32, np.int8(-3)), (FLOAT32, float("inf")), (FLOAT64, 0.1),
    (FLOAT16, 0.1), (FLOAT16, -65504), (BFLOAT16, 1.1), (BFLOAT16, 3.3e38), (BFLOAT16, -1e-3),
    (INT32, -7), (INT8, -128), (UINT16, 65535), (INT32, np.int64(9)), (BOOL, True),
]  # fmt: skip


@pytest.mark.parametrize(("element", "value"), SCALARS)
def test_numbers_have_the_same_bits(cuda: FakeCuda, element: Type, value: Any) -> None:
    x, out = cuda.cupy.ndarray((100,)), cuda.cupy.ndarray((100,))
    size = np.dtype(np.bool_).itemsize if element.is_bool else element.bytes
    cuda.kernels["first"].sizes[2] = size
    try:
        run = executable(cuda, scale_plan(scalar=element))
        run((x, value), {}, out=out)
        expected = cuda.taken()[0][9][:size]
        known(run)(x, value, out=out)
        assert cuda.taken()[0][9][:size] == expected
    finally:
        cuda.kernels["first"].sizes[2] = 4


@pytest.mark.parametrize(
    ("element", "value"),
    [
        (FLOAT32, 1e39), (FLOAT16, 1e5), (INT8, 128), (INT8, -129), (UINT16, -1), (INT32, 1.5),
        (INT32, 1 << 80), (BOOL, 2), (FLOAT32, "1"), (FLOAT32, None), (FLOAT32, 1 << 2000),
    ],
)  # fmt: skip
def test_numbers_that_do_not_fit_are_left_to_python(
    cuda: FakeCuda, element: Type, value: Any
) -> None:
    x, out = cuda.cupy.ndarray((100,)), cuda.cupy.ndarray((100,))
    errors: list[str] = []
    for native in (False, True):
        run = executable(cuda, scale_plan(scalar=element), native)
        run((x, 1), {}, out=out)
        with pytest.raises((ArgumentError, OverflowError)) as caught:
            run((x, value), {}, out=out)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def test_sizes_that_use_numbers_have_them_in_the_signature(cuda: FakeCuda) -> None:
    plan = scale_plan(scalar=INT32)
    first, second = plan.launches
    grid = (add(Var("factor", INT32), 1), *first.grid[1:])
    run = executable(cuda, replace(plan, launches=(replace(first, grid=grid), second)))
    x, out = cuda.cupy.ndarray((100,)), cuda.cupy.ndarray((100,))
    for factor in (2, 5, 2):
        run((x, factor), {}, out=out)
    unknown(run, x, 3, out=out)
    call = known(run)
    cuda.taken()
    call(x, 5, out=out)
    call(x, 2, out=out)
    assert [r[1][0] for r in cuda.taken() if r[0] == "first"] == [6, 3]


def aligned(cuda: FakeCuda, offset: int = 0) -> Any:
    room = np.zeros(5 * 200 + 64, np.float16)
    first = -(room.__array_interface__["data"][0] // 2) % 8 + offset
    return cuda.cupy.ndarray(room[first : first + 1000].reshape(5, 200))


@pytest.mark.parametrize("offset", [0, 1])
def test_tensor_maps(cuda: FakeCuda, offset: int) -> None:
    pixels, (_, taps, out) = aligned(cuda, offset), conv_arrays(cuda)
    ((*_, made, _, _, ready),) = both(
        cuda, mapped_plan(), lambda run: run((pixels, taps), {}, out=out)
    )
    assert struct.unpack("i", ready)[0] == (offset == 0)
    if offset:
        assert made == bytes(128)
        return
    assert struct.unpack("6IQ", made[:32]) == (6, 2, 0, 3, 3, 0, pixels.data.ptr)
    assert struct.unpack("2I", made[32:40]) == (200, 5)
    assert struct.unpack("2I", made[56:64]) == (64, 8)
    assert struct.unpack("I", made[80:84]) == (400,)


def test_a_driver_that_makes_no_map(cuda: FakeCuda) -> None:
    cuda.number("fake_map_status").value = 1
    pixels, (_, taps, out) = aligned(cuda), conv_arrays(cuda)
    ((*_, made, _, _, ready),) = both(
        cuda, mapped_plan(), lambda run: run((pixels, taps), {}, out=out)
    )
    assert (made, ready) == (bytes(128), bytes(4))


def test_maps_are_made_once_for_an_address_and_do_not_pile_up(cuda: FakeCuda) -> None:
    images, (_, taps, out) = [aligned(cuda) for _ in range(300)], conv_arrays(cuda)
    run = executable(cuda, mapped_plan())
    run((images[0], taps), {}, out=out)
    call, maps = known(run), cuda.number("fake_maps")
    maps.value = 0
    for _ in range(3):
        for pixels in images[:200]:
            call(pixels, taps, out=out)
    assert maps.value == 200
    for pixels in images:
        call(pixels, taps, out=out)
    assert maps.value <= 200 + 2 * 300  # not all were kept
    call(images[0], taps, out=out)
    assert cuda.taken()[-1][7][24:32] == struct.pack("Q", images[0].data.ptr)


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
    monkeypatch.setitem(sys.modules, MODULE, None)
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
    run((x, 2.0), {}, out=out, stream=50)
    cuda.capture(0)
    records = cuda.taken()
    assert [r[0] for r in records] == ["first", "second"]  # a replay runs what runs once, too
    assert records[0][8] != eager
    assert cuda.capture_modes == [2]  # relaxed while it allocates
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


def test_torch_keeps_what_is_made_for_its_graph(cuda: FakeCuda) -> None:
    run = executable(cuda, scale_plan())
    x, out = Tensor((100,)), Tensor((100,))
    cuda.torch_stream = 50
    cuda.capture(50)
    run((x, 2.0), {}, out=out)
    assert cuda.allocations[-1] == "torch zeros"
    assert [r[0] for r in cuda.taken()] == ["first", "second"]
    (owner,) = capture._held.values()
    assert not any(isinstance(o, Tensor) for o in gc.get_referents(owner, *gc.get_referents(owner)))
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
