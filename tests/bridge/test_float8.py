"""Bytes that are floats: decoded exactly by every way a pipeline runs, and products of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import emulation
import halide as hl
import numpy as np
import pytest
from numpy.typing import NDArray

import halide_bridge as hb
from selector.gpu.codegen.program import emit_kernels
from selector.simulate import simulate

pytestmark = pytest.mark.verified

Array = NDArray[Any]
BYTES = np.arange(256, dtype=np.uint8)
FORMATS: dict[str, tuple[Callable[[Any], Any], int, int]] = {
    "e4m3": (hb.e4m3, 4, 3),
    "e5m2": (hb.e5m2, 5, 2),
}


def value(byte: int, exponent: int, mantissa: int) -> float:
    """By the definition of the format, in Python's floats."""
    sign = -1.0 if byte >> 7 else 1.0
    power, part = byte >> mantissa & (1 << exponent) - 1, byte & (1 << mantissa) - 1
    if exponent == 5 and power == 31:
        return float("nan") if part else sign * float("inf")
    if exponent == 4 and byte & 0x7F == 0x7F:
        return float("nan")
    bias = (1 << exponent - 1) - 1
    if power == 0:
        return sign * part * 2.0 ** (1 - bias - mantissa)
    return sign * (1 + part / (1 << mantissa)) * 2.0 ** (power - bias)


def decoded(array: Array, name: str) -> Array:
    _, exponent, mantissa = FORMATS[name]
    return np.array([value(b, exponent, mantissa) for b in range(256)])[array]


def assert_same(found: Array, wanted: Array) -> None:
    """Equal, NaN where there is NaN, and zeros of the same sign."""
    assert np.array_equal(found.astype(np.float64), wanted, equal_nan=True)
    numbers = ~np.isnan(wanted)
    assert np.array_equal(np.signbit(found)[numbers], np.signbit(wanted)[numbers])


def pipeline(name: str) -> tuple[hl.ImageParam, hl.Func]:
    image, output, x = hl.ImageParam(hl.UInt(8), 1, "A"), hl.Func("output"), hl.Var("x")
    output[x] = FORMATS[name][0](image[x])
    return image, output


@pytest.mark.parametrize("name", FORMATS)
def test_halide_itself_decodes_each_byte(name: str) -> None:
    image, output = pipeline(name)
    image.set(hl.Buffer(BYTES))
    output.compute_root().vectorize(output.args()[0], 16)
    bits, x = hl.Func("bits"), hl.Var("x")
    bits[x] = hl.reinterpret(hl.UInt(16), output[x])
    found = np.array(bits.realize([256])).view(np.float16)
    assert_same(found, decoded(BYTES, name))


@pytest.mark.parametrize("name", FORMATS)
def test_interpreter_simulator_and_emitted_code_decode_each_byte(name: str) -> None:
    _, output = pipeline(name)
    hb.autoschedule(output, target="sm_90a")
    kernel = hb.compile(output, target="sm_90a")
    wanted = decoded(BYTES, name)
    assert_same(kernel.interpret(A=BYTES, sizes=(256,)), wanted)
    kernels, plan = emit_kernels(kernel.module, kernel.target)
    found = simulate(kernels, plan, {"A": BYTES}, (256,))
    assert found.faults == ()
    assert_same(found.outputs["output"], wanted)
    assert_same(emulation.check(kernel, sizes=(256,), A=BYTES), wanted)


@pytest.mark.parametrize("name", FORMATS)
def test_only_bytes_are_decoded(name: str) -> None:
    for t in (hl.Int(8), hl.UInt(16), hl.Float(16)):
        with pytest.raises(TypeError, match=f"hb.{name} reads the bits of a uint8"):
            FORMATS[name][0](hl.ImageParam(t, 1, "A")[hl.Var("x")])


class _Decoded:
    """A parameter that is decoded where it is read."""

    def __init__(self, param: Any, decode: Callable[[Any], Any]) -> None:
        self._param, self._decode = param, decode

    def __getitem__(self, at: Any) -> Any:
        return self._decode(self._param[at])


def product(left: str, right: str, *, apart: bool) -> hl.Func:
    """The bytes of A by those of B's rows; decoded in Funcs of their own, or in the update."""
    a, b = (hl.ImageParam(hl.UInt(8), 2, name) for name in "AB")
    n, m, k = hl.Var("n"), hl.Var("m"), hl.RDom([(0, a.width())], "k")
    factors: list[Any] = [_Decoded(a, FORMATS[left][0]), _Decoded(b, FORMATS[right][0])]
    if apart:
        whole = [hl.Func("halves_a"), hl.Func("halves_b")]
        for halves, factor in zip(whole, factors, strict=True):
            halves[n, m] = factor[n, m]
        factors = whole
    total, output = hl.Func("total"), hl.Func("output")
    total[n, m] += hl.f32(factors[0][k, m]) * hl.f32(factors[1][k, n])
    output[n, m] = total[n, m]
    return output


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize(("left", "right"), [("e4m3", "e5m2"), ("e5m2", "e4m3"), ("e4m3", "e4m3")])
def test_a_product_of_decoded_bytes_goes_to_a_tensor_unit(
    left: str, right: str, apart: bool
) -> None:
    output = product(left, right, apart=apart)
    hb.autoschedule(output, target="sm_90a", sizes=(70, 50))
    kernel = hb.compile(output, target="sm_90a")
    used = {u.block.instruction for u in kernel.report.updates if u.block}
    assert used
    assert all("wgmma" in name and name.endswith(".f16.f32") for name in used)
    draw = np.random.default_rng(1)
    for rows, columns, depth in ((70, 50, 90), (33, 129, 47)):
        arrays = {
            key: draw.integers(0, 2, shape, np.uint8) << 7 | draw.integers(0, 0x7B, shape, np.uint8)
            for key, shape in (("A", (rows, depth)), ("B", (columns, depth)))
        }
        wanted = decoded(arrays["A"], left) @ decoded(arrays["B"], right).T
        for found in (
            kernel.interpret(**arrays, sizes=wanted.shape),
            emulation.check(kernel, sizes=wanted.shape, **arrays),
        ):
            assert np.linalg.norm(found - wanted) <= 1e-6 * np.linalg.norm(wanted)
