"""Sums of one thread: iterations of which all is inside need no test, and go first."""

from __future__ import annotations

from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED, Verified, text_of

import halide_bridge as hb

pytestmark = pytest.mark.verified

x, xo, xi, xl = (hl.Var(name) for name in ("x", "xo", "xi", "xl"))
ro, ri = hl.RVar("ro"), hl.RVar("ri")
FIRST = "const int whole"


def sums(lanes: int = 4, turns: int = 0, every: int = 1) -> hl.Func:
    """Of columns, by ``turns`` rows at a time if any, of ``every`` so many columns."""
    a, out, total = hl.ImageParam(hl.Float(32), 2, "a"), hl.Func("out"), hl.Func("total")
    r = hl.RDom([(0, a.height())], "r")
    total[x] = hl.f32(0)
    total[x] += a[x * every, r]
    out[x] = total[x]
    out.split(x, xo, xi, 8 * lanes).split(xi, xi, xl, lanes)
    out.gpu_blocks(xo).gpu_threads(xi)
    total.compute_at(out, xi).bound_extent(x, lanes)
    if turns:
        total.update(0).split(r.x, ro, ri, turns)
    if lanes > 1:
        out.vectorize(xl)
        total.vectorize(x).update(0).reorder(x, *((ri, ro) if turns else (r.x,))).vectorize(x)
    return out


@EMULATED
@pytest.mark.parametrize("turns", [0, 5])
@pytest.mark.parametrize("shape", [(1, 4), (5, 32), (8, 33), (26, 70)])
def test_what_is_inside_goes_first(shape: tuple[int, int], turns: int, verified: Verified) -> None:
    """Rows of 33 and 70 elements are not aligned, and the last threads have some lanes outside."""
    kernel = hb.compile(sums(turns=turns), target="sm_90a")
    assert FIRST in kernel.source
    a = np.random.default_rng(1).random(shape).astype(np.float32)
    assert np.allclose(kernel.interpret(a=a, sizes=shape[1:]), a.sum(0))
    if not verified(text_of(kernel), repr(shape)):
        assert np.allclose(check(kernel, a=a, sizes=shape[1:]), a.sum(0))


@EMULATED
@pytest.mark.parametrize("width", [40, 255, 256, 257, 1100])
def test_the_last_iteration_of_a_row_is_tested(width: int, verified: Verified) -> None:
    """Threads of a row take turns along it: the last turn is whole for some."""
    a, out = hl.ImageParam(hl.Float(32), 2, "a"), hl.Func("out")
    r = hl.RDom([(0, a.width()), (0, a.height())], "r")
    out[()] = hl.f32(0)
    out[()] += a[r.x, r.y] * a[r.x, r.y]
    hb.autoschedule(out, target="sm_90a")
    kernel = hb.compile(out, target="sm_90a")
    assert FIRST in kernel.source
    data = np.random.default_rng(2).random((9, width)).astype(np.float32)
    wanted = (data.astype(np.float64) ** 2).sum()
    assert np.allclose(kernel.interpret(a=data, sizes=()), wanted, rtol=1e-5)
    if not verified(text_of(kernel), repr(width)):
        assert np.allclose(check(kernel, a=data, sizes=()), wanted, rtol=1e-5)


@EMULATED
@pytest.mark.parametrize("height", [1, 5, 13])
def test_single_elements_whose_condition_fails_for_good_need_no_second_loop(
    height: int, verified: Verified
) -> None:
    kernel = hb.compile(sums(lanes=1, turns=5), target="sm_90a")
    assert FIRST in kernel.source
    assert kernel.source.count("++total_s1_r_x_ri") == 1
    a = np.random.default_rng(3).random((height, 37)).astype(np.float32)
    assert np.allclose(kernel.interpret(a=a, sizes=(37,)), a.sum(0))
    if not verified(text_of(kernel), repr(height)):
        assert np.allclose(check(kernel, a=a, sizes=(37,)), a.sum(0))


def test_other_loops_stay_as_they_were() -> None:
    """Without a condition, and where columns lie far apart."""
    for out in (sums(lanes=1), sums(every=9)):
        assert FIRST not in hb.compile(out, target="sm_90a").source


@pytest.mark.parametrize("kind", [hl.Float(32), hl.Int(32)])
@pytest.mark.parametrize("own", [False, True])
def test_what_data_decide_is_tested_each_time(kind: Any, own: bool) -> None:
    """Elements that are small, and while a sum is: that is no matter of where the loop is."""
    a, out, total = hl.ImageParam(kind, 2, "a"), hl.Func("out"), hl.Func("total")
    r = hl.RDom([(0, a.height())], "r")
    total[x] = hl.cast(kind, 0)
    r.where(total[x] < 9 if own else a[x, r] < 5)
    total[x] += a[x, r]
    out[x] = total[x]
    out.gpu_tile(x, xo, xi, 32)
    total.compute_at(out, xi)
    kernel = hb.compile(out, target="sm_90a")
    assert FIRST not in kernel.source
    data = np.random.default_rng(4).integers(0, 8, (11, 40)).astype(np.float32)
    wanted = np.where(data < 5, data, 0).sum(0)
    if own:
        wanted = np.zeros(40, np.float32)
        for row in data:
            wanted += np.where(wanted < 9, row, 0)
    given = data.astype(np.float32 if kind == hl.Float(32) else np.int32)
    assert np.array_equal(kernel.interpret(a=given, sizes=(40,)), wanted)
