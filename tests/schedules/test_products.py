"""Which sums of products go to tensor units without a schedule, and what keeps others from them."""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from typing import Any

import halide as hl
import numpy as np
import pytest
from plain_pipelines import PIPELINES

import halide_bridge as hb
from selector.diagnostics import ScheduleError

pytestmark = pytest.mark.verified

i, j = hl.Var("i"), hl.Var("j")
F16, F32 = hl.Float(16), hl.Float(32)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    "name", ["product_f16", "linear_layer_of_torch", "products_in_a_batch", "two_layers"]
)
def test_products_go_to_tensor_units(name: str, target: str) -> None:
    outputs = PIPELINES[name]().outputs
    schedule = hb.autoschedule(outputs, target=target)
    unit = "by wgmma" if target == "sm_90a" else "by mma"
    assert unit in schedule.report
    assert "not on a tensor unit" not in schedule.report
    assert "mma" in str(hb.compile(outputs, target=target).report)


def product(kind: Any, sum_: Any, term: Any, start: Any = 0) -> hl.Func:
    """``term(a, b, k)`` summed over k."""
    a, b = hl.ImageParam(kind, 2, "a"), hl.ImageParam(kind, 2, "b")
    out, k = hl.Func("out"), hl.RDom([(0, 64)], "k")
    out[j, i] = hl.cast(sum_, start)
    out[j, i] += term(a, b, k)
    return out


def from_a_sum() -> hl.Func:
    """What the sums start with is a sum itself."""
    a, b = hl.ImageParam(F16, 2, "a"), hl.ImageParam(F16, 2, "b")
    first, out, k = hl.Func("first"), hl.Func("out"), hl.RDom([(0, 64)], "k")
    first[i] += hl.f32(a[k, i])
    out[j, i] = first[i]
    out[j, i] += hl.f32(a[k, i]) * hl.f32(b[j, k])
    return out


MISSES = {
    "float32": (product, (F32, F32, lambda a, b, k: a[k, i] * b[j, k])),
    "are not taken in": (product, (F16, F16, lambda a, b, k: a[k, i] * b[j, k])),
    "starts with is computed": (from_a_sum, ()),
    "cast each factor": (product, (F16, F32, lambda a, b, k: hl.f32(a[k, i] * b[j, k]))),
    "no product of two matrices": (
        product,
        (F16, F32, lambda a, b, k: hl.f32(a[k, i]) * hl.f32(b[k, i])),
    ),
}


@pytest.mark.parametrize("why", MISSES)
def test_what_keeps_a_sum_from_a_tensor_unit_is_said(why: str) -> None:
    make, arguments = MISSES[why]
    out = make(*arguments)
    schedule = hb.autoschedule(out, target="sm_90a")
    (line,) = (t for t in schedule.report.splitlines() if "not on a tensor unit" in t)
    assert why in line
    assert "MemoryType.W" not in schedule.source
    hb.compile(out, target="sm_90a")


def test_sizes_choose_the_tiles_and_any_other_size_is_right() -> None:
    random = np.random.default_rng(0)
    sources = set[str]()
    for rows in (8, 4096):
        out = PIPELINES["product_f16"]().outputs
        sizes = {"product": (rows, 2048), "a": (rows, 512)}
        sources.add(hb.autoschedule(out, target="sm_90a", sizes=sizes).source)
        a = random.random((33, 40)).astype(np.float16)
        b = random.random((40, 72)).astype(np.float16)
        result = hb.compile(out, target="sm_90a").interpret(a=a, b=b, sizes=(33, 72))
        assert np.allclose(result, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-3)
    assert len(sources) == 2


def test_estimates_do_what_sizes_do() -> None:
    sources = list[str]()
    for by_estimates in (False, True):
        out = PIPELINES["product_f16"]().outputs
        if by_estimates:
            out.set_estimates([(0, 2048), (0, 8)])
        sizes = None if by_estimates else (8, 2048)
        sources.append(hb.autoschedule(out, target="sm_90a", sizes=sizes).source)
    assert sources[0] == sources[1]


@pytest.mark.parametrize("sizes", [(1, 2, 3), {"nobody": (4, 4)}, {"a": (4,)}])
def test_sizes_that_do_not_fit_are_refused(sizes: Any) -> None:
    with pytest.raises(ScheduleError, match="sizes has"):
        hb.autoschedule(PIPELINES["product_f16"]().outputs, target="sm_90a", sizes=sizes)
