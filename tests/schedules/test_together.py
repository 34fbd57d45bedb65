"""Sums of several products are one product of longer rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np
import pytest
from plain_pipelines import F16, F32, I32, U8
from plain_sums import SUMS, matrices, stored, x, y
from test_plain_pipelines import by_halide

import halide_bridge as hb
from selector.diagnostics import ScheduleError

pytestmark = pytest.mark.verified

Term = Callable[[Any, Any, Any], Any]
LARGE = {"floats_as_halves": (2048, 2048), "complex_product": (2048, 2048, 2)}


def f32(e: Any) -> Any:
    return hl.cast(F32, e)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", LARGE)
def test_they_are_on_tensor_units_and_right(name: str, target: str) -> None:
    case = SUMS[name]()
    kernel = hb.compile(case.outputs, target=target, schedule="auto", sizes=LARGE[name])
    updates = kernel.report.updates
    assert {u.func.removesuffix("_together") for u in updates} <= {"total", "re", "im"}
    assert updates
    assert all(u.block is not None for u in updates)
    bounds = ["3 * 2^-22" in u.precision for u in updates]
    assert bounds == [name == "floats_as_halves"] * len(updates)
    arrays = {p.name(): v for p, v in case.arguments}
    found = kernel.interpret(**arrays, sizes=case.sizes)
    (wanted,) = by_halide(case)
    off = np.linalg.norm(found - wanted.astype(float)) / np.linalg.norm(wanted.astype(float))
    assert off <= 1e-6


def test_factors_are_stored_once() -> None:
    said = hb.autoschedule(
        SUMS["floats_as_halves"]().outputs, target="sm_90a", sizes=LARGE["floats_as_halves"]
    )
    assert 'hb.together(f["total"], f["out"])' in str(said)
    for side in "ab":
        assert f"total_together_{side}: in a kernel of its own" in said.report
    assert "total_together: on tensor units by wgmma" in said.report


def test_few_products_stay_on_cuda_cores() -> None:
    said = hb.autoschedule(SUMS["floats_as_halves"]().outputs, target="sm_90a", sizes=(41, 70))
    assert "together" not in str(said)


def summed_of(term: Term, kind: hl.Type = F16, wide: hl.Type = F32) -> tuple[Any, Any, Any]:
    a, b, k = matrices(kind, kind)

    def row(at: Any) -> Any:
        return a[at, y]

    def column(at: Any) -> Any:
        return b[at, x]

    total = hl.Func("total")
    total[x, y] = hl.cast(wide, 2)
    total[x, y] += term(row, column, k)
    return total, stored(total), k


RIGHT: dict[str, tuple[Term, Callable[[Any, Any], Any], hl.Type, hl.Type]] = {
    "factors that change sides": (
        lambda a, b, k: f32(a(k)) * f32(b(k)) + f32(b(k) + b(k)) * f32(a(k)),
        lambda a, b: 3 * (a @ b.T), F16, F32,
    ),
    "what is subtracted": (
        lambda a, b, k: f32(-a(k)) * f32(b(k)) - f32(a(k)) * f32(hl.abs(b(k))),
        lambda a, b: -(a @ b.T) - a @ np.abs(b).T, F16, F32,
    ),
    "three of bytes": (
        lambda a, b, k: hl.i32(a(k)) * hl.i32(b(k)) + hl.i32(a(k) / 2) * hl.i32(b(k))
        + hl.i32(a(k)) * hl.i32(b(k) / 3),
        lambda a, b: a @ b.T + (a // 2) @ b.T + a @ (b // 3).T, U8, I32,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_by_hand_factors_are_funcs(name: str) -> None:
    term, truth, kind, wide = RIGHT[name]
    total, out, _ = summed_of(term, kind, wide)
    for func in hb.together(total, out):
        made: Any = func
        made.compute_root()
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 9, (n, 11)).astype(np.uint8 if kind == U8 else np.float16)
            for n in (7, 5))  # fmt: skip
    found = hb.compile(out, target="amx", cache=False).interpret(a=a, b=b, sizes=(7, 5))
    exact = (v.astype(int if kind == U8 else float) for v in (a, b))
    assert np.array_equal(found, 2 + truth(*exact))


REFUSED: dict[str, tuple[Term, hl.Type, hl.Type]] = {
    "one product": (lambda a, b, k: f32(a(k)) * f32(b(k)), F16, F32),
    "no product": (lambda a, b, k: f32(a(k)) * f32(b(k)) + f32(a(k)), F16, F32),
    "other columns": (lambda a, b, k: f32(a(k)) * f32(b(k)) + f32(a(k)) * f32(a(k)), F16, F32),
    "rounded products": (lambda a, b, k: f32(a(k) * b(k)) + f32(a(k) * b(k)), F16, F32),
    "bytes that are subtracted": (
        lambda a, b, k: hl.i32(a(k)) * hl.i32(b(k)) - hl.i32(a(k)) * hl.i32(b(k)), U8, I32
    ),
    "a factor that does not change along the sum": (
        lambda a, b, k: f32(a(k)) * f32(b(k)) + f32(a(0)) * f32(b(k)), F16, F32
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_other_sums_are_refused(name: str) -> None:
    total, out, _ = summed_of(*REFUSED[name])
    with pytest.raises(ScheduleError, match="`total` is no sum of several products"):
        hb.together(total, out)
