"""Numbers and tensor maps by way of the native module and by way of Python: the same bits."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda
from known_calls import aligned, both, conv_arrays, executable, known, mapped_plan, unknown
from runtime_plans import add, scale_plan

from selector.diagnostics import ArgumentError
from selector.ir.nodes import Var
from selector.ir.types import BFLOAT16, BOOL, FLOAT16, FLOAT32, FLOAT64, INT8, INT32, UINT16, Type

pytestmark = pytest.mark.gcc


SCALARS: list[tuple[Type, Any]] = [
    (FLOAT32, 0.1), (FLOAT32, 3), (FLOAT32, True), (FLOAT32, np.float32(0.3)),
    (FLOAT32, np.float64(0.3)), (FLOAT32, np.int8(-3)), (FLOAT32, float("inf")), (FLOAT64, 0.1),
    (FLOAT16, 0.1), (FLOAT16, -65504), (BFLOAT16, 1.1), (BFLOAT16, 3.3e38), (BFLOAT16, -1e-3),
    (BFLOAT16, -float("nan")), (INT32, -7), (INT8, -128), (UINT16, 65535), (INT32, np.int64(9)),
    (BOOL, True),
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
    rows = 2  # begin within lines of 128 bytes, of which one at a time is fetched
    assert struct.unpack("6IQ", made[:32]) == (6, 2, 0, 3, rows, 0, pixels.data.ptr)
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
    assert maps.value == 300
    call(images[0], taps, out=out)
    assert maps.value == 301  # it was forgotten
    assert cuda.taken()[-1][7][24:32] == struct.pack("Q", images[0].data.ptr)
