"""Lowered modules compute what the algorithm says, at sizes that no tile divides.

The interpreter runs the loops; the references are NumPy in float64, or Halide's own JIT on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np
import pytest
import stock_pipelines
from numpy.typing import NDArray
from pipelines import (
    BF16,
    F16,
    S8,
    U8,
    Case,
    GemmTypes,
    bias_relu,
    conv1d,
    conv1d_paper,
    conv2d,
    downsample,
    gemm_simple,
    gemm_staged,
    matmul_paper,
    upsample,
)

import halide_bridge as hb
import selector.intrinsics  # noqa: F401 - the meaning of math calls
from selector.ir.bfloat16 import from_bits, to_bits
from selector.ir.interpreter import interpret

pytestmark = pytest.mark.verified

Array = NDArray[Any]


def run(case: Case, arrays: dict[str, Array], *shape: int, mark: bool = True) -> Array:
    kind = hb.MemoryType.AMXTile if case.target == "amx" else hb.MemoryType.WMMAAccumulator
    if mark:
        case.mark(kind)
    module = hb.lower(case.outputs, target=case.target)
    (output,) = [b.name for b in module.buffers if b.role.value == "output"]
    return interpret(module, arrays, sizes={output: shape})[output]


def halves(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def assert_close(result: Array, reference: Array, error: float = 2e-3) -> None:
    assert result.shape == reference.shape
    difference = np.linalg.norm(result.astype(np.float64) - reference)
    assert difference <= error * np.linalg.norm(reference)


def correlate(image: Array, taps: Array, stride: int = 1) -> Array:
    """Valid 2-D correlation in float64."""
    windows = np.lib.stride_tricks.sliding_window_view(image.astype(np.float64), taps.shape)
    return np.einsum("yxij,ij->yx", windows[::stride, ::stride], taps.astype(np.float64))


WIDTHS = [1, 255, 256, 257, 1023, 1025]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("staged", [True, False])
def test_conv1d_rows_of_any_width(width: int, staged: bool) -> None:
    image, taps = halves(1, 5, width + 7), halves(2, 8)
    result = run(conv1d(8, staged=staged), {"I": image, "K": taps}, 5, width)
    assert_close(result, correlate(image, taps[None]))


@pytest.mark.parametrize("k", [8, 24, 64, 112])
def test_conv1d_taps(k: int) -> None:
    image, taps = halves(1, 3, 300 + k - 1), halves(2, k)
    assert_close(run(conv1d(k), {"I": image, "K": taps}, 3, 300), correlate(image, taps[None]))


def test_conv1d_by_chunks_of_taps() -> None:
    image, taps = halves(1, 3, 300 + 29), halves(2, 30)
    result = run(conv1d_paper(30), {"I": image, "K": taps}, 3, 300)
    assert_close(result, correlate(image, taps[None]))


@pytest.mark.parametrize("rows", [1, 15, 17])
@pytest.mark.parametrize("tiles", [1, 2])
def test_conv2d_rows_in_registers(rows: int, tiles: int) -> None:
    image, taps = halves(1, rows + 4, 131 + 4), halves(2, 5, 5)
    result = run(conv2d(5, lanes=64, tiles=tiles), {"I": image, "K": taps}, rows, 131)
    assert_close(result, correlate(image, taps))


def test_downsample() -> None:
    image, taps = halves(1, 2 * 9 + 6, 2 * 261 + 6), halves(2, 8, 8)
    result = run(downsample(8), {"I": image, "K": taps}, 9, 261)
    assert_close(result, correlate(image, taps, stride=2)[:9, :261])


def test_upsample() -> None:
    image, taps = halves(1, 5, 130 + 3), halves(2, 4, 2)
    result = run(upsample(8), {"I": image, "K": taps}, 5, 130, 2)
    expected = np.stack([correlate(image, taps[None, :, p]) for p in range(2)], axis=-1)
    assert_close(result, expected)


def test_bias_and_relu() -> None:
    image, taps = halves(1, 5, 300 + 3), halves(2, 4)
    bias = np.random.default_rng(3).standard_normal(300).astype(np.float32)
    result = run(bias_relu(4), {"I": image, "K": taps, "bias": bias}, 5, 300)
    assert_close(result, np.maximum(correlate(image, taps[None]) + bias, 0), 5e-3)


GEMMS: dict[str, Callable[[], Case]] = {
    "simple": lambda: gemm_simple(F16),
    "simple_wide": lambda: gemm_simple(F16, tile=(32, 64)),
    "staged": lambda: gemm_staged(F16),
    "staged_wide": lambda: gemm_staged(F16, tile=(32, 64)),
}
SHAPES = [(128, 128, 64), (129, 127, 33), (7, 5, 3), (131, 257, 97)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", GEMMS)
def test_gemm_of_any_size(name: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = halves(1, m, k), halves(2, k, n)
    result = run(GEMMS[name](), {"A": a, "B": b}, m, n)
    assert_close(result, a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize("make", [gemm_simple, gemm_staged])
def test_gemm_reads_nothing_beyond_its_reduction(make: Callable[..., Case]) -> None:
    """B may be taller than the reduction; what lies below must not leak in, not even a NaN."""
    a, b = halves(1, 40, 33), halves(2, 64, 50)
    b[33:] = np.nan
    result = run(make(F16), {"A": a, "B": b}, 40, 50)
    assert_close(result, a.astype(np.float64) @ b[:33].astype(np.float64))


@pytest.mark.parametrize("types", [S8, U8])
def test_integer_gemm_is_exact(types: GemmTypes) -> None:
    random = np.random.default_rng(5)
    dtype = np.int8 if types is S8 else np.uint8
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max + 1
    a = random.integers(low, high, (60, 45)).astype(dtype)
    b = random.integers(low, high, (45, 70)).astype(dtype)
    result = run(gemm_staged(types), {"A": a, "B": b}, 60, 70)
    assert np.array_equal(result, a.astype(np.int64) @ b.astype(np.int64))


def test_bfloat16_gemm() -> None:
    a = to_bits(np.random.default_rng(1).standard_normal((40, 50)))
    b = to_bits(np.random.default_rng(2).standard_normal((50, 60)))
    result = run(gemm_staged(BF16), {"A": a, "B": b}, 40, 60)
    assert_close(result, from_bits(a).astype(np.float64) @ from_bits(b).astype(np.float64))


def test_the_papers_matmul() -> None:
    a = to_bits(np.random.default_rng(1).standard_normal((32, 32)))
    b = to_bits(np.random.default_rng(2).standard_normal((32, 16)))
    result = run(matmul_paper(), {"A": a, "B": b}, 32, 16)
    assert_close(result, from_bits(a).astype(np.float64) @ from_bits(b).astype(np.float64))


def jit(case: Case, image: Array, *shape: int) -> Array:
    """What Halide's JIT computes; sizes innermost first, as Halide has them."""
    case.inputs[0].set(hl.Buffer(image))
    return np.array(case.outputs[0].realize(list(reversed(shape))))


@pytest.mark.parametrize("shape", [(32, 16), (64, 40), (33, 65)])
def test_a_sliding_window_on_the_cpu(shape: tuple[int, int]) -> None:
    image = (
        np.random.default_rng(1).integers(0, 1000, (shape[0] + 2, shape[1] + 2)).astype(np.uint16)
    )
    result = run(stock_pipelines.blur(), {"I": image}, *shape)
    assert np.array_equal(result, jit(stock_pipelines.blur(), image, *shape))


def test_a_scatter() -> None:
    image = np.random.default_rng(1).integers(0, 256, (13, 17)).astype(np.uint8)
    result = run(stock_pipelines.histogram(), {"I": image}, 256)
    assert np.array_equal(result, np.bincount(image.ravel(), minlength=256))


def test_a_tuple_of_outputs() -> None:
    image = np.random.default_rng(1).random((9, 21)).astype(np.float32)
    module = hb.lower(stock_pipelines.edges_tuple().outputs, target="amx")
    sizes = {"edges.0": (9, 21), "edges.1": (9, 21)}
    result = interpret(module, {"I": image}, sizes=sizes)
    padded = np.pad(image, ((0, 0), (1, 1)), mode="edge")
    step = padded[:, 2:] - padded[:, :-2]
    assert np.array_equal(result["edges.0"], step)
    assert np.array_equal(result["edges.1"], np.where(abs(step) > 0.5, 255, 0))


def test_a_schedule_without_tensor_statements() -> None:
    image, taps = halves(1, 11, 50 + 7), halves(2, 8)
    result = run(stock_pipelines.simt_conv(), {"I": image, "K": taps}, 11, 50)
    assert_close(result, correlate(image, taps[None]))


Term = Callable[[hl.Expr, hl.Expr, hl.Expr, hl.Expr], hl.Expr]

# Of A[r, y] and C[r, y], in rows of five, and B[r] and B[r + 1], in nine: beyond the last of five
# taps each holds something that must not be added.
TERMS: dict[str, Term] = {
    "taps at a sum, with zero for a side": lambda a, c, b, d: hl.select(
        hl.Var("y") < 3, d, hl.f32(0)
    ),
    "taps, with one for a side": lambda a, c, b, d: hl.select(d < 0, b, 1.0) * a,
    "taps and one": lambda a, c, b, d: (b + 1.0) * a,
    "two rows": lambda a, c, b, d: a + c,
    "two rows, twice": lambda a, c, b, d: (a + c) * 2.0,
}


@pytest.mark.parametrize("name", TERMS)
def test_a_term_counts_to_the_last_tap_alone(name: str) -> None:
    x, y, ro, ri = hl.Var("x"), hl.Var("y"), hl.RVar("ro"), hl.RVar("ri")
    a, b, c = (hl.ImageParam(hl.Float(32), d, n) for d, n in ((2, "A"), (1, "B"), (2, "C")))
    for rows in (a, c):
        rows.dim(0).set_extent(5)
    r = hl.RDom([(0, 5)], "r")

    def pipeline() -> hl.Func:
        out = hl.Func("out")
        out[x, y] = 0.0
        out[x, y] += TERMS[name](a[r, y], c[r, y], b[r], b[r + 1])
        return out

    scheduled = pipeline()
    scheduled.update().split(r.x, ro, ri, 4).atomic().vectorize(ri)
    random = np.random.default_rng(1)
    shapes = {"A": (3, 5), "B": (9,), "C": (3, 5)}
    arrays = {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    module = hb.lower(scheduled, target="amx")
    read = {m.name: arrays[m.name] for m in module.buffers if m.name in arrays}
    result = interpret(module, read, sizes={"out": (3, 2)})["out"]
    for p in (a, b, c):
        p.set(hl.Buffer(arrays[p.name()]))
    assert_close(result, np.array(pipeline().realize([2, 3])), 1e-5)
