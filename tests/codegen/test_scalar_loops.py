"""What was not selected stays loops: a kernel that NVRTC compiles in a moment."""

from __future__ import annotations

import pytest

pytest.importorskip("halide")

import halide as hl
import numpy as np
from emulation import run

import halide_bridge as hb
from selector.diagnostics import ScheduleError
from selector.runtime.plan import AT_ONCE

pytestmark = pytest.mark.verified


def depthwise(tile: int) -> hl.Func:
    """A 3 x 3 filter of its own for every channel, put where it has no place."""
    half = hl.Float(16)
    a, w = hl.ImageParam(half, 3, "a"), hl.ImageParam(half, 3, "w")
    conv, out = hl.Func("conv"), hl.Func("out")
    c, x, y, co, ci, xo, xi = (hl.Var(n) for n in ("c", "x", "y", "co", "ci", "xo", "xi"))
    r = hl.RDom([(0, 3), (0, 3)], "r")
    conv[c, x, y] = hl.f32(0)
    conv[c, x, y] += hl.f32(a[c, x + r.x, y + r.y]) * hl.f32(w[c, r.x, r.y])
    out[c, x, y] = conv[c, x, y]
    out.split(c, co, ci, tile).split(x, xo, xi, tile).reorder(ci, xi, co, xo, y)
    out.vectorize(ci).vectorize(xi).gpu_blocks(co, xo, y)
    conv.compute_at(out, co).vectorize(c).vectorize(x)
    conv.update().atomic().vectorize(c).vectorize(x).vectorize(r.x).vectorize(r.y)
    hb.store_in(conv, hb.MemoryType.WMMAAccumulator)
    return out


@pytest.mark.nvrtc
@pytest.mark.parametrize("tile", [16, 64])
@pytest.mark.filterwarnings("ignore:not everything was selected")
def test_a_depthwise_convolution(tile: int) -> None:
    kernel = hb.compile(depthwise(tile), target="sm_80", strict=False)
    size = kernel.plan.size
    assert size is not None
    assert size.seconds < AT_ONCE / 2
    assert kernel.cubin()[:4] == b"\x7fELF"


def unrolled(shared: bool) -> hl.Func:
    """A Func of 32 x 24 elements for each row of 23 outputs, written out one by one."""
    a, x, y, xo, yo, xi, xv, yi = hl.ImageParam(hl.Float(32), 2, "a"), *(
        hl.Var(n) for n in ("x", "y", "xo", "yo", "xi", "xv", "yi")
    )  # fmt: skip
    blur, out = hl.Func("blur"), hl.Func("out")
    blur[x, y] = hl.sqrt(a[x, y]) + hl.sqrt(a[x + 1, y])
    out[x, y] = blur[x, y] + blur[x, y + 1]
    out.split(x, xo, xi, 32 if shared else 1024).split(xi, xi, xv, 1 if shared else 32)
    out.split(y, yo, yi, 23).reorder(xv, yi, xi, xo, yo).gpu_blocks(xo, yo).gpu_threads(xi)
    blur.compute_at(out, xo if shared else xi).unroll(x).unroll(y)
    if shared:
        blur.store_in(hl.MemoryType.GPUShared)
    return out


@pytest.mark.nvrtc
def test_an_unrolled_stage_is_a_loop_for_all_threads() -> None:
    kernel = hb.compile(unrolled(shared=True), target="sm_80")
    assert kernel.source.count("sqrtf") == 8  # of three vectors, and of elements
    assert kernel.source.count("__syncwarp") == 1  # of all threads: they are a warp
    assert kernel.cubin()[:4] == b"\x7fELF"
    image = np.random.default_rng(0).random((24, 33), np.float32)
    found = run(kernel, a=image, sizes=(23, 32))
    np.testing.assert_allclose(found, kernel.interpret(a=image, sizes=(23, 32)), 1e-6)


@pytest.mark.slow
@pytest.mark.nvrtc
def test_what_is_unrolled_too_often_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = hb.compile(unrolled(shared=False), target="sm_80")
    size = kernel.plan.size
    assert size is not None
    assert size.seconds > AT_ONCE
    monkeypatch.setenv("SELECTOR_NVRTC_SECONDS", "0.1")
    with pytest.raises(ScheduleError) as caught:
        kernel.cubin()
    error = caught.value
    assert "most of it is for `blur` (init)" in error.why
    assert "unrolled copies of one statement" in error.why
    assert "unroll fewer loops around `blur`" in error.hint
    assert error.where is not None
    assert (error.where.func, error.where.stage) == ("blur", "init")
