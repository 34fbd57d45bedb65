"""Rows as whole vectors and their ends: rows that begin anywhere, arrays that begin differently,
loops that go through less than a row.
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
from selector.lowering.kernels import split_kernels
from selector.runtime import nvrtc
from selector.simulate import simulate
from selector.targets import find_target

F16, F32 = hl.Float(16), hl.Float(32)
x, y = hl.Var("x"), hl.Var("y")
Arrays = dict[str, Any]
Made = tuple[hl.Func, Callable[[Arrays], Any]]
EPSILON = 1e-5
SPREAD = 1 << 17  # elements of a row that several blocks have


def params(*names: str, element: Any = F16) -> list[Any]:
    return [hl.ImageParam(element, 1 if n in "wb" else 2, n) for n in names]


def layer_norm() -> Made:
    """Of a sum, with weights: five arrays."""
    a, r, w, b = params("a", "r", "w", "b")
    out, sums, total, spread = (hl.Func(n) for n in ("out", "sums", "total", "spread"))
    k, n = hl.RDom([(0, a.width())]), hl.f32(a.width())
    sums[x, y] = hl.f32(a[x, y]) + hl.f32(r[x, y])
    total[y] += sums[k, y]
    away = sums[k, y] - total[y] / n
    spread[y] += away * away
    normal = (sums[x, y] - total[y] / n) / hl.sqrt(spread[y] / n + hl.f32(EPSILON))
    out[x, y] = hl.cast(F16, normal * hl.f32(w[x]) + hl.f32(b[x]))

    def truth(v: Arrays) -> Any:
        s = v["a"] + v["r"]
        d = s - s.mean(1, keepdims=True)
        return d / np.sqrt((d * d).mean(1, keepdims=True) + EPSILON) * v["w"] + v["b"]

    return out, truth


def wider() -> Made:
    """Halves in, floats out: what is loaded lies closer than what is stored."""
    a, w = params("a", "w")
    out, squares = hl.Func("out"), hl.Func("squares")
    k, n = hl.RDom([(0, a.width())]), hl.f32(a.width())
    squares[y] += hl.f32(a[k, y]) * hl.f32(a[k, y])
    out[x, y] = hl.f32(a[x, y]) * hl.f32(w[x]) / hl.sqrt(squares[y] / n + hl.f32(EPSILON))

    def truth(v: Arrays) -> Any:
        a = v["a"]
        return a * v["w"] / np.sqrt((a * a).mean(1, keepdims=True) + EPSILON)

    return out, truth


def of_half() -> Made:
    """What sums up half of a row, for all of it: exponentials of the other half are not summed."""
    (a,) = params("a", element=F32)
    out, total = hl.Func("out"), hl.Func("total")
    k = hl.RDom([(0, (a.width() + 1) / 2)])
    total[y] += hl.exp(a[k, y])
    out[x, y] = hl.exp(a[x, y]) / total[y]

    def truth(v: Arrays) -> Any:
        e = np.exp(v["a"])
        return e / e[:, : (e.shape[1] + 1) // 2].sum(1, keepdims=True)

    return out, truth


def neighbours() -> Made:
    """The elements of a row beside each other: no such loops."""
    (a,) = params("a", element=F32)
    out, total = hl.Func("out"), hl.Func("total")
    k = hl.RDom([(0, a.width() - 1)])
    total[y] += hl.abs(a[k + 1, y] - a[k, y])
    out[x, y] = a[x, y] / (1 + total[y])
    return out, lambda v: v["a"] / (1 + np.abs(np.diff(v["a"], axis=1)).sum(1, keepdims=True))


def heavy() -> Made:
    """Weights of more bytes, which all rows share: vectors of the rows are as without them."""
    (a,), (w,) = params("a"), params("w", element=F32)
    out, squares = hl.Func("out"), hl.Func("squares")
    k, n = hl.RDom([(0, a.width())]), hl.f32(a.width())
    squares[y] += hl.f32(a[k, y]) * hl.f32(a[k, y])
    normal = hl.f32(a[x, y]) / hl.sqrt(squares[y] / n + hl.f32(EPSILON))
    out[x, y] = hl.cast(F16, normal * w[x])
    return out, wider()[1]


MADE = [layer_norm, wider, of_half, neighbours, heavy]
SHAPES = [(1, 1), (3, 7), (5, 61), (2, 1001), (9, 256), (3, 1024)]


def kernel_of(make: Callable[[], Made], width: int | None) -> Any:
    if width is None:
        return hb.compile(make()[0], target="sm_90a", schedule="auto")
    shape = (8 if width == SPREAD else 640, width)
    sizes = {"a": shape, "out": shape}
    return hb.compile(make()[0], target="sm_90a", schedule="auto", sizes=sizes)


def data_of(kernel: Any, shape: tuple[int, int], pitches: dict[str, int]) -> Arrays:
    """Random arrays whose rows are so many elements longer than they have to be."""
    rng, found = np.random.default_rng(7), Arrays()
    for b in kernel.plan.buffers:
        if b.name.startswith("out"):
            continue
        own = shape if len(b.dims) == 2 else shape[1:]
        wide = rng.standard_normal((*own[:-1], own[-1] + pitches.get(b.name, 0)))
        kind = np.float16 if "float16" in str(b.type) else np.float32
        found[b.name] = wide.astype(kind)[..., : own[-1]]
    return found


def close(found: Any, wanted: Any) -> bool:
    error = np.abs(found.astype(float) - wanted).max() / max(1e-9, np.abs(wanted).max())
    return bool(error <= (1e-3 if found.dtype == np.float16 else 4e-6))


@EMULATED
@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("width", [None, 96, 1024])
def test_rows_may_begin_anywhere(make: Callable[[], Made], width: int | None) -> None:
    kernel, truth = kernel_of(make, width), make()[1]
    for shape in SHAPES:
        if make is neighbours and shape[1] == 1:
            continue
        for pitches in ({}, {"a": 3, "r": 6}, {"a": 8 - shape[1] % 8}):
            data = data_of(kernel, shape, pitches)
            wanted = truth({name: v.astype(float) for name, v in data.items()})
            found = check(kernel, sizes=shape, **data)
            assert close(found, wanted), (shape, pitches)


@pytest.mark.parametrize("make", MADE)
def test_the_simulator_agrees(make: Callable[[], Made]) -> None:
    kernel, truth = kernel_of(make, 1024), make()[1]
    kernels, plan = emit_kernels(kernel.module, find_target("sm_90a"))
    data = data_of(kernel, (3, 1001), {"a": 3})
    found = simulate(kernels, plan, data, (3, 1001))
    assert not found.faults
    (values,) = found.outputs.values()
    assert close(values, truth({name: v.astype(float) for name, v in data.items()}))


def text_of(make: Callable[[], Made], width: int) -> str:
    return str(kernel_of(make, width).source)


def test_no_lane_of_a_row_is_tested() -> None:
    for make in MADE[:3]:
        text = text_of(make, 1024)
        assert "row_first" in text
        assert "row_together" in text
        assert "<= a_extent_0" not in text.replace("&& a_extent_0 <= ", "")
    assert "row_first" not in text_of(neighbours, 1024)


def test_what_is_computed_again_stays() -> None:
    assert "row_kept_value_1" in text_of(layer_norm, 1024)  # the sum, and how far it is from all
    assert "row_kept_value" not in text_of(wider, 1024)


def test_what_all_rows_share_says_nothing_of_threads() -> None:
    """Eight halves at once, and up to 32 of a thread, which keeps half as many more."""
    text = text_of(heavy, 1024)
    assert "row_kept_0[48]" in text
    assert "float near_" in text
    assert "% 32" in text


def test_as_much_stays_of_a_long_row_as_a_large_block_has_registers_for() -> None:
    assert "row_kept_0[56]" in text_of(softmax, 50_257)


@pytest.mark.nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("make", MADE)
def test_next_to_nothing_spills(make: Callable[[], Made]) -> None:
    """A few words may, of five arrays and where floats are stored: more warps are worth more."""
    most = {layer_norm: 16, wider: 32}.get(make, 0)
    for width in (96, 1024):
        usage = nvrtc.resource_usage(nvrtc.compile_to_cubin(text_of(make, width), "sm_90a"))
        assert all(u.stack_bytes <= most for u in usage.values())
    assert len(split_kernels(kernel_of(make, 1024).module).kernels) == 1


def softmax() -> Made:
    (a,) = params("a")
    out, peak, weight, total = (hl.Func(n) for n in ("out", "peak", "weight", "total"))
    k = hl.RDom([(0, a.width())])
    peak[y] = hl.f32(-1e30)
    peak[y] = hl.max(peak[y], hl.f32(a[k, y]))
    weight[x, y] = hl.exp(hl.f32(a[x, y]) - peak[y])
    total[y] += weight[k, y]
    out[x, y] = hl.cast(F16, weight[x, y] / total[y])

    def truth(v: Arrays) -> Any:
        e = np.exp(v["a"] - v["a"].max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    return out, truth


def softmax_of_floats() -> Made:
    (a,) = params("a", element=F32)
    out, total, k = hl.Func("out"), hl.Func("total"), hl.RDom([(0, a.width())])
    total[y] += hl.exp(a[k, y])
    out[x, y] = hl.exp(a[x, y]) / total[y]
    return out, lambda v: np.exp(v["a"]) / np.exp(v["a"]).sum(1, keepdims=True)


def log_of_sums() -> Made:
    (a,) = params("a")
    out, total, k = hl.Func("out"), hl.Func("total"), hl.RDom([(0, a.width())])
    total[y] += hl.exp(hl.f32(a[k, y]))
    out[x, y] = hl.cast(F16, hl.f32(a[x, y]) - hl.log(total[y]))
    return out, lambda v: v["a"] - np.log(np.exp(v["a"]).sum(1, keepdims=True))


def less_one() -> Made:
    """Where a sum is a term, what is left of it may be small."""
    (a,) = params("a")
    out, total, k = hl.Func("out"), hl.Func("total"), hl.RDom([(0, a.width())])
    total[y] += hl.exp(hl.f32(a[k, y]))
    out[x, y] = hl.cast(F16, hl.exp(hl.f32(a[x, y])) / (total[y] - 1))
    return out, lambda v: np.exp(v["a"]) / (np.exp(v["a"]).sum(1, keepdims=True) - 1)


def test_exponentials_are_as_exact_as_what_is_made_of_their_sum() -> None:
    assert "expf(" not in text_of(softmax, 1024)
    for make in (softmax_of_floats, log_of_sums, less_one):
        assert "expf(" in text_of(make, 1024)


@EMULATED
@pytest.mark.parametrize("make", [softmax, layer_norm, wider, of_half])
def test_a_long_row_has_a_cluster(make: Callable[[], Made]) -> None:
    kernel, truth = kernel_of(make, SPREAD), make()[1]
    assert "__cluster_dims__(8, 1, 1)" in kernel.source
    assert [launch.cluster for launch in kernel.plan.launches] == [8]
    for shape in ((3, 7), (2, 1001), (1, 40_003), (1, SPREAD + 4096 * 8 * 2 + 5)):
        data = data_of(kernel, shape, {"a": 3})
        wanted = truth({name: v.astype(float) for name, v in data.items()})
        assert close(check(kernel, sizes=shape, **data), wanted), shape


def test_the_simulator_agrees_on_clusters() -> None:
    kernel, truth = kernel_of(softmax, SPREAD), softmax()[1]
    kernels, plan = emit_kernels(kernel.module, find_target("sm_90a"))
    data = data_of(kernel, (2, 9001), {"a": 3})
    found = simulate(kernels, plan, data, (2, 9001))
    assert not found.faults
    (values,) = found.outputs.values()
    assert close(values, truth({name: v.astype(float) for name, v in data.items()}))


def test_few_whole_rows_have_clusters_on_newer_gpus() -> None:
    assert "__cluster_dims__" not in text_of(neighbours, SPREAD)
    assert "__cluster_dims__" not in text_of(softmax, 1 << 14)
    many = {"a": (640, SPREAD), "out": (640, SPREAD)}
    source = hb.compile(softmax()[0], target="sm_90a", schedule="auto", sizes=many).source
    assert "__cluster_dims__" not in source
    sizes = {"a": (8, SPREAD), "out": (8, SPREAD)}
    old = hb.compile(softmax()[0], target="sm_80", schedule="auto", sizes=sizes)
    assert "__cluster_dims__" not in old.source


@EMULATED
@pytest.mark.parametrize("count", [16_385, 40_003])
@pytest.mark.parametrize("begin", [0, 1])
def test_parts_of_a_row_end_where_the_next_ones_begin(begin: int, count: int) -> None:
    """Loops of fewer turns than the array has elements left."""
    a, total, out = hl.ImageParam(F32, 1, "a"), hl.Func("total"), hl.Func("out")
    r = hl.RDom(a)
    total[()] += a[r]
    out[x] = total[()]
    kernel = hb.compile(out, target="sm_90a", schedule="auto", sizes={"a": (1 << 24,), "out": (1,)})
    data = np.random.default_rng(count).uniform(0, 1, count + begin).astype(np.float32)[begin:]
    found = check(kernel, a=data, sizes=(1,))
    assert np.allclose(found, data.astype(np.float64).sum(), rtol=1e-6)
