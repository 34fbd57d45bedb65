"""Sums over rows, columns and whole images: threads share them, whatever their sizes are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check

import halide_bridge as hb

pytestmark = pytest.mark.verified

F32, U8 = hl.Float(32), hl.UInt(8)
x, y, c, n = (hl.Var(name) for name in "xycn")
Made = tuple[hl.Func, Callable[[Any], Any], Callable[[Any], tuple[int, ...]]]


def rows_sum() -> Made:
    a, out = hl.ImageParam(F32, 2, "a"), hl.Func("out")
    out[y] += a[hl.RDom([(0, a.width())])[0], y]
    return out, lambda v: v.sum(1), lambda s: s[:1]


def log_softmax() -> Made:
    a, out, r = hl.ImageParam(F32, 2, "a"), hl.Func("out"), None
    r = hl.RDom([(0, a.width())])
    top, total = hl.Func("top"), hl.Func("total")
    top[y] = hl.maximum(a[r, y])
    total[y] += hl.exp(a[r, y] - top[y])
    out[x, y] = a[x, y] - top[y] - hl.log(total[y])

    def truth(v: Any) -> Any:
        away = v - v.max(1, keepdims=True)
        return away - np.log(np.exp(away).sum(1, keepdims=True))

    return out, truth, lambda s: s


def logsumexp() -> Made:
    a, out = hl.ImageParam(F32, 2, "a"), hl.Func("out")
    r = hl.RDom([(0, a.width())])
    top, total = hl.Func("top"), hl.Func("total")
    top[y] = hl.maximum(a[r, y])
    total[y] = hl.sum(hl.exp(a[r, y] - top[y]))
    out[y] = top[y] + hl.log(total[y])
    return out, lambda v: np.log(np.exp(v).sum(1)), lambda s: s[:1]


def column_deviations() -> Made:
    a, out = hl.ImageParam(F32, 2, "a"), hl.Func("out")
    r, height = hl.RDom([(0, a.height())]), hl.f32(a.height())
    mean = hl.sum(a[x, r]) / height
    out[x] = hl.sum(a[x, r] * a[x, r]) / height - mean * mean
    return out, lambda v: v.var(0), lambda s: s[1:]


def whole() -> Made:
    a, out, total = hl.ImageParam(F32, 2, "a"), hl.Func("out"), hl.Func("total")
    r = hl.RDom([(0, a.width()), (0, a.height())])
    total[()] += a[r.x, r.y]
    out[x] = total[()] * hl.f32(x + 1)
    return out, lambda v: v.sum() * np.arange(1, 4), lambda s: (3,)


def largest_of_all() -> Made:
    a, out, top = hl.ImageParam(F32, 2, "a"), hl.Func("out"), hl.Func("top")
    r = hl.RDom([(0, a.width()), (0, a.height())])
    top[()] = hl.f32(-1e30)
    top[()] = hl.max(top[()], a[r.x, r.y])
    out[x, y] = a[x, y] / top[()]
    return out, lambda v: v / v.max(), lambda s: s


MADE = [rows_sum, log_softmax, logsumexp, column_deviations, whole, largest_of_all]


@pytest.mark.parametrize("make", MADE)
def test_any_size_is_right(make: Callable[[], Made]) -> None:
    out, truth, sizes = make()
    hb.autoschedule(out, target="sm_80")
    kernel = hb.compile(out, target="sm_80")
    for shape in [(1, 1), (3, 1), (1, 31), (9, 33), (20, 259), (530, 5)]:
        data = np.random.default_rng(1).random(shape, dtype=np.float32)
        result = kernel.interpret(a=data, sizes=sizes(shape))
        assert np.allclose(result, truth(data.astype(np.float64)), rtol=1e-4, atol=1e-5), shape


def planes(interleaved: bool) -> hl.Func:
    """The sum of each channel."""
    a, out = hl.ImageParam(F32, 3, "a"), hl.Func("out")
    if interleaved:
        r = hl.RDom([(0, a.dim(1).extent()), (0, a.dim(2).extent())])
        out[c] += a[c, r.x, r.y]
        out.bound(c, 0, 3)
    else:
        r = hl.RDom([(0, a.dim(0).extent()), (0, a.dim(1).extent())])
        out[c] += a[r.x, r.y, c]
    return out


@pytest.mark.parametrize("interleaved", [True, False])
def test_sums_of_planes(interleaved: bool) -> None:
    out = planes(interleaved)
    hb.autoschedule(out, target="sm_80")
    kernel = hb.compile(out, target="sm_80")
    for height, width in [(1, 1), (9, 70), (20, 5)]:
        shape = (height, width, 3) if interleaved else (3, height, width)
        data = np.random.default_rng(1).random(shape, dtype=np.float32)
        wanted = data.sum((0, 1) if interleaved else (1, 2), dtype=np.float64)
        assert np.allclose(kernel.interpret(a=data, sizes=(3,)), wanted, rtol=1e-4)


def test_rows_of_a_norm_are_one_kernel() -> None:
    out, _, _ = log_softmax()
    report = hb.autoschedule(out, target="sm_80").report
    assert report.count("by the threads of the block that reads it") == 2
    assert hb.compile(out, target="sm_80").source.count("__global__") == 1


def test_a_row_that_two_kernels_read_is_stored() -> None:
    a, out, other, total = (hl.ImageParam(F32, 2, "a"), *(hl.Func(s) for s in ("p", "q", "total")))
    total[y] = hl.sum(a[hl.RDom([(0, a.width())])[0], y])
    out[x, y], other[x, y] = a[x, y] / total[y], a[x, y] - total[y]
    report = hb.autoschedule([out, other], target="sm_80").report
    assert "sum: in a kernel of its own, 128 threads a row" in report


def test_what_is_read_for_several_elements_is_no_sweep() -> None:
    a, b, out = hl.ImageParam(F32, 2, "a"), hl.ImageParam(F32, 2, "b"), hl.Func("out")
    k = hl.RDom([(0, a.width())])
    out[x, y] += a[k, y] * b[x, k]
    assert "sums each" in hb.autoschedule(out, target="sm_80").report
    window, r = hl.Func("window"), hl.RDom([(0, b.width())])
    window[x] += a[x + r, 0]
    assert "sums each" in hb.autoschedule(window, target="sm_80").report


def test_short_sums_stay_with_a_thread() -> None:
    a, out = hl.ImageParam(F32, 2, "a"), hl.Func("out")
    out[y] = hl.sum(a[hl.RDom([(0, 9)])[0], y])
    assert "in registers of the thread" in hb.autoschedule(out, target="sm_80").report


def test_a_row_at_another_place_is_no_row_of_the_reader() -> None:
    a, out, total = hl.ImageParam(F32, 2, "a"), hl.Func("out"), hl.Func("total")
    total[y] = hl.f32(0)
    total[y] += a[hl.RDom([(0, a.width())])[0], y]
    out[x, y] = a[x, y] / (total[y] + total[y + 1])
    assert "total: in a kernel of its own" in hb.autoschedule(out, target="sm_80").report
    data = np.random.default_rng(1).random((6, 40), dtype=np.float32)
    result = hb.compile(out, target="sm_80").interpret(a=data, sizes=(5, 40))
    sums = data.sum(1, keepdims=True)
    assert np.allclose(result, data[:-1] / (sums[:-1] + sums[1:]), rtol=1e-5)


def test_sizes_say_how_many_threads_a_row_has() -> None:
    for width, threads in ((40, 8), (100, 8), (1 << 15, 1024)):
        out, _, _ = log_softmax()
        report = hb.autoschedule(out, target="sm_80", sizes={"a": (64, width)}).report
        assert f"{threads} threads a row" in report


def over_three_dimensions() -> Made:
    a, out, total = hl.ImageParam(F32, 3, "a"), hl.Func("out"), hl.Func("total")
    r = hl.RDom(a)
    total[()] += a[r.x, r.y, r.z]
    out[x] = total[()] + x
    return out, lambda v: v.sum() + np.arange(4), lambda _: (4,)


def over_channels() -> Made:
    a, out = hl.ImageParam(F32, 3, "a"), hl.Func("out")
    out[()] += a[(r := hl.RDom([(0, a.width()), (0, a.height()), (0, 3)])).x, r.y, r.z]
    return out, lambda v: v[:3].sum(), lambda _: ()


def of_each_frame() -> Made:
    a, out = hl.ImageParam(F32, 3, "a"), hl.Func("out")
    r = hl.RDom([(0, a.width()), (0, a.height())])
    out[n] = hl.sum(a[r.x, r.y, n])
    return out, lambda v: v.sum((1, 2)), lambda s: s[:1]


@pytest.mark.parametrize("make", [over_three_dimensions, over_channels, of_each_frame])
def test_of_three_dimensions(make: Callable[[], Made]) -> None:
    out, truth, sizes = make()
    assert "256 threads a row" in hb.autoschedule(out, target="sm_80").report
    kernel = hb.compile(out, target="sm_80")
    for shape in ((3, 21, 300), (5, 9, 17)):
        data = np.random.default_rng(3).random(shape).astype(np.float32)
        found = kernel.interpret(a=data, sizes=sizes(shape))
        assert np.allclose(found, truth(data.astype(float)), rtol=1e-5)


def test_a_sum_that_is_bound_is_computed_once() -> None:
    out, truth, _ = rows_sum()
    out.bound(y, 0, 100)
    hb.autoschedule(out, target="sm_80")
    data = np.random.default_rng(3).random((100, 70)).astype(np.float32)
    found = hb.compile(out, target="sm_80").interpret(a=data)
    assert np.allclose(found, truth(data), rtol=1e-5)


def test_what_one_thread_does_is_told() -> None:
    a, out = hl.ImageParam(F32, 2, "a"), hl.Func("out")
    here = a[(r := hl.RDom(a)).x, r.y]
    out[()] = (hl.f32(0), hl.f32(1))
    out[()] = (out[()][0] + here * out[()][1], out[()][1] * hl.f32(0.99))
    report = hb.autoschedule(out, target="sm_80").report
    assert "one thread: what its updates find" in report


def test_what_all_columns_share_does_not_turn_them() -> None:
    """A factor of each row lies along the rows' numbers, and is read again for each column."""
    a, s, out = hl.ImageParam(F32, 2, "a"), hl.ImageParam(F32, 1, "s"), hl.Func("out")
    r = hl.RDom([(0, a.height())])
    out[x] += a[x, r] * s[r]
    assert "columns a block" in hb.autoschedule(out, target="sm_80").report
    kernel = hb.compile(out, target="sm_80")
    for shape in [(1, 1), (300, 33), (7, 100)]:
        data = np.random.default_rng(1).random(shape, dtype=np.float32)
        scale = np.linspace(0, 1, shape[0], dtype=np.float32)
        assert np.allclose(kernel.interpret(a=data, s=scale, sizes=shape[1:]), scale @ data, 1e-4)


def some_of_an_image() -> Made:
    a, out = hl.ImageParam(F32, 2, "a"), hl.Func("out")
    r = hl.RDom([(0, a.width()), (0, a.height())])
    r.where(a[r.x, r.y] > 0.5)
    out[()] += a[r.x, r.y]
    return out, lambda v: v[v > 0.5].sum(), lambda _: ()


def some_of_rows() -> Made:
    a, out, r = hl.ImageParam(F32, 2, "a"), hl.Func("out"), None
    r = hl.RDom([(0, a.width())])
    r.where(a[r, y] > 0.5)
    out[y] += a[r, y]
    return out, lambda v: np.where(v > 0.5, v, 0).sum(1), lambda s: s[:1]


def two_sums() -> Made:
    a, sums, out = hl.ImageParam(F32, 2, "a"), hl.Func("sums"), hl.Func("out")
    here = a[(r := hl.RDom(a)).x, r.y]
    sums[()] = (hl.f32(0), hl.f32(-1e30))
    sums[()] = (sums[()][0] + here, hl.max(sums[()][1], here))
    out[x, y] = a[x, y] * sums[()][1] / sums[()][0]
    return out, lambda v: v * v.max() / v.sum(), lambda s: s


def two_sums_of_columns() -> Made:
    a, sums, out = hl.ImageParam(F32, 2, "a"), hl.Func("sums"), hl.Func("out")
    here = a[x, hl.RDom([(0, a.height())])[0]]
    sums[x] = (hl.f32(0), hl.f32(0))
    sums[x] = (sums[x][0] + here, sums[x][1] + here * here)
    out[x] = sums[x][1] / sums[x][0]
    return out, lambda v: (v * v).sum(0) / v.sum(0), lambda s: s[1:]


@pytest.mark.parametrize("make", [some_of_an_image, some_of_rows, two_sums, two_sums_of_columns])
def test_of_some_elements_and_of_several_values(make: Callable[[], Made]) -> None:
    out, truth, sizes = make()
    report = hb.autoschedule(out, target="sm_80").report
    assert any(text in report for text in ("threads a row", "columns a block"))
    assert "one thread" not in report
    kernel = hb.compile(out, target="sm_80")
    for shape in ((21, 300), (290, 17)):
        data = np.random.default_rng(3).random(shape).astype(np.float32)
        found = kernel.interpret(a=data, sizes=sizes(shape))
        assert np.allclose(found, truth(data.astype(float)), rtol=1e-4)


def test_a_warp_has_an_element_of_many_dimensions() -> None:
    """Three dimensions of blocks: Halide knows of two in one loop that it is at one place."""
    a, w, out = hl.ImageParam(F32, 4, "a"), hl.ImageParam(F32, 2, "w"), hl.Func("out")
    k, total = hl.RDom([(0, a.dim(0).extent())]), hl.Func("total")
    total[c, x, y, n] += a[k, x, y, n] * w[k, c + x % 2]
    out[c, x, y, n] = total[c, x, y, n]
    shapes = {"a": (2, 3, 4, 70), "w": (6, 70), "out": (2, 3, 4, 5)}
    assert "32 threads an element" in hb.autoschedule(out, target="sm_90a", sizes=shapes).report
    draw = np.random.default_rng(1)
    data = {name: draw.random(shapes[name], dtype=np.float32) for name in ("a", "w")}
    kernel = hb.compile(out, target="sm_90a")
    weights = data["w"][np.arange(5) + np.arange(4)[:, None] % 2]
    truth = np.einsum("nyxk,xck->nyxc", data["a"].astype(float), weights)
    assert np.allclose(kernel.interpret(**data, sizes=truth.shape), truth, rtol=1e-5)


@pytest.mark.parametrize(("columns", "below"), [(4096, 8), (64, 16), (5, 32)])
def test_few_columns_have_more_threads_below_each_other(columns: int, below: int) -> None:
    table, means = hl.ImageParam(hl.Float(32), 2, "table"), hl.Func("means")
    r, x = hl.RDom([(0, table.height())], "r"), hl.Var("x")
    means[x] = hl.sum(table[x, r]) / hl.f32(table.height())
    sizes = {"table": (200_000, columns), "means": (columns,)}
    schedule = hb.autoschedule(means, target="sm_90a", sizes=sizes)
    assert f"split(rl, ro, ri, {below})" in schedule.source
    assert "8 columns a block, 64 threads each" in schedule.report
    kernel = hb.compile(means, target="sm_90a")
    for shape in ((333, columns % 4091), (257, 61), (1, 3)):
        data = np.random.default_rng(0).random(shape).astype(np.float32)
        wanted = data.astype(np.float64).mean(0)
        for run in (kernel.interpret, lambda **a: check(kernel, **a)):
            assert np.allclose(run(table=data, sizes=wanted.shape), wanted, rtol=1e-5)


def test_few_parts_of_columns_are_joined_by_few_threads() -> None:
    for height, columns, below in ((8192, 4096, 32), (8192, 64, 32), (None, 64, 32), (700, 64, 4)):
        table, means = hl.ImageParam(hl.Float(32), 2, "table"), hl.Func("means")
        means[x] = hl.sum(table[x, hl.RDom([(0, table.height())], "r")])
        sizes = None if height is None else {"table": (height, columns), "means": (columns,)}
        report = hb.autoschedule(means, target="sm_90a", sizes=sizes).report
        assert f"32 columns a block, {below} threads each" in report


@pytest.mark.parametrize(("length", "parts"), [(300, False), (16384, False), (40_001, True)])
def test_few_rows_are_in_parts_if_they_are_long(length: int, parts: bool) -> None:
    """With sizes that are declared. Of the last part of a row Halide keeps what is left of it."""
    a, total, out = hl.ImageParam(F32, 2, "a"), hl.Func("total"), hl.Func("out")
    total[y] += a[hl.RDom([(0, length)])[0], y]
    out[y] = total[y] / length
    out.bound(y, 0, 7)
    report = hb.autoschedule(out, target="sm_90a").report
    kernel = hb.compile(out, target="sm_90a")
    assert kernel.source.count("__global__") == (2 if parts else 1), report
    data = np.random.default_rng(1).random((7, length), dtype=np.float32)
    for result in (kernel.interpret(a=data), check(kernel, a=data)):
        assert np.allclose(result, data.mean(1, dtype=np.float64), rtol=1e-4)
