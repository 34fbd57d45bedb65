"""``hb.apply``: from a pipeline that nobody scheduled and arrays to values, in one call."""

from __future__ import annotations

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb
from selector.diagnostics import ArgumentError

RNG = np.random.default_rng(7)


def blur() -> hl.Func:
    """Seven taps along the rows of an image ``I``, from the array ``K``."""
    x, y = hl.Var("x"), hl.Var("y")
    image = hl.ImageParam(hl.Float(16), 2, "I")
    taps = hl.ImageParam(hl.Float(16), 1, "K")
    r = hl.RDom([(0, 7)], "r")
    sums, output = hl.Func("sums"), hl.Func("blurred")
    sums[x, y] = hl.f32(0)
    sums[x, y] += hl.f32(image[x + r, y]) * hl.f32(taps[r])
    output[x, y] = hl.max(sums[x, y], hl.f32(0))
    return output


IMAGE = RNG.normal(size=(45, 300)).astype(np.float16)
TAPS = RNG.normal(size=7).astype(np.float16)


def expected() -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(IMAGE.astype(float), 7, axis=1)
    return np.maximum(windows @ TAPS.astype(float), 0)


def error(found: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected()) / np.linalg.norm(expected()))


def test_values_of_arrays() -> None:
    found = hb.apply(blur(), IMAGE, TAPS, target="sm_90a", interpret=True)
    assert (found.shape, found.dtype) == ((45, 294), np.float32)
    assert error(found) < 1e-6
    named = hb.apply(blur(), K=TAPS, I=IMAGE, target="sm_90a", interpret=True)
    np.testing.assert_array_equal(named, found)


def test_values_of_arrays_of_dask() -> None:
    """A Dask array, not computed, of the bits of one call of the same program."""
    da = pytest.importorskip("dask.array")
    image = da.from_array(IMAGE, chunks=(20, 100))
    found = hb.apply(blur(), image, TAPS, target="sm_90a", interpret=True)
    assert isinstance(found, da.Array)
    assert found.numblocks == (3, 3)
    assert error(found.compute()) < 1e-6
    again = hb.apply(blur(), image, TAPS, target="sm_90a", interpret=True, chunks=(45, 64))
    np.testing.assert_array_equal(again.compute(), found.compute())


def test_arrays_that_do_not_fit() -> None:
    with pytest.raises(ArgumentError, match="I: expected float16, got float32"):
        hb.apply(blur(), IMAGE.astype(np.float32), TAPS, target="sm_90a", interpret=True)
