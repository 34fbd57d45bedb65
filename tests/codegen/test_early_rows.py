"""What a kernel of rows loads before its first loop; vectors of what launches pass to each other,
which nothing tests.
"""

from __future__ import annotations

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb
from halide_bridge.schedules.rows import threads_of

x, y = hl.Var("x"), hl.Var("y")
F16, F32 = hl.Float(16), hl.Float(32)


def norm(*, centred: bool, added: bool = False) -> hl.Func:
    """Over the RMS of a row, times weights; ``centred``: less the mean before; ``added``: of a sum
    of two arrays, and with a bias.
    """
    b, bias = hl.ImageParam(F16, 2, "b"), hl.ImageParam(F16, 1, "bias")
    a, w = hl.ImageParam(F16, 2, "a"), hl.ImageParam(F16, 1, "w")
    mean, squares, out = hl.Func("mean"), hl.Func("squares"), hl.Func("out")
    r = hl.RDom([(0, a.width())], "r")

    def value(i: object) -> hl.Expr:
        return hl.f32(a[i, y]) + hl.f32(b[i, y]) if added else hl.f32(a[i, y])

    mean[y] += value(r.x) / a.width()

    def term(i: object) -> hl.Expr:
        return value(i) - mean[y] if centred else value(i)

    squares[y] += term(r.x) * term(r.x)
    scale = 1 / hl.sqrt(squares[y] / a.width() + 0.5)
    normed = term(x) * scale * hl.f32(w[x])
    out[x, y] = hl.cast(F16, normed + hl.f32(bias[x]) if added else normed)
    return out


@pytest.mark.parametrize("centred", [False, True])
def test_weights_are_loaded_before_a_row_is_summed_unless_values_stay(centred: bool) -> None:
    out = norm(centred=centred)
    hb.autoschedule(out, target="sm_90a", sizes=(2000, 1000))
    kernel = hb.compile(out, target="sm_90a")
    summed = kernel.source.index("mean_intm[l0] =" if centred else "squares_intm[l0] =")
    assert (kernel.source.index("row_kept_late_0 + ") < summed) != centred
    rng = np.random.default_rng(3)
    a, w = (rng.standard_normal(s).astype(np.float16) for s in ((5, 1000), (1000,)))
    found = kernel.interpret(a=a, w=w, sizes=(5, 1000)).astype(np.float64)
    rows = a.astype(np.float64)
    rows -= rows.mean(1, keepdims=True) if centred else 0
    truth = rows / np.sqrt((rows**2).mean(1, keepdims=True) + 0.5) * w
    assert np.linalg.norm(found - truth) < 1e-3 * np.linalg.norm(truth)


def test_a_row_that_is_swept_once_has_a_warp() -> None:
    once = hb.autoschedule(norm(centred=False), target="sm_90a", sizes={"a": (3000, 1500)})
    twice = hb.autoschedule(norm(centred=True), target="sm_90a", sizes={"a": (3000, 1500)})
    assert "32 threads a row" in once.report
    assert "64 threads a row" in twice.report


def test_a_warp_has_a_row_of_bytes_where_it_keeps_all() -> None:
    """A thread keeps half as many elements more than it is meant for (``lowering.row_work``)."""
    assert [threads_of(n, 16, bytes_=1, once=True) for n in (1536, 1537)] == [32, 64]


def test_a_fourth_block_is_worth_a_few_registers() -> None:
    out = norm(centred=True, added=True)
    hb.autoschedule(out, target="sm_90a", sizes={"a": (4096, 4096), "b": (4096, 4096)})
    assert "__launch_bounds__(256, 4)" in hb.compile(out, target="sm_90a").source


def test_vectors_of_what_launches_pass_to_each_other_are_not_tested() -> None:
    """Halide has found how much of it is read."""
    a, made, out = hl.ImageParam(F32, 2, "a"), hl.Func("made"), hl.Func("out")
    made[x, y] = 2 * hl.BoundaryConditions.repeat_edge(a)[x, y]
    out[x, y] = made[x - 1, y] + made[x, y] + made[x + 1, y]
    xo, xi, xv = hl.Var("xo"), hl.Var("xi"), hl.Var("xv")
    made.compute_root().gpu_tile(x, y, xo, hl.Var("yo"), xi, hl.Var("yi"), 32, 8)
    out.split(x, xo, xi, 128).split(xi, xi, xv, 4).vectorize(xv).gpu_blocks(xo, y).gpu_threads(xi)
    source = hb.compile(out, target="sm_90a").source
    (test,) = (line for line in source.splitlines() if "if (whole || " in line)
    assert "&&" not in test  # that the four results are there is all
