"""Kernels that go through the same arrays in the same way become one."""

from __future__ import annotations

from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check

import halide_bridge as hb

F32 = hl.Float(32)
x, y = hl.Var("x"), hl.Var("y")


def image(name: str) -> hl.ImageParam:
    return hl.ImageParam(F32, 2, name)


def moments(of_rows: bool = False, second: str = "a") -> list[hl.Func]:
    """Two outputs, of the columns or the rows of a table, or of two."""
    a = image("a")
    b = a if second == "a" else image(second)
    r = hl.RDom([(0, a.width() if of_rows else a.height())], "r")

    def at(table: hl.ImageParam) -> hl.Expr:
        return table[r, x] if of_rows else table[x, r]

    sums, squares = hl.Func("sums"), hl.Func("squares")
    first, other = hl.Func("first"), hl.Func("other")
    sums[x] += at(a)
    squares[x] += at(b) * at(b)
    first[x], other[x] = sums[x] * 2, squares[x] + 1
    return [first, other]


def centred() -> list[hl.Func]:
    """The second goes through the table again, with what the first has found."""
    a = image("a")
    r = hl.RDom([(0, a.height())], "r")
    mean, spread, out = hl.Func("mean"), hl.Func("spread"), hl.Func("out")
    mean[x] += a[x, r] / hl.f32(a.height())
    away = a[x, r] - mean[x]
    spread[x] += away * away
    out[x] = spread[x] * 2
    return [mean, out]


def compiled(outputs: list[hl.Func], shape: tuple[int, int]) -> Any:
    return hb.compile(outputs, target="sm_80", schedule="auto", sizes={"a": shape})


def entries(kernel: Any) -> int:
    return kernel.source.count("__global__")


@pytest.mark.parametrize(("high", "wide", "fewer"), [(600, 77, 77), (1030, 132, 40), (3, 5, 9)])
def test_two_moments_of_columns(high: int, wide: int, fewer: int) -> None:
    kernel = compiled(moments(), (4096, 256))
    assert entries(kernel) == 3  # parts of both, and what is made of each
    data = np.random.default_rng(high).standard_normal((high, max(wide, fewer)), dtype=np.float32)
    found = check(kernel, a=data, sizes={"first": (wide,), "other": (fewer,)})
    exact = data.astype(np.float64)
    assert np.allclose(found["first"], exact.sum(0)[:wide] * 2, rtol=1e-4, atol=1e-3)
    assert np.allclose(found["other"], (exact**2).sum(0)[:fewer] + 1, rtol=1e-4)


def test_two_moments_of_rows() -> None:
    kernel = compiled(moments(of_rows=True), (64, 3000))
    data = np.random.default_rng(1).standard_normal((7, 3001), dtype=np.float32)
    found = check(kernel, a=data, sizes={"first": (7,), "other": (5,)})
    exact = data.astype(np.float64)
    assert np.allclose(found["first"], exact.sum(1) * 2, rtol=1e-4, atol=1e-3)
    assert np.allclose(found["other"], (exact**2).sum(1)[:5] + 1, rtol=1e-4)


def test_other_tables_and_what_reads_the_first_result_stay_apart() -> None:
    assert entries(compiled(moments(second="b"), (4096, 256))) == 4
    kernel = compiled(centred(), (4096, 256))
    assert entries(kernel) == 4
    data = np.random.default_rng(2).standard_normal((700, 60), dtype=np.float32)
    found = check(kernel, a=data, sizes={"mean": (60,), "out": (60,)})
    assert np.allclose(found["out"], data.astype(np.float64).var(0) * 700 * 2, rtol=1e-4)
