"""Products of single floats on tensor units, rounded to tf32: only where a user allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import emulation
import halide as hl
import numpy as np
import pipelines as p
import pytest
from numpy.typing import NDArray

import halide_bridge as hb
from selector.diagnostics import SelectionError
from selector.gpu.codegen.program import emit_kernels
from selector.ir.tf32 import to_tf32
from selector.simulate import simulate

pytestmark = pytest.mark.verified

Array = NDArray[Any]
F32 = hl.Float(32)
TF32 = ("tf32",)
EXACT = 1e-6  # of sums in single floats


def singles(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def correlated(image: Array, taps: Array, stride: int = 1) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(image.astype(np.float64), taps.shape)
    return np.einsum("yxij,ij->yx", windows[::stride, ::stride], taps.astype(np.float64))


def off(found: Array, wanted: Array) -> float:
    assert found.shape == wanted.shape
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def simulated(kernel: Any, shape: tuple[int, ...], arrays: dict[str, Array]) -> Array:
    """By the simulator of the kernel IR, which finds nothing wrong."""
    kernels, plan = emit_kernels(kernel.module, kernel.target)
    found = simulate(kernels, plan, arrays, shape)
    assert found.faults == ()
    (output,) = found.outputs.values()
    return output


def blocks(kernel: Any) -> set[str]:
    return {u.block.instruction for u in kernel.report.updates if u.block is not None}


def phased(image: Array, taps: Array) -> Array:
    return np.stack([correlated(image, taps[None, :, i]) for i in range(2)], axis=-1)


SCHEDULED: dict[str, tuple[Callable[[], p.Case], Array, Array, Callable[[Array, Array], Array]]] = {
    "staged": (lambda: p.gemm_staged(p.F32), singles(1, 130, 96), singles(2, 96, 133), np.matmul),
    "simple": (lambda: p.gemm_simple(p.F32), singles(1, 33, 37), singles(2, 37, 45), np.matmul),
    "one dimension": (
        lambda: p.conv1d(31, kind=F32), singles(1, 5, 330), singles(2, 31),
        lambda i, k: correlated(i, k[None]),
    ),
    "one dimension of memory": (
        lambda: p.conv1d(9, kind=F32, staged=False), singles(1, 3, 265), singles(2, 9),
        lambda i, k: correlated(i, k[None]),
    ),
    "two dimensions": (
        lambda: p.conv2d(5, lanes=128, kind=F32), singles(1, 21, 135), singles(2, 5, 5), correlated
    ),
    "stride": (
        lambda: p.downsample(8, kind=F32), singles(1, 26, 528), singles(2, 8, 8),
        lambda i, k: correlated(i, k, 2),
    ),
    "phases": (lambda: p.upsample(8, kind=F32), singles(1, 5, 133), singles(2, 4, 2), phased),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEDULED)
def test_what_halves_can_do_single_floats_can(name: str) -> None:
    """Selected, and the exact sums of operands that are rounded so."""
    make, first, second, meaning = SCHEDULED[name]
    case = make().mark()
    kernel = hb.compile(case.outputs, target="sm_80", instructions=TF32)
    assert blocks(kernel) == {"mma.m16n8k8.tf32.f32"}
    names = dict(zip([i.name() for i in case.inputs], (first, second), strict=True))
    wanted = meaning(to_tf32(first).astype(np.float64), to_tf32(second).astype(np.float64))
    found = emulation.check(kernel, sizes=wanted.shape, **names)
    assert off(found, wanted) <= EXACT
    assert off(simulated(kernel, wanted.shape, names), wanted) <= EXACT
    assert off(found, meaning(first.astype(np.float64), second.astype(np.float64))) > 1e-5


@pytest.mark.parametrize("allowed", [None, ("mma",), ("wmma", "mma")])
def test_nothing_is_rounded_unasked(allowed: tuple[str, ...] | None) -> None:
    case = p.gemm_staged(p.F32).mark()
    with pytest.raises(SelectionError) as error:
        hb.compile(case.outputs, target="sm_80", instructions=allowed)
    assert "tf32 has 11 bits of their 24" in error.value.why
    assert 'instructions=("tf32",)' in error.value.hint
    assert "hb.split_product" in error.value.hint


def test_halves_lose_nothing() -> None:
    """They are single floats in the update, whose 11 bits tf32 has."""
    case = p.gemm_staged(p.F16).mark()
    kernel = hb.compile(case.outputs, target="sm_80", instructions=TF32)
    assert blocks(kernel) == {"mma.m16n8k8.tf32.f32"}
    a, b = singles(1, 40, 64).astype(np.float16), singles(2, 64, 24).astype(np.float16)
    found = emulation.check(kernel, sizes=(40, 24), A=a, B=b)
    assert off(found, a.astype(np.float64) @ b) <= EXACT


def product(along: bool) -> hl.Func:
    """B with its columns, or its rows, along memory."""
    x, y = hl.Var("x"), hl.Var("y")
    a, b = (hl.ImageParam(F32, 2, name) for name in "AB")
    out, total = hl.Func("out"), hl.Func("total")
    k = hl.RDom([(0, a.dim(0).extent())], "k")
    total[x, y] += a[k, y] * (b[k, x] if along else b[x, k])
    out[x, y] = hl.max(total[x, y], 0.0)
    return out


@pytest.mark.parametrize("along", [False, True])
@pytest.mark.parametrize("size", [(70, 45, 100), (129, 260, 37)])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_products_that_nobody_scheduled(
    along: bool, size: tuple[int, int, int], target: str
) -> None:
    m, n, k = size
    kernel = hb.compile(
        product(along), target=target, schedule="auto", sizes=(2048, 2048), instructions=TF32
    )
    (block,) = blocks(kernel)
    assert block.startswith("wgmma" if target == "sm_90a" else "mma.m16n8k8.tf32.f32")
    a, b = singles(1, m, k), singles(2, k, n)
    wanted = np.maximum(to_tf32(a).astype(np.float64) @ to_tf32(b), 0)
    given = np.ascontiguousarray(b.T) if along else b
    assert off(emulation.check(kernel, sizes=(m, n), A=a, B=given), wanted) <= EXACT
    assert off(simulated(kernel, (m, n), {"A": a, "B": given}), wanted) <= EXACT


def edged(taps: tuple[int, int]) -> hl.Func:
    """A filter of an image that goes on as its edges."""
    x, y = hl.Var("x"), hl.Var("y")
    image, weights = hl.ImageParam(F32, 2, "I"), hl.ImageParam(F32, 2, "K")
    out, total = hl.Func("out"), hl.Func("total")
    r = hl.RDom([(0, taps[1]), (0, taps[0])], "r")
    inside = hl.BoundaryConditions.repeat_edge(image)
    total[x, y] += inside[x + r.x - taps[1] // 2, y + r.y - taps[0] // 2] * weights[r.x, r.y]
    out[x, y] = total[x, y]
    return out


@pytest.mark.parametrize("taps", [(11, 3), (7, 5), (1, 31)])
def test_filters_that_nobody_scheduled(taps: tuple[int, int]) -> None:
    kernel = hb.compile(edged(taps), target="sm_90a", schedule="auto", instructions=TF32)
    assert blocks(kernel) == {"mma.m16n8k8.tf32.f32"}
    picture, weighted = singles(1, 61, 203), singles(2, *taps)
    wide = np.pad(to_tf32(picture), [(n // 2, n - 1 - n // 2) for n in taps], mode="edge")
    found = emulation.check(kernel, sizes=picture.shape, I=picture, K=weighted)
    assert off(found, correlated(wide, to_tf32(weighted))) <= EXACT


def test_filters_that_gain_nothing_are_not_rounded() -> None:
    """Memory takes longer than 9 products a pixel on CUDA cores."""
    report = hb.autoschedule(edged((3, 3)), target="sm_90a", instructions=TF32).report
    assert "while its bytes are moved: f32 stays f32" in report
    kernel = hb.compile(edged((3, 3)), target="sm_90a", schedule="auto", instructions=TF32)
    assert not blocks(kernel)


def test_without_leave_they_stay_on_cuda_cores() -> None:
    kernel = hb.compile(product(along=False), target="sm_80", schedule="auto")
    assert not blocks(kernel)


def test_rounding() -> None:
    """11 bits, ties away from zero; what is no number stays none, infinity infinite."""
    step = 2.0**-10
    values = np.array(
        [1 + step / 2, 1 + 0.49 * step, -1 - step / 2, np.inf, 0, 65504, 3e38], np.float32
    )
    found = to_tf32(values)
    np.testing.assert_array_equal(
        found[:6], np.array([1 + step, 1, -1 - step, np.inf, 0, 65504], np.float32)
    )
    assert np.isfinite(found[6])
    assert np.isnan(to_tf32(np.array([np.nan], np.float32))).all()
