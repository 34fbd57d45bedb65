"""What is filled ahead cannot be computed from what the same loop fills."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("halide")

import halide as hl
import numpy as np
from emulation import run

import halide_bridge as hb
from selector.diagnostics import ScheduleError

HALF = hl.Float(16)


def product(*ahead: str) -> hl.Func:
    """A * (2*B + B of the next column): B is staged, and so are these sums."""
    a, b = hl.ImageParam(HALF, 2, "A"), hl.ImageParam(HALF, 2, "B")
    x, y, xo, yo, xi, yi = (hl.Var(v) for v in ("x", "y", "xo", "yo", "xi", "yi"))
    k, ko, ki = hl.RDom([(0, 96)], "k"), hl.RVar("ko"), hl.RVar("ki")
    rows, sums, total, out = (hl.Func(n) for n in ("rows", "sums", "total", "out"))
    rows[x, y] = b[x, y]
    sums[x, y] = rows[x, y] * hl.cast(HALF, 2) + rows[x + 1, y]
    total[x, y] = hl.f32(0)
    total[x, y] += hl.f32(a[k, y]) * hl.f32(sums[x, k])
    out[x, y] = total[x, y]
    out.tile(x, y, xo, yo, xi, yi, 32, 16).vectorize(xi).vectorize(yi).gpu_blocks(xo, yo)
    total.compute_at(out, xo).vectorize(x).vectorize(y)
    hb.store_in(total, hb.MemoryType.WMMAAccumulator)
    update = total.update().split(k.x, ko, ki, 16).reorder(ki, x, y, ko)
    update.atomic().vectorize(ki).vectorize(x).vectorize(y)
    staged: dict[str, Any] = {"A": a.in_(total), "rows": rows, "sums": sums}
    for name, func in staged.items():
        func.compute_at(total, ko).store_in(hl.MemoryType.GPUShared)
        if name in ahead:
            hb.pipeline_stages(func, 3)
    return out


@pytest.mark.parametrize(
    "ahead", [("A", "rows", "sums"), ("sums",), ("A", "sums"), ("rows", "sums")], ids=" ".join
)
def test_what_is_computed_from_what_the_loop_fills_is_not_filled_ahead(
    ahead: tuple[str, ...],
) -> None:
    with pytest.raises(ScheduleError, match="computed from `rows`, which the same loop fills"):
        hb.compile(product(*ahead), target="sm_80")


@pytest.mark.gcc
@pytest.mark.parametrize("ahead", [(), ("A",)], ids=" ".join)
def test_without_it_is_right(ahead: tuple[str, ...]) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((21, 96), (96, 42)))
    sums = (b[:, :41] * np.float16(2) + b[:, 1:]).astype(float)
    truth = a.astype(float) @ sums
    result = run(hb.compile(product(*ahead), target="sm_80"), A=a, B=b, sizes=(21, 41))
    assert np.linalg.norm(result - truth) <= 1e-3 * np.linalg.norm(truth)
