"""Products of an array with itself: beyond the end of a row lies the next one, not zero."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("halide")

import halide as hl

import halide_bridge as hb
from selector.ir.bfloat16 import from_bits, to_bits

pytestmark = pytest.mark.verified

TILE, DEPTH = 16, 32


def gram(element: hl.Type, memory: hb.MemoryType, *, on_gpu: bool) -> hl.Func:
    """``G(x, y) = sum_k A(k, y) * A(k, x)`` over the rows' whole length."""
    a = hl.ImageParam(element, 2, "A")
    product, out = hl.Func("product"), hl.Func("G")
    x, y, xo, yo, xi, yi = (hl.Var(n) for n in ("x", "y", "xo", "yo", "xi", "yi"))
    k = hl.RDom([(0, a.width())], "k")
    product[x, y] = hl.f32(0)
    product[x, y] += hl.f32(a[k.x, y]) * hl.f32(a[k.x, x])
    out[x, y] = product[x, y]
    out.tile(x, y, xo, yo, xi, yi, TILE, TILE).vectorize(xi).vectorize(yi)
    if on_gpu:
        out.gpu_blocks(xo, yo)
    product.compute_at(out, xo).bound_extent(x, TILE).bound_extent(y, TILE)
    product.vectorize(x).vectorize(y)
    hb.store_in(product, memory)
    ko, ki = hl.RVar("ko"), hl.RVar("ki")
    update = product.update().atomic().split(k.x, ko, ki, DEPTH).reorder(ki, x, y, ko)
    update.vectorize(ki).vectorize(x).vectorize(y)
    return out


@pytest.mark.parametrize("depth", [1, 31, 64, 100])
@pytest.mark.parametrize("target", ["sm_90a", "amx"])
def test_a_ragged_sum_ends_with_its_row(target: str, depth: int) -> None:
    amx = target == "amx"
    memory = hb.MemoryType.AMXTile if amx else hb.MemoryType.WMMAAccumulator
    element = hl.BFloat(16) if amx else hl.Float(16)
    kernel = hb.compile(gram(element, memory, on_gpu=not amx), target=target)
    rows = np.random.default_rng(3).standard_normal((40, depth)).astype(np.float16)
    given = to_bits(rows) if amx else rows
    values = (from_bits(given) if amx else rows).astype(np.float64)
    truth = values @ values.T
    results = [kernel.interpret(A=given, sizes=(40, 40))]
    if amx:
        results.append(kernel(A=given, sizes=(40, 40)))
    for result in results:
        assert np.linalg.norm(result - truth) <= 2e-3 * np.linalg.norm(truth)
