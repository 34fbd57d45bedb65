"""Updates under a condition on their rows, and what is told of memory that nobody bounded."""

from __future__ import annotations

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb
from selector.diagnostics import ScheduleError


def product(condition: bool = False) -> tuple[hl.Func, hl.Func]:
    """A tile of 16 x 16 outputs, and its left factor in shared memory."""
    x, y, xi, yi = map(hl.Var, ("x", "y", "xi", "yi"))
    a, b = hl.ImageParam(hl.Float(16), 2, "a"), hl.ImageParam(hl.Float(16), 2, "b")
    r = hl.RDom([(0, 16)], "r")
    if condition:
        r.where(y < 13)
    acc, out = hl.Func("acc"), hl.Func("out")
    acc[x, y] = 0.0
    acc[x, y] += hl.f32(a[r, y]) * hl.f32(b[x, r])
    out[x, y] = acc[x, y]
    out.bound(y, 0, 16)  # the guarded loop is all of the dimension
    out.tile(x, y, xi, yi, 16, 16).vectorize(xi).vectorize(yi).gpu_blocks(x, y)
    hb.store_in(acc, hb.MemoryType.WMMAAccumulator)
    acc.compute_at(out, x).bound_extent(x, 16).bound_extent(y, 16).vectorize(x).vectorize(y)
    acc.update().reorder(r, x, y).atomic().vectorize(x).vectorize(y).vectorize(r)
    staged = a.in_(acc)
    staged.compute_at(out, x).store_in(hl.MemoryType.GPUShared)
    return out, staged


def test_a_condition_that_would_bound_a_loop_is_a_mask() -> None:
    out, _ = product(condition=True)
    kernel = hb.compile(out, target="sm_80", cache=False)
    assert kernel.report.updates
    a, b = (np.random.default_rng(n).normal(size=(16, 16)).astype(np.float16) for n in (1, 2))
    exact = a.astype(float) @ b.astype(float)
    exact[13:] = 0
    np.testing.assert_allclose(kernel.interpret(a=a, b=b, sizes=(16, 16)), exact, atol=1e-5)


def test_memory_of_no_constant_size_says_which_extent_it_is() -> None:
    out, staged = product()
    assert hb.compile(out, target="sm_80", cache=False).source
    staged.bound_storage(staged.args()[0], out.output_buffer().width())
    with pytest.raises(ScheduleError, match="`a_im_in_acc` has no constant size") as caught:
        hb.compile(out, target="sm_80", cache=False)
    assert "one of its extents is `" in caught.value.why
    assert "out.extent.0" in caught.value.why
