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


def body_of(result: hl.Type, value: object, *images: hl.ImageParam) -> str:
    """The body of a kernel that stores a value of ``images`` at ``x`` as another type."""
    xo, xi, out = hl.Var("xo"), hl.Var("xi"), hl.Func("out")
    out[X] = hl.cast(result, value)
    out.gpu_tile(X, xo, xi, 32)
    return hb.compile(out, target="sm_80").source.split("__global__")[1]


X = hl.Var("x")
BYTE, HALF, FLOAT = hl.UInt(8), hl.Float(16), hl.Float(32)


@pytest.mark.parametrize(
    ("result", "exponent", "steep", "name"),
    [
        (BYTE, 1 / 2.2, 255, "pow_rounded("),
        (BYTE, 1 / 2.2, 1e6, "powf("),  # of what nothing may be lost
        (HALF, 2.4, 1, "pow_rounded("),
        (FLOAT, 2.4, 1, "powf("),
        (BYTE, 1.5, 255, "root_times("),
        (FLOAT, 1.5, 1, "root_times("),
        (FLOAT, -0.5, 1, "powf("),
    ],
)
def test_powers(result: hl.Type, exponent: float, steep: float, name: str) -> None:
    image = hl.ImageParam(FLOAT, 1, "image")
    value = hl.pow(image[X], hl.f32(exponent)) * hl.f32(steep) + hl.f32(0.5)
    body = body_of(result, hl.pow(image[X], hl.f32(exponent)) if steep == 1 else value, image)
    found = {n for n in ("powf(", "pow_rounded(", "root_times(") if f"{n}" in body}
    assert found == {name}


@pytest.mark.parametrize("result", [BYTE, HALF])
def test_powers_of_negative_numbers_are_exact(result: hl.Type) -> None:
    """Whether an exponent is a whole number nobody knows."""
    image, power = hl.ImageParam(FLOAT, 1, "image"), hl.Param(FLOAT, "power")
    assert "powf(" in body_of(result, hl.pow(image[X], power), image)


@pytest.mark.parametrize("exponent", [1 / 2.4, 1 / 2.2, 0.7, 1.8, 2.2])
def test_bytes_are_as_those_of_exact_powers(exponent: float) -> None:
    """The two steps of a rounded power in float32, each one unit off, and one byte in 5000 is
    another at most, by one; none of those that the exact power is far from an edge of.
    """
    x = np.linspace(0, 1, 1_000_003).astype(np.float32)[1:]
    logarithm = np.nextafter(np.log2(x.astype(np.float64)).astype(np.float32), np.float32(-np.inf))
    fast = np.exp2((logarithm * np.float32(exponent)).astype(np.float64)).astype(np.float32)
    fast = np.nextafter(fast, np.float32(0))
    exact = 255 * x.astype(np.float64) ** float(np.float32(exponent)) + 0.5
    off = (fast * np.float32(255) + np.float32(0.5)).astype(np.uint8) != exact.astype(np.uint8)
    assert off.mean() < 2e-4
    assert np.abs(exact - np.rint(exact))[off].max(initial=0) < 2e-4


@pytest.mark.parametrize(("result", "fast"), [(HALF, True), (hl.BFloat(16), True), (FLOAT, False)])
def test_one_more_than_a_hyperbolic_tangent(result: hl.Type, fast: bool) -> None:
    image, rest = hl.ImageParam(HALF, 1, "image"), hl.ImageParam(HALF, 1, "rest")
    u = hl.f32(image[X])
    body = body_of(result, u * (1 + hl.tanh(u * 0.8)) * 0.5 + hl.f32(rest[X]), image, rest)
    assert ("divided_rounded(2.0f, exp_rounded(" in body) == fast
    assert ("tanhf(" in body) == (not fast)


def test_that_loses_little() -> None:
    """Near -1, too, where the tangent itself keeps no digits of the sum."""
    u = np.linspace(-12, 12, 1_000_003).astype(np.float32)
    power = np.exp2((u * np.float32(-2) * np.float32(1.44269504)).astype(np.float64))
    fast = np.float32(2) / (power.astype(np.float32) + np.float32(1))
    exact = 2 / (1 + np.exp(-2 * u.astype(np.float64)))
    assert np.abs(fast / exact - 1).max() < 2.0**-11 / 250
