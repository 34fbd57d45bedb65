"""Recurrences over the threads of a block: right in the emitted code, or refused with a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import emulation
import halide as hl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import halide_bridge as hb
from selector.diagnostics import ScheduleError

pytestmark = pytest.mark.verified

F32, I32 = hl.Float(32), hl.Int(32)
x, c, xo, xi = (hl.Var(name) for name in ("x", "c", "xo", "xi"))
Step = Callable[[Callable[[int], Any]], Any]


def rows(step: Step, order: int, threads: int, steps: int, tiles: int = 0, kind: Any = F32) -> Any:
    """``Y[t] = step(Y[t - n] by n)`` along rows, a block a row; ``tiles``: of a block, of which
    several follow each other."""
    source, rows_of = hl.ImageParam(kind, 2, "X"), hl.Func("Y")
    r = hl.RDom([(order, source.dim(0).extent() - order)], "r")
    rows_of[x, c] = source[x, c]
    rows_of[r, c] = step(lambda n: rows_of[r - n, c])
    out = rows_of.in_()
    for f in (rows_of, out):
        f.compute_root().split(x, xo, xi, 64).gpu_blocks(xo, c).gpu_threads(xi)
    ro, rt, rl, rb = (hl.RVar(name) for name in ("ro", "rt", "rl", "rb"))
    update = rows_of.update().allow_race_conditions()
    if tiles:
        update.split(r.x, rb, ro, threads * steps * tiles).split(ro, ro, rl, steps)
        update.split(ro, ro, rt, threads).reorder(rl, rt, ro, rb, c).gpu_blocks(rb, c)
    else:
        update.split(r.x, ro, rl, steps).split(ro, ro, rt, threads).reorder(rl, rt, ro, c)
        update.gpu_blocks(c)
    update.gpu_threads(rt)
    return out


def columns(step: Step, threads: int, steps: int, kind: Any = F32) -> Any:
    """The same down columns: threads lie along the rows as well."""
    source, f = hl.ImageParam(kind, 2, "X"), hl.Func("Y")
    r = hl.RDom([(1, source.dim(1).extent() - 1)], "r")
    f[x, c] = source[x, c]
    f[x, r] = step(lambda n: f[x, r - n])
    out = f.in_()
    for g in (f, out):
        g.compute_root().split(x, xo, xi, 32).gpu_blocks(xo, c).gpu_threads(xi)
    ro, rt, rl = (hl.RVar(name) for name in ("ro", "rt", "rl"))
    update = f.update().allow_race_conditions().split(r.x, ro, rl, steps).split(ro, ro, rt, threads)
    update.split(x, xo, xi, 32).reorder(rl, xi, rt, ro, xo).gpu_blocks(xo).gpu_threads(xi, rt)
    return out


def weighted(*weights: float) -> Step:
    def step(y: Any) -> Any:
        value = y(0)
        for n, w in enumerate(weights):
            value = value + hl.f32(w) * y(n + 1)
        return value

    return step


def filtered(data: Any, *weights: float) -> Any:
    found = data.astype(np.float64)
    for t in range(len(weights), found.shape[1]):
        for n, w in enumerate(weights):
            found[:, t] += w * found[:, t - n - 1]
    return found


def noise(*shape: int) -> Any:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def close(found: Any, truth: Any) -> None:
    assert np.linalg.norm(found - truth) <= 3e-6 * max(np.linalg.norm(truth), 1e-30)


FILTERS = {1: (0.8,), 2: (1.8, -0.9), 3: (0.5, 0.2, -0.3), 4: (0.1, 0.2, 0.3, -0.4)}


@pytest.mark.parametrize("order", FILTERS)
@pytest.mark.parametrize("tiles", [0, 1, 2])
def test_linear_recurrences_of_any_order(order: int, tiles: int) -> None:
    weights = FILTERS[order]
    kernel = hb.compile(rows(weighted(*weights), order, 16, 4, tiles), target="sm_80")
    for samples in (order, order + 1, 64, 129, 700):
        data = noise(2, samples)
        close(emulation.check(kernel, sizes=data.shape, X=data), filtered(data, *weights))


@pytest.mark.parametrize(("order", "steps", "dealt"), [(1, 8, True), (4, 8, False), (4, 3, True)])
def test_steps_that_begin_at_no_vector_lie_in_shared_memory(
    order: int, steps: int, dealt: bool
) -> None:
    kernel, data = (
        hb.compile(rows(weighted(*FILTERS[order]), order, 32, steps), target="sm_80"),
        noise(3, 700),
    )
    assert ("Y_inputs = (float*)(smem" in kernel.source) == dealt
    assert ("Y_inputs_held" in kernel.source) == dealt  # all of a turn is asked for at once
    close(emulation.check(kernel, X=data, sizes=data.shape), filtered(data, *FILTERS[order]))


def backwards(step: Step, threads: int, steps: int, tiles: int) -> Any:
    """The same from the end of each row to its beginning."""
    source, f = hl.ImageParam(F32, 2, "X"), hl.Func("Y")
    last = source.width() - 1
    r = hl.RDom([(1, source.width() - 1)], "r")
    f[x, c] = source[x, c]
    f[last - r, c] = step(lambda n: f[last - r + n, c])
    f.compute_root().split(x, xo, xi, 64).gpu_blocks(xo, c).gpu_threads(xi)
    ro, rt, rl, rb = (hl.RVar(name) for name in ("ro", "rt", "rl", "rb"))
    update, outer = f.update().allow_race_conditions(), [c]
    if tiles:
        update.split(r.x, rb, ro, threads * steps * tiles)
        outer = [rb, c]
    update.split(ro if tiles else r.x, ro, rl, steps).split(ro, ro, rt, threads)
    update.reorder(rl, rt, ro, *outer).gpu_blocks(*outer).gpu_threads(rt)
    return f


@pytest.mark.parametrize("tiles", [0, 1])
@pytest.mark.parametrize("weight", [0.8, 1.0])
def test_recurrences_from_the_end(weight: float, tiles: int) -> None:
    kernel = hb.compile(backwards(weighted(weight), 16, 4, tiles), target="sm_80")
    for samples in (1, 2, 64, 129, 700):
        data = noise(2, samples)
        truth = filtered(data[:, ::-1], weight)[:, ::-1]
        close(emulation.check(kernel, sizes=data.shape, X=data), truth)


def test_extrema_from_the_end_are_refused() -> None:
    with pytest.raises(ScheduleError, match="steps are left out"):
        hb.compile(backwards(lambda y: hl.max(y(1), y(0)), 16, 4, 0), target="sm_80")


@pytest.mark.parametrize("tiles", [0, 4])
def test_a_weight_may_be_a_parameter(tiles: int) -> None:
    a = hl.Param(F32, "a")
    kernel = hb.compile(rows(lambda y: (1 - a) * y(1) + a * y(0), 1, 8, 8, tiles), target="sm_90a")
    data = noise(3, 1000)
    truth = data.astype(np.float64)
    for t in range(1, 1000):
        truth[:, t] = 0.75 * truth[:, t - 1] + 0.25 * truth[:, t]
    close(emulation.check(kernel, sizes=data.shape, X=data, a=0.25), truth)


@pytest.mark.parametrize("tiles", [0, 4])
def test_weights_in_an_array_are_read_once(tiles: int) -> None:
    """What is the same for all steps is no input of one: that is kept by its thread."""
    w = hl.ImageParam(F32, 1, "W")
    order = {1: w[0], 2: w[1]}
    step = lambda y: y(0) + sum((w * y(n) for n, w in order.items()), hl.f32(0))  # noqa: E731
    kernel = hb.compile(rows(step, 2, 8, 8, tiles), target="sm_90a")
    assert "own_state_weight_0 = " in kernel.source
    assert "_inputs[" in kernel.source
    data, weights = noise(3, 1000), np.array([1.8, -0.9], np.float32)
    found = emulation.check(kernel, sizes=data.shape, X=data, W=weights)
    close(found, filtered(data, *weights.tolist()))


@pytest.mark.parametrize("threads", [2, 16])
@pytest.mark.parametrize("name", ["sum", "largest", "smallest"])
def test_columns_of_integers(name: str, threads: int) -> None:
    step, truth = {
        "sum": (lambda y: y(1) + y(0), np.cumsum),
        "largest": (lambda y: hl.max(y(1), y(0)), np.maximum.accumulate),
        "smallest": (lambda y: hl.min(y(0), y(1)), np.minimum.accumulate),
    }[name]
    kernel = hb.compile(columns(step, threads, 4, I32), target="sm_80")
    for shape in ((1, 40), (2, 3), (64, 64), (200, 70)):
        data = np.random.default_rng(2).integers(-99, 99, shape).astype(np.int32)
        found = emulation.check(kernel, sizes=shape, X=data)
        assert np.array_equal(found, truth(data, 0))


@pytest.mark.parametrize("tiles", [0, 2])
def test_an_extremum_of_what_is_infinite(tiles: int) -> None:
    kernel = hb.compile(rows(lambda y: hl.max(y(1), y(0)), 1, 8, 2, tiles), target="sm_80")
    data = np.full((2, 90), -np.inf, np.float32)
    data[1, 40] = 3
    found = emulation.check(kernel, sizes=data.shape, X=data)
    assert np.array_equal(found, np.maximum.accumulate(data, 1))


def test_powers_that_overflow_do_not_touch_what_is_zero() -> None:
    kernel = hb.compile(rows(weighted(2.0), 1, 32, 8, 2), target="sm_80")
    data = np.zeros((1, 1000), np.float32)
    data[0, 950:] = 1
    close(emulation.check(kernel, sizes=data.shape, X=data), filtered(data, 2.0))


@settings(max_examples=6, deadline=None)
@given(
    st.sampled_from(sorted(FILTERS)), st.sampled_from([2, 4, 32]), st.integers(1, 9),
    st.sampled_from([0, 1, 4]), st.integers(1, 900),
)  # fmt: skip
def test_any_split(order: int, threads: int, steps: int, tiles: int, samples: int) -> None:
    kernel = hb.compile(
        rows(weighted(*FILTERS[order]), order, threads, steps, tiles), target="sm_80"
    )
    data = noise(2, samples + order)
    close(emulation.check(kernel, sizes=data.shape, X=data), filtered(data, *FILTERS[order]))


REFUSED = {
    "no weighted sum": lambda y: hl.sin(y(1)) + y(0),
    "a product of outputs": lambda y: y(1) * y(2) + y(0),
    "too far back": lambda y: y(9) + y(0),
    "later outputs": lambda y: y(-1) + y(0),
}
WHY = {
    "no weighted sum": "no weighted sum, minimum or maximum",
    "a product of outputs": "no weighted sum, minimum or maximum",
    "too far back": "the 8 outputs before, or others",
    "later outputs": "the 8 outputs before, or others",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_scan_is_refused(name: str) -> None:
    with pytest.raises(ScheduleError, match=WHY[name]) as raised:
        hb.compile(rows(REFUSED[name], 9, 16, 4), target="sm_80")
    assert "serially in a thread" in str(raised.value)


def test_a_weight_that_changes_is_refused() -> None:
    weights = hl.ImageParam(F32, 1, "w")
    source, f = hl.ImageParam(F32, 2, "X"), hl.Func("Y")
    r = hl.RDom([(1, source.dim(0).extent() - 1)], "r")
    f[x, c] = source[x, c]
    f[r, c] += weights[r] * f[r - 1, c]
    ro, rt = hl.RVar("ro"), hl.RVar("rt")
    f.compute_root().split(x, xo, xi, 64).gpu_blocks(xo, c).gpu_threads(xi)
    update = f.update().allow_race_conditions().split(r.x, ro, rt, 32)
    update.reorder(rt, ro, c).gpu_blocks(c).gpu_threads(rt)
    out = f.in_()
    out.compute_root().split(x, xo, xi, 64).gpu_blocks(xo, c).gpu_threads(xi)
    with pytest.raises(ScheduleError, match="differs from step to step"):
        hb.compile(out, target="sm_80")


def test_outputs_that_are_rounded_are_refused() -> None:
    half = rows(lambda y: y(1) + y(0), 1, 16, 4, kind=hl.Float(16))
    with pytest.raises(ScheduleError, match="rounded at every step"):
        hb.compile(half, target="sm_80")


def test_steps_that_are_left_out_are_refused() -> None:
    source, f = hl.ImageParam(F32, 2, "X"), hl.Func("Y")
    r = hl.RDom([(1, source.dim(0).extent() - 1)], "r")
    r.where(r.x % 3 != 0)
    f[x, c] = source[x, c]
    f[r, c] += f[r - 1, c]
    ro, rt = hl.RVar("ro"), hl.RVar("rt")
    f.compute_root().split(x, xo, xi, 64).gpu_blocks(xo, c).gpu_threads(xi)
    update = f.update().allow_race_conditions().split(r.x, ro, rt, 32)
    update.reorder(rt, ro, c).gpu_blocks(c).gpu_threads(rt)
    out = f.in_()
    out.compute_root().split(x, xo, xi, 64).gpu_blocks(xo, c).gpu_threads(xi)
    with pytest.raises(ScheduleError, match="steps are left out"):
        hb.compile(out, target="sm_80")


def test_blocks_of_an_odd_number_of_turns_are_refused() -> None:
    with pytest.raises(ScheduleError, match="no power of two"):
        hb.compile(rows(weighted(0.5), 1, 16, 4, 3), target="sm_80")
