"""Kernels of rows: what threads have found of a row goes from register to register, and what they
have read of it stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED

import halide_bridge as hb
from selector.gpu.codegen.program import emit_kernels
from selector.ir.nodes import Allocate
from selector.ir.parser import parse_module
from selector.ir.traverse import walk_stmt
from selector.lowering.joined_rows import joined_rows
from selector.lowering.kept_rows import KEPT
from selector.lowering.kernels import split_kernels
from selector.runtime import nvrtc
from selector.simulate import simulate
from selector.targets import find_target

F16, F32, I32 = hl.Float(16), hl.Float(32), hl.Int(32)
x, y = hl.Var("x"), hl.Var("y")
Made = tuple[hl.Func, type, Callable[[Any], Any]]


def row(a: Any) -> hl.RDom:
    return hl.RDom([(0, a.width())])


def softmax() -> Made:
    a, out = hl.ImageParam(F16, 2, "a"), hl.Func("out")
    peak, weight, total, k = hl.Func("peak"), hl.Func("weight"), hl.Func("total"), row(a)
    peak[y] = hl.maximum(hl.f32(a[k, y]))
    weight[x, y] = hl.exp(hl.f32(a[x, y]) - peak[y])
    total[y] += weight[k, y]
    out[x, y] = hl.cast(F16, weight[x, y] / total[y])

    def truth(v: Any) -> Any:
        e = np.exp(v - v.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    return out, np.float16, truth


def layer_norm() -> Made:
    a, out, mean, spread = hl.ImageParam(F32, 2, "a"), *(hl.Func(n) for n in ("out", "mean", "sp"))
    k, n = row(a), hl.f32(a.width())
    mean[y] += a[k, y]
    away = a[k, y] - mean[y] / n
    spread[y] += away * away
    out[x, y] = (a[x, y] - mean[y] / n) / hl.sqrt(spread[y] / n + hl.f32(1e-5))

    def truth(v: Any) -> Any:
        d = v - v.mean(1, keepdims=True)
        return d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5)

    return out, np.float32, truth


def log_of_sums() -> Made:
    """Of a row remains one number."""
    a, out, peak, total = hl.ImageParam(F32, 2, "a"), *(hl.Func(n) for n in ("out", "peak", "sum"))
    k = row(a)
    peak[y] = hl.maximum(a[k, y])
    total[y] += hl.exp(a[k, y] - peak[y])
    out[y] = peak[y] + hl.log(total[y])
    return out, np.float32, lambda v: np.log(np.exp(v).sum(1))


def smallest() -> Made:
    """Integers, of some elements."""
    a, out, low, k = hl.ImageParam(I32, 2, "a"), hl.Func("out"), hl.Func("low"), None
    k = row(a)
    k.where(a[k, y] > 3)
    low[y] = 1 << 20
    low[y] = hl.min(low[y], a[k, y])
    out[x, y] = a[x, y] - low[y]

    def truth(v: Any) -> Any:
        return v - np.where(v > 3, v, 1 << 20).min(1, keepdims=True)

    return out, np.int32, truth


MADE = [softmax, layer_norm, log_of_sums, smallest]
CLASSES = (None, 64, 512, 4096)


def kernel_of(make: Callable[[], Made], width: int | None) -> Any:
    sizes = None if width is None else {"a": (64, width)}
    return hb.compile(make()[0], target="sm_90a", schedule="auto", sizes=sizes)


def data_of(kind: type, shape: tuple[int, int]) -> Any:
    data = np.random.default_rng(1).standard_normal(shape) * 4
    return data.astype(kind)


def close(found: Any, wanted: Any, kind: type) -> bool:
    error = np.abs(found.astype(float) - wanted).max() / max(1e-9, np.abs(wanted).max())
    return bool(error <= {np.float16: 1e-3, np.float32: 2e-6, np.int32: 0}[kind])


@EMULATED
@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("width", CLASSES)
def test_the_text_is_right_at_any_size(make: Callable[[], Made], width: int | None) -> None:
    _, kind, truth = make()
    kernel = kernel_of(make, width)
    lengths = [1, 8, 33, 100, 521, *([4111] if width in (None, 4096) else [])]
    for rows, length in zip((1, 33, 9, 3, 2, 1), lengths, strict=False):
        data = data_of(kind, (rows, length))
        wanted = truth(data.astype(np.int64 if kind is np.int32 else float))
        found = check(kernel, a=data, sizes=wanted.shape)
        assert close(found, wanted, kind), (rows, length)


@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("flags", [True, False])
def test_the_simulator_agrees(make: Callable[[], Made], flags: bool) -> None:
    _, kind, truth = make()
    for width, shape in ((64, (3, 50)), (512, (3, 640)), (4096, (2, 1100))):
        kernels, plan = emit_kernels(kernel_of(make, width).module, find_target("sm_90a"))
        data = data_of(kind, shape)
        wanted = truth(data.astype(np.int64 if kind is np.int32 else float))
        found = simulate(kernels, plan, {"a": data}, wanted.shape, flags=flags)
        assert not found.faults
        (values,) = found.outputs.values()
        assert close(values, wanted, kind), shape


@pytest.mark.parametrize(("width", "barriers"), [(64, 0), (1024, 0), (4096, 4), (20000, 4)])
def test_a_row_of_a_warp_has_no_barrier(width: int, barriers: int) -> None:
    kernel = kernel_of(softmax, width)
    assert kernel.source.count("__syncthreads") == barriers
    assert "__shfl_xor_sync" in kernel.source


@pytest.mark.parametrize("make", MADE[:3])
def test_what_is_read_again_stays(make: Callable[[], Made]) -> None:
    (kernel,) = split_kernels(kernel_of(make, 1024).module).kernels
    assert any(isinstance(s, Allocate) and s.name.startswith(KEPT) for s in walk_stmt(kernel.body))


@pytest.mark.nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("width", CLASSES)
def test_nothing_spills(make: Callable[[], Made], width: int | None) -> None:
    usage = nvrtc.resource_usage(nvrtc.compile_to_cubin(kernel_of(make, width).source, "sm_90a"))
    assert all(u.local_accesses == 0 for u in usage.values())


def test_a_row_that_is_read_once_does_not_stay() -> None:
    a, out, total = hl.ImageParam(F32, 2, "a"), hl.Func("out"), hl.Func("total")
    total[y] += a[row(a), y]
    out[y] = total[y]
    kernel = hb.compile(out, target="sm_90a", schedule="auto")
    assert "shfl" in kernel.source
    assert "row_kept" not in kernel.source


BODY = """
module m
input a: float32 [(0, n, 1)]
output out: float32 [(0, n, 1)]
scalar m0: int32
body {
 gpu_block<CUDA> (b, 0, 1) {
  allocate s[float32 * 64] in GPUShared
  gpu_thread<CUDA> (v, 0, 2) {
   gpu_thread<CUDA> (t, 0, 32) {
    s[v*32 + t] = a[v*32 + t]
   }
  }
  allocate r[float32 * 2] in GPUShared
  gpu_thread<CUDA> (y, 0, 2) {
   allocate p[float32 * 1]
   p[0] = FIRST
   for (k, 0, 32) {
    if (k < m0) {
     p[0] = p[0] + s[INDEX]
    }
   }
   r[y] = p[0]
  }
  gpu_thread<CUDA> (w, 0, 2) {
   gpu_thread<CUDA> (u, 0, 32) {
    out[w*32 + u] = a[w*32 + u] * r[READ]
   }
  }
 }
}
"""


def joined(index: str = "y*32 + k", read: str = "w", first: str = "0.000000f") -> bool:
    text = BODY.replace("INDEX", index).replace("READ", read).replace("FIRST", first)
    (grid,) = (s for s in walk_stmt(parse_module(text).body) if getattr(s, "name", "") == "b")
    return joined_rows(grid.body)[1] is not None  # pyright: ignore


def test_rows_are_joined_where_each_thread_reads_its_own() -> None:
    assert joined()
    assert joined(first="1.000000f")
    assert not joined(read="1 - w")  # another row
    assert not joined(index="k*2 + y")  # of threads that do not lie side by side
    assert not joined(index="k")  # some of the parts, for both
    assert not joined(index="y*32 + k/2*2")
