"""Rows of accumulators are reduced where they lie: each lane its elements, then four lanes."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("halide")

import halide as hl
from corpus_rows import softmax_parts

import halide_bridge as hb
from selector.diagnostics import EmitError, SelectionError


def test_every_element_of_a_row_counts_once() -> None:
    """16 rows of 32 columns: lane 4 * g + q has two elements of row g in each of four tiles."""
    source = hb.compile(softmax_parts(16, 1, "sum"), target="sm_90a").source
    counted = [
        sorted((int(tile), int(e)) for tile, e in re.findall(r"mm\w*\[(\d)\]\[(\d)\]", block))
        for block in re.findall(r"float total.*?if \(q == 0\)", source, re.S)
    ]
    rows = [[(tile, e) for tile in range(4) for e in half] for half in ((0, 1), (2, 3))]
    assert counted == rows


def test_four_lanes_share_a_row() -> None:
    source = hb.compile(softmax_parts(32, 2, "max"), target="sm_90a").source
    steps = re.findall(r"__shfl_xor_sync\(0xffffffffu, \w+, (\d)\)", source)
    assert steps == ["1", "2"] * 4  # two tiles of 16 rows, rows g and g + 8 of each
    assert re.findall(r"if \(q == 0\) \w+\[(.*?)\] =", source) == [
        "g", "g + 8", "g + 16", "g + 8 + 16",
    ]  # fmt: skip


def test_scores_stay_in_registers() -> None:
    """Only the sums of a row go through memory."""
    source = hb.compile(softmax_parts(16, 4), target="sm_90a").source
    assert not re.search(r"= mm\w*\[\d\]\[\d\];", source)


def test_tiles_that_lie_transposed_are_refused() -> None:
    """Eight rows are no m16n8 tile as they lie: its rows are columns of the accumulator."""
    pipeline = softmax_parts(8, 2, "max", vector=8)
    with pytest.raises(EmitError, match="not one over the columns of its tiles") as caught:
        hb.compile(pipeline, target="sm_90a", instructions=("wmma.mma.m8n32k16.f16.f32",))
    assert "innermost in the accumulator" in caught.value.hint


def test_a_reduction_across_rows_is_not_a_read_of_tiles() -> None:
    n, m, c = hl.Var("n"), hl.Var("m"), hl.RDom([(0, 16)], "c")
    mm, total, out = hl.Func("mm"), hl.Func("total"), hl.Func("out")
    a, b = hl.ImageParam(hl.Float(16), 2, "A"), hl.ImageParam(hl.Float(16), 2, "B")
    k = hl.RDom([(0, 16)], "k")
    mm[n, m] = hl.f32(0.0)
    mm[n, m] += hl.f32(a[k.x, m]) * hl.f32(b[n, k.x])
    total[n] = hl.f32(0.0)
    total[n] += mm[n, c.x]
    out[n] = total[n]
    no, ni = hl.Var("no"), hl.Var("ni")
    out.split(n, no, ni, 16).vectorize(ni).gpu_blocks(no)
    total.compute_at(out, no).vectorize(n)
    total.update().reorder(c.x, n).atomic().vectorize(c.x).vectorize(n)
    mm.compute_at(out, no).bound_extent(n, 16).bound_extent(m, 16).vectorize(n).vectorize(m)
    mm.update().reorder(k.x, n, m).atomic().vectorize(k.x).vectorize(n).vectorize(m)
    hb.store_in(mm, hb.MemoryType.WMMAAccumulator)
    with pytest.raises(SelectionError, match=r"`total` .* cannot go to the tensor unit"):
        hb.compile(out, target="sm_90a")
