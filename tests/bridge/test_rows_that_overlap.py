"""Arrays whose rows share elements, as frames of a signal do: right where nothing is declared of
their strides, refused where what is declared would take an element of one row for one of another.
"""

from __future__ import annotations

from typing import Any

import emulation
import halide as hl
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import halide_bridge as hb
from selector.diagnostics import ArgumentError

Array = np.ndarray[Any, np.dtype[Any]]
SIGNAL = np.random.default_rng(0).random(4000).astype(np.float32)


def frames(rows: int, length: int, hop: int) -> Array:
    return as_strided(SIGNAL, (rows, length), (hop * 4, 4))


def kernel(hop: int | None, target: str = "sm_80") -> Any:
    x, y = hl.Var("x"), hl.Var("y")
    image, out = hl.ImageParam(hl.Float(32), 2, "A"), hl.Func("out")
    if hop is not None:
        image.dim(1).set_stride(hop)
    out[x, y] = image[x, y] * 2
    return hb.compile(out, target=target, schedule="auto", sizes=(20, 100))


@pytest.mark.parametrize("hop", [1, 64, 100])
def test_undeclared_rows_may_overlap(hop: int) -> None:
    a = frames(9, 100, hop)
    assert np.array_equal(emulation.check(kernel(None), A=a, sizes=a.shape), 2 * a)


@pytest.mark.parametrize("hop", [64, 128])
def test_declared_rows_that_do_not_overlap_are_right(hop: int) -> None:
    a = frames(9, 64, hop)
    assert np.array_equal(emulation.check(kernel(hop), A=a, sizes=a.shape), 2 * a)


@pytest.mark.parametrize(("hop", "rows"), [(1, 20), (64, 9), (64, 1)])
@pytest.mark.parametrize("target", ["sm_80", "amx"])
def test_declared_rows_that_overlap_are_refused(hop: int, rows: int, target: str) -> None:
    a = frames(rows, 100, hop)
    said = f"A: axis 1 has 100 elements, and axis 0 goes on after {hop}\n"
    with pytest.raises(ArgumentError) as e:
        kernel(hop, target).interpret(A=a, sizes=a.shape)
    assert said in str(e.value)
    assert "declare no stride of dimension 1" in str(e.value)


def test_arrays_without_elements_have_no_rows() -> None:
    assert kernel(64).interpret(A=frames(0, 100, 64), sizes=(0, 100)).shape == (0, 100)
