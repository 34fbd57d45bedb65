"""Arrays that are known by DLPack alone are taken where they lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb
import selector
from selector.diagnostics import ArgumentError
from selector.runtime.arrays import Library, is_array, view
from selector.workbench.programs import read_program

PROGRAM = Path(__file__).resolve().parents[1] / "golden" / "conv1d-k64.vir"
RNG = np.random.default_rng(3)


class Foreign:
    """An array of a library that has nothing but DLPack."""

    def __init__(self, values: np.ndarray, device: int = 1) -> None:
        self.values, self.device = values, device

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device, 0)


def test_it_is_seen_in_place() -> None:
    values = RNG.random((5, 8), np.float32)[:, ::2]
    seen = view("a", Foreign(values))
    assert is_array(Foreign(values))
    assert seen == view("a", values)
    assert seen.library is Library.NUMPY


def test_on_a_device_it_has_to_say_where() -> None:
    with pytest.raises(ArgumentError) as caught:
        view("a", Foreign(np.zeros(3), device=2))
    assert caught.value.what == "a: Foreign is on a device, and has no __cuda_array_interface__"
    assert caught.value.hint == "convert it first: cupy.from_dlpack(a)"


def test_the_interpreter_takes_it() -> None:
    kernel = selector.compile(read_program(str(PROGRAM)), target="sm_80")
    first, second = kernel.plan.buffers[:2]
    sizes = [tuple(96 + 64 for _ in first.dims), tuple(64 for _ in second.dims)]
    arrays = [RNG.normal(size=s).astype(np.float16) for s in sizes]
    result = kernel.interpret(*map(Foreign, arrays))
    np.testing.assert_array_equal(result, kernel.interpret(*arrays), strict=True)


@pytest.mark.gcc
def test_a_kernel_of_the_cpu_takes_it() -> None:
    x, y = hl.Var("x"), hl.Var("y")
    image, out = hl.ImageParam(hl.Float(32), 2, "image"), hl.Func("out")
    out[x, y] = 2 * image[x, y] + 1
    kernel = hb.compile(out, target="amx")
    values = RNG.random((5, 7), np.float32)
    for _ in range(3):  # what is known of the first call serves the next ones
        np.testing.assert_array_equal(kernel(Foreign(values)), 2 * values + 1, strict=True)


def test_arrays_of_jax() -> None:
    jax = pytest.importorskip("jax")
    values = RNG.random((3, 4), np.float32)
    seen = view("a", jax.numpy.asarray(values))
    assert (seen.dtype, seen.shape, seen.writable) == ("float32", (3, 4), False)
    halves = jax.numpy.asarray(values, jax.numpy.bfloat16)  # for which NumPy's DLPack has no name
    assert view("a", halves).dtype == "bfloat16"
