"""Products that count where a number in an array says so: one for all terms, one for each step of
the loop, row or tile. Nobody schedules them, and whatever becomes of them is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import emulation
import halide as hl
import numpy as np
import pytest
from plain_pipelines import F16, I32
from plain_sums import x, y

import halide_bridge as hb

pytestmark = pytest.mark.verified

ROWS, COLUMNS, DEPTH = 70, 141, 96
L = hl.ImageParam(I32, 1, "L")
HELD = np.array([53, 4, 13, 22, 31, 40, 49, 58, 67, 76], np.int32)
M, N, K = np.ogrid[:ROWS, :COLUMNS, :DEPTH]

CONDITIONS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "all terms": (lambda k: L[0] > 3, HELD[0] > K - K + 3),
    "no term": (lambda k: L[1] > 4, HELD[1] > K - K + 4),
    "terms up to it": (lambda k: L[0] > k, HELD[0] > K),
    "steps from it on": (lambda k: L[0] / 16 < k / 16, HELD[0] // 16 < K // 16),
    "rows up to it": (lambda k: L[0] > y, HELD[0] > M),
    "one for each step": (lambda k: L[k / 16] > 30, HELD[K // 16] > 30),
    "one for each rows": (lambda k: L[y / 16] > k, HELD[M // 16] > K),
    "one for each tile": (lambda k: L[y / 64] > x / 4, HELD[M // 64] > N // 4),
}
FORMS = ("a predicate", "a choice of products", "a choice of factors")


def product(condition: Callable[[Any], Any], form: str) -> hl.Func:
    a, b, k = hl.ImageParam(F16, 2, "A"), hl.ImageParam(F16, 2, "B"), hl.RDom([(0, DEPTH)], "k")
    total, out = hl.Func("total"), hl.Func("out")
    left, right = hl.f32(a[k, y]), hl.f32(b[x, k])
    if form == "a predicate":
        k.where(condition(k))
        total[x, y] += left * right
    elif form == "a choice of products":
        total[x, y] += hl.select(condition(k), left * right, 0)
    else:
        total[x, y] += left * hl.select(condition(k), right, 0)
    out[x, y] = total[x, y]
    return out


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CONDITIONS)
@pytest.mark.filterwarnings("ignore::selector.diagnostics.PerformanceWarning")
def test_what_a_number_says_counts(name: str, form: str) -> None:
    condition, holds = CONDITIONS[name]
    target = "sm_90a" if (list(CONDITIONS).index(name) + FORMS.index(form)) % 2 else "sm_80"
    out = product(condition, form)
    hb.autoschedule(out, target=target, sizes={"A": (DEPTH, 512), "out": (512, 512)})
    kernel = hb.compile(out, target=target, cache=False)
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((ROWS, DEPTH), (DEPTH, COLUMNS)))
    exact = np.einsum(
        "mk,kn,mnk->mn", a.astype(float), b, np.broadcast_to(holds, (ROWS, COLUMNS, DEPTH))
    )
    found = emulation.check(kernel, A=a, B=b, L=HELD, sizes=exact.shape)
    np.testing.assert_array_equal(found, exact)
