"""Copies out of shared memory, 16 bytes at a time."""

from __future__ import annotations

import re

import numpy as np
import pytest

pytest.importorskip("halide")

import halide as hl
from emulation import run

import halide_bridge as hb
from selector.gpu.codegen.threads.nests import Digit, Nest, independent
from selector.ir.affine import to_affine
from selector.ir.nodes import Expr, FloatImm, IntImm, Store, Var
from selector.ir.simplify import add, mul
from selector.ir.types import FLOAT32


def products(width: int, factor: float | None, through: bool) -> hl.Func:
    """I * K in blocks of 16 x ``width``, laid out in shared memory, stored to the output or to an
    intermediate (``through``) of which the output is a copy.
    """
    x, y, xo, xi, yo, yi = (hl.Var(v) for v in ("x", "y", "xo", "xi", "yo", "yi"))
    image, matrix = hl.ImageParam(hl.Float(16), 2, "I"), hl.ImageParam(hl.Float(16), 2, "K")
    sums, tile, kept, out = (hl.Func(n) for n in ("sums", "tile", "kept", "out"))
    r = hl.RDom([(0, 32)], "r")
    sums[x, y] = hl.f32(0.0)
    sums[x, y] += hl.f32(image[r.x, y]) * hl.f32(matrix[x, r.x])
    tile[x, y] = hl.cast(hl.Float(16), sums[x, y])
    kept[x, y] = tile[x, y] if factor is None else tile[x, y] * hl.cast(hl.Float(16), factor)
    out[x, y] = kept[x, y]
    stored = kept if through else out
    stored.split(x, xo, xi, width, hl.TailStrategy.RoundUp).split(y, yo, yi, 16)
    stored.reorder(xi, yi, xo, yo).vectorize(xi).vectorize(yi).gpu_blocks(xo, yo)
    if through:
        kept.compute_root()
        out.gpu_tile(x, y, xo, yo, xi, yi, 16, 4)
    tile.store_in(hl.MemoryType.GPUShared)
    for part in (tile, sums):
        part.compute_at(stored, xo).bound_extent(x, width).bound_extent(y, 16)
        part.vectorize(x).vectorize(y)
    sums.update().reorder(r.x, x, y).atomic().vectorize(r.x).vectorize(x).vectorize(y)
    hb.store_in(sums, hb.MemoryType.WMMAAccumulator)
    return out


def test_elements_of_a_thread_are_rows_apart() -> None:
    """A turn of all threads has whole rows: only the row is another in the next one."""
    kernel = hb.compile(products(16, None, through=False), target="sm_80")
    assert "const int v0 = lane % 16;" in kernel.source
    assert "const int v1 = lane / 16 + step * 2;" in kernel.source
    rng = np.random.default_rng(3)
    image, matrix = (rng.standard_normal(s).astype(np.float16) for s in ((21, 32), (32, 40)))
    result = run(kernel, I=image, K=matrix, sizes=(21, 40))
    truth = image.astype(float) @ matrix
    assert np.linalg.norm(result - truth) <= 1e-3 * np.linalg.norm(truth)


def test_rows_of_an_intermediate_leave_in_whole_chunks() -> None:
    kernel = hb.compile(products(32, None, through=True), target="sm_80")
    assert "*(uint4*)to = *(const uint4*)from;" in kernel.source
    rng = np.random.default_rng(2)
    image, matrix = (rng.standard_normal(s).astype(np.float16) for s in ((21, 32), (32, 40)))
    truth = image.astype(float) @ matrix
    result = kernel.interpret(I=image, K=matrix, sizes=(21, 40))
    assert np.linalg.norm(result - truth) <= 1e-3 * np.linalg.norm(truth)


def test_what_is_no_copy_is_stored_element_by_element() -> None:
    assert "uint4" not in hb.compile(products(32, 2.0, through=True), target="sm_80").source


def test_a_ragged_output_leaves_in_whole_chunks_where_all_of_it_is_stored() -> None:
    kernel = hb.compile(products(32, None, through=False), target="sm_80")
    assert re.search(r"if \(aligned_out_16 && .*\{\n[^}]*uint4", kernel.source)
    rng = np.random.default_rng(3)
    for rows in (16, 21):  # the last tile is cut
        image, matrix = (rng.standard_normal(s).astype(np.float16) for s in ((rows, 32), (32, 40)))
        truth = image.astype(float) @ matrix
        result = run(kernel, I=image, K=matrix, sizes=(rows, 40))
        assert np.linalg.norm(result - truth) <= 1e-3 * np.linalg.norm(truth)


@pytest.mark.parametrize(("factor", "answer"), [("pitch", True), ("other", False)])
def test_rows_of_an_intermediate_are_apart(factor: str, answer: bool) -> None:
    """``buffer[x + row * factor]`` stores different elements if the factor is its pitch."""
    pitch: Expr = mul(Var("pitch"), IntImm(8))
    x, row = Var("x"), Var("row")
    index = add(x, mul(row, mul(Var(factor), IntImm(8))))
    digits = (Digit(x, IntImm(32)), Digit(row, IntImm(16)))
    nest = Nest(
        digits, Store("buffer", to_affine(index).to_expr(), FloatImm(0.0, FLOAT32), None), None
    )
    assert independent(nest, None, (pitch,)) is answer
    assert not independent(nest, None)
