"""Windows of a convolution of stride 2 are read from strips, without bank conflicts."""

from __future__ import annotations

import re
import warnings
from itertools import pairwise

import halide as hl
import numpy as np
import pytest
from corpus import CORPUS
from corpus_conv import Plane, Row, plane_convolution, row_convolution
from emulation import check

import halide_bridge as hb
from selector.diagnostics import PerformanceWarning
from selector.gpu.codegen.program import emit_kernels
from selector.gpu.ir.layouts import Dealt
from selector.simulate import simulate
from selector.targets import find_target

pytestmark = pytest.mark.verified

BANK_BYTES = 128


def source(pipeline: object) -> str:
    return hb.compile(pipeline, target="sm_90a").source


def matrices(text: str) -> list[list[int]]:
    """Element offsets that the lanes of every matrix of every ldmatrix name, in a block's buffer;
    loops and warps at 0.
    """
    bases = dict(re.findall(r"const u32 (a\d+) = shared_address\(\w+ \+ \((.*)\)\);", text))
    found: list[list[int]] = []
    for count, base, shift in re.findall(r"ldmatrix([124])\((a\d+)(?: \+ (\d+))?, ", text):
        address = re.sub(r"\b(?!lane\b)[A-Za-z_]\w*", "0", bases[base]).replace("/", "//")
        for matrix in range(int(count)):
            lanes = range(8 * matrix, 8 * matrix + 8)
            starts = [eval(address, {"lane": lane}) + int(shift or 0) // 2 for lane in lanes]
            found.append(starts)
    return found


@pytest.mark.parametrize(
    "pipeline",
    [
        lambda: row_convolution(Row(stride=2, taps=24)),
        lambda: plane_convolution(Plane(stride=2, tap_rows="unrolled")),
        lambda: plane_convolution(Plane(stride=4, tap_rows="some", taps=6)),
    ],
    ids=["row", "plane", "plane of stride 4"],
)
def test_windows_meet_no_bank_twice(pipeline: object) -> None:
    assert callable(pipeline)
    text = source(pipeline())
    layout = re.search(r"strip_column<(\d+), (\d+), (\d+)>", text)
    assert layout is not None
    strips = Dealt(*(int(n) for n in layout.groups()))
    back = {strips.place(i): i for i in range(64 * strips.pitch)}
    read = matrices(text)
    assert read
    for starts in read:
        assert len({2 * s % BANK_BYTES // 16 for s in starts}) == 8
        windows = [back[s] for s in starts]
        assert {b - a for a, b in pairwise(windows)} == {strips.step * strips.per}


def test_neighbouring_windows_stay_in_rows() -> None:
    assert "strip_column" not in source(CORPUS["row_staged"].build())
    assert "strip_column" not in source(row_convolution(Row(stride=3, taps=24)))


def by_threads(stride: int, width: int, lanes: int = 8) -> hl.Func:
    """A row's windows, staged by threads that bring some pixels each."""
    x, y, xo, xi, co, ci = (hl.Var(n) for n in ("x", "y", "xo", "xi", "co", "ci"))
    image, taps = hl.ImageParam(hl.Float(16), 2, "image"), hl.ImageParam(hl.Float(16), 1, "taps")
    r, acc, out = hl.RDom([(0, 32)]), hl.Func("acc"), hl.Func("out")
    acc[x, y] = hl.f32(0)
    acc[x, y] += hl.f32(image[stride * x + r, y]) * hl.f32(taps[r])
    out[x, y] = acc[x, y]
    out.bound(x, 0, width).split(x, xo, xi, 128).vectorize(xi).gpu_blocks(xo, y)
    acc.compute_at(out, xo).bound_extent(x, 128).vectorize(x)
    acc.update().reorder(r, x).atomic().vectorize(x).vectorize(r)
    hb.store_in(acc, hb.MemoryType.WMMAAccumulator)
    staged = image.in_(acc)
    staged.compute_at(out, xo).store_in(hl.MemoryType.GPUShared)
    along, row = staged.args()
    staged.bound_extent(along, 128 * stride + 32).bound_extent(row, 1)
    staged.split(along, co, ci, lanes).vectorize(ci).gpu_threads(co)
    return out


@pytest.mark.parametrize("odd", [0, 1, 3])
@pytest.mark.parametrize("lanes", [8, 4])
@pytest.mark.parametrize("stride", [16, 32])
def test_rows_come_to_strips_as_vectors(stride: int, lanes: int, odd: int) -> None:
    """What threads bring of them, aligned or not: each vector lies where the strips have it, in one
    chunk, and nothing is slow about that.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", PerformanceWarning)
        kernel = hb.compile(by_threads(stride, 100, lanes), target="sm_90a")
    assert "strip_column" in kernel.source
    aligned = kernel.source.partition("else {\n      const int shift")[0]
    vector = "uint4" if lanes == 8 else "uint2"
    assert re.search(rf"\*\({vector}\*\)\(image_im_in_acc \+ .*strip_column", aligned)
    random = np.random.default_rng(6)
    image = random.random((2, 128 * stride + 32 + odd)).astype(np.float16)
    taps = random.random(32).astype(np.float16)
    starts = range(0, 100 * stride, stride)
    windows = np.stack([image[:, n : n + 32] for n in starts], axis=1).astype(np.float32)
    wanted = windows @ taps.astype(np.float32)
    assert np.allclose(check(kernel, image=image, taps=taps, sizes=(2, 100)), wanted, rtol=1e-3)
    kernels, plan = emit_kernels(kernel.module, find_target("sm_90a"))
    found = simulate(kernels, plan, {"image": image, "taps": taps}, (2, 100), flags=not odd)
    assert found.faults == ()
    assert np.allclose(found.outputs["out"], wanted, rtol=1e-3)
