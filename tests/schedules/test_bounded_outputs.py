"""``out.bound`` of an output that is a sum: tiles give it a wrapper, which has the bound then."""

from __future__ import annotations

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb
from selector.diagnostics import UserError

x, y = hl.Var("x"), hl.Var("y")
F16, F32 = hl.Float(16), hl.Float(32)
RNG = np.random.default_rng(12)


def product() -> hl.Func:
    a, b = hl.ImageParam(F16, 2, "A"), hl.ImageParam(F16, 2, "B")
    out, k = hl.Func("out"), hl.RDom([(0, 64)], "k")
    out[x, y] = 0.0
    out[x, y] += hl.cast(F32, a[k.x, y]) * hl.cast(F32, b[x, k.x])
    return out.bound(y, 0, 132)


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_a_bounded_sum_has_the_schedule_of_one_without(target: str) -> None:
    output = product()
    bounded = hb.autoschedule(output, target=target)
    assert "on tensor units" in bounded.report
    kernel = hb.compile(output, target=target)
    a, b = (RNG.standard_normal(s).astype(np.float16) for s in ((132, 64), (64, 61)))
    found = kernel.interpret(A=a, B=b, sizes=(132, 61))
    truth = a.astype(np.float64) @ b.astype(np.float64)
    assert np.linalg.norm(found - truth) < 1e-5 * np.linalg.norm(truth)


def test_more_than_the_bound_is_refused() -> None:
    output = product()
    hb.autoschedule(output, target="sm_80")
    kernel = hb.compile(output, target="sm_80")
    a, b = np.zeros((140, 64), np.float16), np.zeros((64, 61), np.float16)
    with pytest.raises(UserError, match="axis 0 of out is fixed to 132, got 140"):
        kernel.interpret(A=a, B=b, sizes=(140, 61))


def test_the_source_says_the_same_program() -> None:
    output = product()
    source = hb.autoschedule(output, target="sm_80").source
    pasted = product()
    exec(source, {"hl": hl, "hb": hb, "output": pasted})
    assert hb.compile(pasted, target="sm_80").source == hb.compile(output, target="sm_80").source


def test_a_bounded_sum_over_rows() -> None:
    a, out, k = hl.ImageParam(F32, 2, "A"), hl.Func("out"), hl.RDom([(0, 300)], "k")
    out[x] = 0.0
    out[x] += a[k.x, x]
    out.bound(x, 0, 77)
    hb.autoschedule(out, target="sm_80")
    values = RNG.standard_normal((77, 300)).astype(np.float32)
    found = hb.compile(out, target="sm_80").interpret(A=values, sizes=(77,))
    assert np.allclose(found, values.sum(1, dtype=np.float64), atol=1e-4)
