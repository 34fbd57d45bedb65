"""Functions whose result is rounded to 16 bits next need no more precision than that keeps."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("halide")

import halide as hl

import halide_bridge as hb


def exponential(result: hl.Type, argument: hl.Type) -> str:
    """The CUDA text of ``result(exp(argument(image)))``."""
    x, xo, xi = hl.Var("x"), hl.Var("xo"), hl.Var("xi")
    image, out = hl.ImageParam(argument, 1, "image"), hl.Func("out")
    out[x] = hl.cast(result, hl.exp(image[x]))
    out.gpu_tile(x, xo, xi, 32)
    return hb.compile(out, target="sm_80").source


@pytest.mark.parametrize(
    ("result", "argument", "name"),
    [
        (hl.Float(16), hl.Float(32), "exp_rounded("),
        (hl.Float(16), hl.Float(16), "exp_rounded("),
        (hl.Float(32), hl.Float(32), "expf("),
        (hl.BFloat(16), hl.Float(32), "exp_rounded("),
        (hl.Float(64), hl.Float(64), "exp("),
    ],
)
def test_exponential(result: hl.Type, argument: hl.Type, name: str) -> None:
    body = exponential(result, argument).split("__global__")[1]
    assert f" {name}" in body or f"({name}" in body


@pytest.mark.parametrize(
    ("least", "most", "bits", "share"), [(-24, 11, 11, 250), (-87, 88, 8, 150)]
)
def test_what_is_lost_is_little(least: float, most: float, bits: int, share: float) -> None:
    """``2^(x * log2 e)`` with one rounded factor and product, where the result has so many bits:
    those of float16 and bfloat16.
    """
    x = np.linspace(least, most, 1_000_003).astype(np.float32)
    fast = np.exp2((x * np.float32(1.44269504)).astype(np.float64))
    exact = np.exp(x.astype(np.float64))
    assert np.abs(fast / exact - 1).max() < 2.0**-bits / share


def quotient(result: hl.Type, added: int) -> str:
    """The body of ``result(image / (exp(image) + added))``."""
    x, xo, xi = hl.Var("x"), hl.Var("xo"), hl.Var("xi")
    image, out = hl.ImageParam(hl.Float(32), 1, "image"), hl.Func("out")
    out[x] = hl.cast(result, image[x] / (hl.exp(image[x]) + added))
    out.gpu_tile(x, xo, xi, 32)
    return hb.compile(out, target="sm_80").source.split("__global__")[1]


@pytest.mark.parametrize("result", [hl.Float(16), hl.BFloat(16)])
def test_a_quotient_that_is_rounded(result: hl.Type) -> None:
    body = quotient(result, 1)
    assert "(divided_rounded(" in body
    assert " exp_rounded(" in body


def test_one_that_is_not() -> None:
    body = quotient(hl.Float(32), 1)
    assert "_rounded(" not in body


def test_a_difference_keeps_its_exponential() -> None:
    """Of two numbers that are nearly the same nothing would be left."""
    body = quotient(hl.Float(16), -1)
    assert "(divided_rounded(" in body
    assert " expf(" in body or "(expf(" in body
    assert "exp_rounded(" not in body
