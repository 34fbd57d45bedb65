"""Sums whose depth no step divides: what lies behind their end is never multiplied, not even by
zero, because it may be NaN; a step that is rounded up leaves alone what else reads a staged Func.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

pytest.importorskip("halide")

import halide as hl
from emulation import run

import halide_bridge as hb

pytestmark = pytest.mark.verified

F16 = hl.Float(16)
SIZE, TILE, STEP, DEPTH, LINES = 32, 16, 32, 40, 3
X, Y, U, V = (hl.Var(n) for n in ("x", "y", "u", "v"))
A, B = hl.ImageParam(F16, 2, "A"), hl.ImageParam(F16, 2, "B")
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Sum:
    """The factors of a sum over ``k`` (and ``LINES`` of them), and the columns of A and rows of B
    that it reads."""

    left: Callable[[hl.RDom], hl.Expr]
    right: Callable[[hl.RDom], hl.Expr]
    columns: range
    rows: range
    lines: int = 1


PLAIN = range(DEPTH)
ALL = range(LINES * DEPTH)
SUMS = {
    "plain": Sum(lambda k: A[k.x, Y], lambda k: B[X, k.x], PLAIN, PLAIN),
    "left begins later": Sum(
        lambda k: A[k.x + 3, Y], lambda k: B[X, k.x], range(3, DEPTH + 3), PLAIN
    ),
    "right begins later": Sum(
        lambda k: A[k.x, Y], lambda k: B[X, k.x + 5], PLAIN, range(5, DEPTH + 5)
    ),
    "both begin later": Sum(
        lambda k: A[k.x + 3, Y], lambda k: B[X, k.x + 5], range(3, DEPTH + 3), range(5, DEPTH + 5)
    ),
    "every second": Sum(
        lambda k: A[2 * k.x, Y], lambda k: B[X, k.x], range(0, 2 * DEPTH, 2), PLAIN
    ),
    "backwards": Sum(
        lambda k: A[k.x, Y], lambda k: B[X, DEPTH - 1 - k.x], PLAIN, PLAIN[::-1]
    ),
    "several lines": Sum(
        lambda k: A[k.x + DEPTH * k.y, Y], lambda k: B[X, k.x + DEPTH * k.y], ALL, ALL, LINES
    ),
}  # fmt: skip


def product(s: Sum, staged: str, *, parted: bool = False) -> hl.Func:
    """Tiles of 16 x 16 by one warp each, in steps of 32; ``staged``: operands in shared memory.
    ``parted``: the sum of each step is of a block of its own, and a second kernel adds them.
    """
    k = hl.RDom([(0, DEPTH), (0, s.lines)], "k")
    sums, out = hl.Func("sums"), hl.Func("out")
    sums[X, Y] = hl.f32(0)
    sums[X, Y] += hl.f32(s.left(k)) * hl.f32(s.right(k))
    out[X, Y] = sums[X, Y]
    if parted:
        parts, sums, x = in_parts(out, sums, k)
        loop = scheduled(parts, sums, k, x)
        parts.gpu_blocks(hl.Var("part"))
    else:
        loop = scheduled(out, sums, k)
    for operand in (A, B):
        if operand.name() in staged:
            in_shared(operand.in_(sums), sums, loop)
    return out


def in_parts(out: hl.Func, sums: hl.Func, k: hl.RDom) -> tuple[hl.Func, hl.Func, hl.RVar]:
    """The sums of parts, as they are stored and as they are computed, and what these sum over."""
    outer, inner = hl.RVar("outer"), hl.RVar("inner")
    sums.update().split(k.x, outer, inner, STEP)
    of_part = sums.update().rfactor(outer, hl.Var("part"))
    columns, column = hl.Var("columns"), hl.Var("column")
    out.split(X, columns, column, TILE).gpu_blocks(columns, Y).gpu_threads(column)
    sums.compute_at(out, column).update().atomic()
    return of_part.in_(sums).compute_root(), of_part, inner


def scheduled(out: hl.Func, sums: hl.Func, k: hl.RDom, along: hl.RVar | None = None) -> hl.RVar:
    """The loop over steps."""
    xo, yo, xi, yi = (hl.Var(n) for n in ("xo", "yo", "xi", "yi"))
    out.tile(X, Y, xo, yo, xi, yi, TILE, TILE).vectorize(xi).vectorize(yi).gpu_blocks(xo, yo)
    sums.compute_at(out, xo).bound_extent(X, TILE).bound_extent(Y, TILE).vectorize(X).vectorize(Y)
    hb.store_in(sums, hb.MemoryType.WMMAAccumulator)
    return steps(sums.update(), k, along)


def steps(update: hl.Stage, k: hl.RDom, along: hl.RVar | None = None) -> hl.RVar:
    ko, ki = hl.RVar("ko"), hl.RVar("ki")
    update.atomic().split(along or k.x, ko, ki, STEP).reorder(ki, X, Y, ko, k.y)
    update.vectorize(ki).vectorize(X).vectorize(Y)
    return ko


def in_shared(copy: hl.Func, sums: hl.Func, loop: hl.RVar) -> None:
    copy.compute_at(sums, loop).store_in(hl.MemoryType.GPUShared).vectorize(copy.args()[0])


def around(values: Array, rows: int, columns: int, at: tuple[range, range]) -> Array:
    """NaN, but for these rows and columns."""
    held = np.full((rows, columns), np.nan, np.float16)
    held[np.ix_(*at)] = values
    return held


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float16)


@pytest.mark.parametrize("parted", [False, True])
@pytest.mark.parametrize("staged", ["", "AB"])
@pytest.mark.parametrize("case", SUMS)
@pytest.mark.filterwarnings("ignore::selector.diagnostics.PerformanceWarning")
def test_what_lies_behind_a_sum_is_not_read(case: str, staged: str, parted: bool) -> None:
    s = SUMS[case]
    a, b = numbers(SIZE, len(s.columns)), numbers(len(s.rows), SIZE, seed=1)
    room = LINES * DEPTH + STEP
    inputs = {
        "A": around(a, SIZE + STEP, room, (range(SIZE), s.columns)),
        "B": around(b, room, SIZE + STEP, (s.rows, range(SIZE))),
    }
    kernel = hb.compile(product(s, staged, parted=parted), target="sm_80", cache=False)
    truth = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(kernel.interpret(**inputs, sizes=truth.shape), truth)
    np.testing.assert_array_equal(run(kernel, **inputs, sizes=truth.shape), truth)


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.filterwarnings("ignore::selector.diagnostics.PerformanceWarning")
def test_the_next_row_of_a_dense_array_is_not_behind_its_end(staged: bool) -> None:
    """With constant strides an index does not show where rows end."""
    a = hl.ImageParam(F16, 2, "A")
    a.dim(0).set_bounds(0, DEPTH)
    a.dim(1).set_stride(DEPTH)
    k = hl.RDom([(0, DEPTH), (0, 1)], "k")
    sums, out = hl.Func("sums"), hl.Func("out")
    sums[X, Y] = hl.f32(0)
    sums[X, Y] += hl.f32(a[k.x, Y]) * hl.f32(B[X, k.x])
    out[X, Y] = sums[X, Y]
    loop = scheduled(out, sums, k)
    if staged:
        in_shared(a.in_(sums), sums, loop)
    kernel = hb.compile(out, target="sm_80", cache=False)
    rows, b = numbers(SIZE, DEPTH), numbers(DEPTH, SIZE, seed=1)
    rows[20] = np.nan
    truth = rows.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(kernel.interpret(A=rows, B=b, sizes=truth.shape), truth)
    np.testing.assert_array_equal(run(kernel, A=rows, B=b, sizes=truth.shape), truth)


def test_a_staged_func_that_two_sums_read_in_two_places() -> None:
    """One of them ends where the other goes on."""
    copy, sums, out = hl.Func("copy"), hl.Func("sums"), hl.Func("out")
    k = hl.RDom([(0, DEPTH), (0, 1)], "k")
    copy[U, V] = A[U, V]
    sums[X, Y] = hl.f32(0)
    sums[X, Y] += hl.f32(copy[k.x, Y]) * hl.f32(B[X, k.x])
    sums[X, Y] += hl.f32(copy[k.x + 8, Y]) * hl.f32(B[X, k.x])
    out[X, Y] = sums[X, Y]
    steps(sums.update(1), k)
    scheduled(out, sums, k)
    copy.compute_at(out, hl.Var("xo")).store_in(hl.MemoryType.GPUShared).vectorize(U)
    kernel = hb.compile(out, target="sm_80", cache=False)
    a, b = numbers(SIZE, DEPTH + 8), numbers(DEPTH, SIZE, seed=1)
    truth = (a[:, :DEPTH] + a[:, 8:]).astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(kernel.interpret(A=a, B=b, sizes=truth.shape), truth)
    np.testing.assert_array_equal(run(kernel, A=a, B=b, sizes=truth.shape), truth)


@pytest.mark.parametrize("masked", [False, True])
def test_the_end_of_a_run_of_taps_is_no_select_of_the_users(masked: bool) -> None:
    """25 taps in fours, of each of several runs: no factor follows the sum by itself."""
    image, taps = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    k, xo, xi = hl.RDom([(0, 25), (0, 4)], "k"), hl.Var("xo"), hl.Var("xi")
    conv, out = hl.Func("conv"), hl.Func("out")
    tap, pixel = taps[k.x + 25 * k.y], image[X + k.x + 26 * k.y, Y]
    zero = hl.cast(F16, 0)
    if masked:
        tap, pixel = hl.select(Y < 3, tap, zero), hl.select(Y <= 2, pixel, zero)
    conv[X, Y] = hl.f32(0)
    conv[X, Y] += hl.f32(tap) * hl.f32(pixel)
    out[X, Y] = conv[X, Y]
    out.split(X, xo, xi, 256).reorder(xi, xo, Y).vectorize(xi).gpu_blocks(xo, Y)
    conv.compute_at(out, xo).vectorize(X)
    ko, ki = hl.RVar("ko"), hl.RVar("ki")
    update = conv.update().split(k.x, ko, ki, 4).reorder(ki, X, ko, k.y).atomic()
    update.vectorize(X).vectorize(ki)
    hb.store_in(conv, hb.MemoryType.WMMAAccumulator)
    kernel = hb.compile(out, target="sm_90a", cache=False)
    weights, rows = numbers(100), numbers(3, 256 + 102, seed=1)
    held = around(weights[None], 1, 128, (range(1), range(100)))[0]
    truth = sum(
        np.float64(weights[i + 25 * j]) * rows[:, i + 26 * j :][:, :256]
        for i in range(25)
        for j in range(4)
    )
    for found in (
        kernel.interpret(I=rows, K=held, sizes=(3, 256)),
        run(kernel, I=rows, K=held, sizes=(3, 256)),
    ):
        np.testing.assert_array_equal(found, truth)


def test_a_sum_that_a_choice_ends_reads_no_rows_that_nobody_staged() -> None:
    """The factor that is computed is zero behind the end; the other one is staged up to there."""
    xo, xi, yo, yi, yw = (hl.Var(n) for n in ("xo", "xi", "yo", "yi", "yw"))
    k = hl.RDom([(0, DEPTH)], "k")
    acc, out = hl.Func("acc"), hl.Func("out")
    product = A[Y, k.x] * B[X, k.x]
    acc[X, Y] = hl.cast(F16, 0)
    acc[X, Y] += hl.select(k.x <= 3, product, hl.cast(F16, 0))
    out[X, Y] = hl.f32(acc[X, Y])
    out.split(X, xo, xi, 8).split(Y, yo, yw, 128).split(yw, yw, yi, 32)
    out.reorder(xi, yi, yw, xo, yo).vectorize(xi).vectorize(yi).gpu_threads(yw).gpu_blocks(xo, yo)
    acc.bound_extent(X, 8).bound_extent(Y, 32).compute_at(out, yw).vectorize(X).vectorize(Y)
    hb.store_in(acc, hb.MemoryType.WMMAAccumulator)
    update = acc.update().reorder(k.x, X, Y).atomic()
    update.vectorize(X).vectorize(Y).vectorize(k.x)
    for factor in (A, B):
        staged = factor.in_(acc).compute_at(out, xo).store_in(hl.MemoryType.GPUShared)
        staged.vectorize(staged.args()[0], 8)
    kernel = hb.compile(out, target="sm_90a", cache=False)
    a, b = numbers(DEPTH, 100), numbers(DEPTH, 7, seed=1)
    truth = a[:4].astype(float).T @ b[:4].astype(float)
    for found in (
        kernel.interpret(A=a, B=b, sizes=truth.shape),
        run(kernel, A=a, B=b, sizes=truth.shape),
    ):
        np.testing.assert_array_equal(found, truth)
