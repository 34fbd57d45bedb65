"""Blocks of few columns share a tile of an accumulator: lanes of a part that no block has hold
zeros from the start. NVRTC 13.0 left zeros of some lanes out where the others held nothing, and
sums of a row of windows began with whatever their registers held (seen on an H200).
"""

from __future__ import annotations

import pytest

pytest.importorskip("halide")

import halide as hl

import halide_bridge as hb
from selector.gpu.codegen.epilogues.regions import Accumulator, Region

F16 = hl.Float(16)


def windows(rows: int) -> hl.Func:
    """Every second pixel of ``rows`` rows a warpgroup, filtered with five taps: 4 columns a row."""
    x, y, xi, xo, yo, yu, yw = (hl.Var(n) for n in ("x", "y", "xi", "xo", "yo", "yu", "yw"))
    image, taps = hl.ImageParam(F16, 2, "A"), hl.ImageParam(F16, 1, "B")
    r, acc, out = hl.RDom([(0, 5)], "r"), hl.Func("acc"), hl.Func("out")
    acc[x, y] = hl.cast(F16, 0)
    acc[x, y] += image[2 * x + r.x, y] * taps[r.x]
    out[x, y] = acc[x, y]
    out.split(x, xo, xi, 256).split(y, yo, yw, 3 * rows).split(yw, yw, yu, rows)
    out.reorder(xi, yu, yw, xo, yo).vectorize(xi).unroll(yu).gpu_threads(yw).gpu_blocks(xo, yo)
    acc.bound_extent(x, 256).bound_extent(y, rows).compute_at(out, yw).vectorize(x).unroll(y)
    hb.store_in(acc, hb.MemoryType.WGMMAAccumulator)
    acc.update().reorder(r.x, x, y).atomic().vectorize(x).unroll(y).vectorize(r.x)
    staged = image.in_(acc).compute_at(out, xo).store_in(hl.MemoryType.GPUShared)
    staged.bound_extent(staged.args()[0], 515).bound_extent(staged.args()[1], 3 * rows)
    staged.vectorize(staged.args()[0])
    return out


@pytest.mark.parametrize(("rows", "left"), [(2, False), (3, True)])
def test_lanes_that_no_row_has_begin_as_zeros(rows: int, left: bool) -> None:
    source = hb.compile(windows(rows), target="sm_90a", cache=False).source
    lines = [line.strip() for line in source.splitlines()]
    begin = next(i for i, line in enumerate(lines) if line.startswith("u32 acc["))
    zeros = f"acc[{rows // 2}][0] = pack16(to_f16(0.0f), to_f16(0.0f));"
    assert lines[begin + 1].startswith(zeros) == left


def test_tiles_with_a_part_that_is_not_there() -> None:
    def shared(*offsets: int) -> tuple[int, ...]:
        regions = {o: Region(o, 64, 4, swapped=False, rows=64) for o in offsets}
        return Accumulator("acc", 2, regions, half=True).shared

    assert shared(0, 256) == ()
    assert shared(0, 256, 512) == (1,)
    assert shared(256) == (0,)
    whole = Region(0, 64, 8, swapped=False, rows=64)
    assert Accumulator("acc", 1, {0: whole}, half=True).shared == ()
