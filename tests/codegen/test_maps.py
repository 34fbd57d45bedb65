"""A kernel has the tensor maps that it copies by, and no others."""

from __future__ import annotations

from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check

import halide_bridge as hb
from selector.runtime.nvrtc import compile_to_cubin

pytestmark = pytest.mark.verified


def product(lanes: int, offset: int | None = None) -> Any:
    """Four stages of panels of 80 bytes a row. In vectors of so many ``lanes``, if any, the rows of
    the 16 columns of one operand are copied in pieces, which are no boxes; those of the other are.
    ``offset``: that one begins so many elements before its array, which goes on with zeros.
    """
    a, b = hl.ImageParam(hl.UInt(8), 2, "a"), hl.ImageParam(hl.UInt(8), 2, "b")
    x, y, xo, xi, yo, yw, yi = map(hl.Var, ("x", "y", "xo", "xi", "yo", "yw", "yi"))
    ro, ru, ri = map(hl.RVar, ("ro", "ru", "ri"))
    r = hl.RDom([(0, b.dim(0).extent())], "r")
    sums, out = hl.Func("sums"), hl.Func("out")
    sums[x, y] = 0
    wide = a if offset is None else hl.BoundaryConditions.constant_exterior(a, hl.u8(0))
    sums[x, y] += hl.i32(b[r.x, x]) * hl.i32(wide[r.x - (offset or 0), y - (offset or 0)])
    out[x, y] = sums[x, y]
    out.split(x, xo, xi, 16).split(y, yo, yw, 128).split(yw, yw, yi, 64)
    out.reorder(xi, yi, yw, xo, yo).vectorize(xi).vectorize(yi).gpu_threads(yw).gpu_blocks(xo, yo)
    sums.compute_at(out, xo).split(y, yw, yi, 64).reorder(x, yi, yw)
    sums.vectorize(x).vectorize(yi).gpu_threads(yw)
    hb.store_in(sums, hb.MemoryType.WGMMAAccumulator)
    update = sums.update()
    update.split(y, yw, yi, 64).split(r.x, ro, ru, 64).split(ru, ru, ri, 32)
    update.reorder(ri, x, yi, ru, yw, ro).atomic().vectorize(ri).vectorize(x).vectorize(yi)
    update.gpu_threads(yw).unroll(ru)
    for p in (wide, b):
        staged = p.in_(sums)
        staged.compute_at(sums, ro).store_in(hl.MemoryType.GPUShared)
        staged.align_storage(staged.args()[0], 40)
        if lanes:
            xc, xv = hl.Var("xc"), hl.Var("xv")
            staged.split(staged.args()[0], xc, xv, lanes).vectorize(xv)
        hb.pipeline_stages(staged, 4)
    return out


@pytest.mark.nvrtc
@pytest.mark.parametrize(("lanes", "maps"), [(0, True), (8, False)])
def test_maps_are_declared_where_they_are_used(lanes: int, maps: bool) -> None:
    source = hb.compile(product(lanes), target="sm_90a", cache=False).source
    assert ("__grid_constant__ TensorMap map_a" in source) is maps
    assert ("prefetch_map(&map_a)" in source) is maps
    compile_to_cubin(source, "sm_90a")


@pytest.mark.parametrize("offset", [0, 1, 5])
@pytest.mark.parametrize("mapped", [True, False], ids=["maps", "threads"])
def test_an_array_that_goes_on_with_zeros_has_a_map(offset: int, mapped: bool) -> None:
    kernel = hb.compile(product(0, offset), target="sm_90a", cache=False)
    assert "__grid_constant__ TensorMap map_a" in kernel.source
    rng = np.random.default_rng(offset)
    depth, rows, columns = 91, 150, 21
    a = rng.integers(0, 9, (rows - 7, depth - 3), np.uint8)
    b = rng.integers(0, 9, (columns, depth), np.uint8)
    there = np.zeros((rows, depth), np.int32)
    there[offset:, offset:] = np.pad(a, ((0, 7), (0, 3)))[: rows - offset, : depth - offset]
    found = check(kernel, a=a, b=b, sizes=(rows, columns), maps_ready=mapped)
    assert np.array_equal(found, there @ b.astype(np.int32).T)
