"""Nothing is added where ``RDom.where`` leaves nothing of a reduction, or of a run of it."""

from __future__ import annotations

from collections.abc import Callable

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb

F16 = hl.Float(16)
Where = Callable[[hl.RDom], hl.Expr]


def filtered(where: Where, memory: hb.MemoryType = hb.MemoryType.WMMAAccumulator) -> hl.Func:
    """The sum over r of ``K[r.x, r.y, r.z] * I[x + r.x + 8*r.z, y + r.y]``, the runs unrolled."""
    x, y, xo, xi, yo, yi = (hl.Var(n) for n in ["x", "y", "xo", "xi", "yo", "yi"])
    image, taps = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 3, "K")
    r = hl.RDom([(0, 8), (0, 3), (0, 3)], "r")
    r.where(where(r))
    conv, out = hl.Func("conv"), hl.Func("output")
    conv[x, y] = hl.f32(0)
    conv[x, y] += hl.f32(taps[r.x, r.y, r.z]) * hl.f32(image[x + r.x + 8 * r.z, y + r.y])
    out[x, y] = conv[x, y] + 1
    out.bound(x, 0, 270).bound(y, 0, 4)
    out.split(x, xo, xi, 256).split(y, yo, yi, 4).reorder(xi, yi, xo, yo)
    out.vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yi)
    conv.compute_at(out, yi).vectorize(x)
    conv.update().reorder(r.x, x, r.y, r.z).atomic().vectorize(x).vectorize(r.x)
    conv.update().unroll(r.y).unroll(r.z)
    hb.store_in(conv, memory)
    return out


CASES: dict[str, tuple[Where, Callable[[int, int, int], bool]]] = {
    "never": (lambda r: r.y < 0, lambda t, y, z: False),
    "beyond the end": (lambda r: r.z >= 5, lambda t, y, z: False),
    "no tap": (lambda r: r.x < -2, lambda t, y, z: False),
    "between 2 and 1": (lambda r: (r.y >= 2) & (r.y < 1), lambda t, y, z: False),
    "first run empty": (lambda r: r.y < r.z, lambda t, y, z: y < z),
    "negative extents": (lambda r: r.y < r.z - 1, lambda t, y, z: y < z - 1),
    "empty and short runs of taps": (lambda r: r.x < 8 * r.z - 8, lambda t, y, z: t < 8 * z - 8),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_empty_adds_nothing(name: str) -> None:
    where, counts = CASES[name]
    kernel = hb.compile(filtered(where), target="sm_80", cache=False)
    random = np.random.default_rng(9)
    image = random.integers(-4, 5, (6, 300)).astype(np.float16)
    taps = random.integers(-4, 5, (3, 3, 8)).astype(np.float16)
    found = kernel.interpret(I=image, K=taps)
    expected = np.ones((4, 270))
    for z, y, t in np.ndindex(3, 3, 8):
        if counts(t, y, z):
            rows = image[y : y + 4, t + 8 * z : t + 8 * z + 270].astype(float)
            expected += float(taps[z, y, t]) * rows
    assert np.array_equal(found, expected)
    empty = not any(counts(t, y, z) for z, y, t in np.ndindex(3, 3, 8))
    assert bool(kernel.report.updates) != empty
