"""Blocks whose operands ``ldmatrix`` can fetch are preferred to fewer multiply-adds."""

from __future__ import annotations

import pytest

pytest.importorskip("halide")

import halide_bridge as hb
from casestudies.common.filters import tensor
from casestudies.upsample.algorithm import upsample
from selector.eqsat.cost import GATHERED, block_cost
from selector.families.windows import Tiling

NAME = "wmma.mma.m16n16k16.f16.f32"


def block(outer: int, inner: int, name: str = NAME) -> tuple[object, ...]:
    a = ("Matrix", "float16", "I", ("Sym", "s"), ("Int", outer), 16, ("Int", inner), 15, None)
    return ("MultiplyAdd", name, 16, 16, 15, None, a, ("Materialize", None))


def test_an_operand_at_odd_addresses_costs_more() -> None:
    aligned = block_cost(block(8, 1))
    assert aligned[0] == 16 * 16 * 16
    assert block_cost(block(1, 8)) == aligned
    for outer, inner in ((4, 1), (1, 12), (8, 2)):
        assert block_cost(block(outer, inner))[0] == GATHERED * aligned[0]


def test_rows_of_wgmma_that_overlap_start_16_bytes_apart() -> None:
    def issued(outer: int, count: int) -> int:
        found = list(block(outer, 1, "wgmma.m64n64k16.f16.f32"))
        found[2:5] = (64, 64, 16)
        found[6] = (*found[6][:7], count, None)  # type: ignore[index]
        return block_cost(tuple(found))[0]

    for outer, count in ((8, 64), (64, 64), (16, 16)):
        assert issued(outer, count) == issued(8, 15)
    for outer, count in ((16, 64), (16, 17)):
        assert issued(outer, count) == GATHERED * issued(8, 15)


def band(apart: int, taps: int = 8, phases: int = 2) -> tuple[object, ...]:
    index = ("Ramp", ("Ramp", ("Sym", "t"), ("Int", 1), taps), ("Int", apart), phases)
    load = ("Load", "float16", "K", index, None)
    found = list(block(8, 1))
    found[7] = ("Materialize", ("Toeplitz", "float16", 15, 16, 1, 1, phases, load))
    return tuple(found)


def test_a_band_of_phases_that_slide_over_a_signal_costs_more() -> None:
    """Those of a bank of filters do not share taps, nor do those that alternate."""
    plain = block_cost(band(8))
    assert plain[0] == 16 * 16 * 16
    for apart in (1, 2, 7, -3):
        assert block_cost(band(apart))[0] == GATHERED * plain[0]
    for apart in (8, 9, -8):
        assert block_cost(band(apart)) == plain
    assert block_cost(band(1, taps=1)) == plain


@pytest.mark.parametrize("taps", [3, 10, 12, 13])
def test_upsampling_reads_whole_rows_of_matrices(taps: int) -> None:
    """Eight columns would be fewer multiply-adds, of windows 8 bytes apart."""
    kernel = hb.compile(tensor(upsample(taps), Tiling()), target="sm_80")
    (found,) = {u.block.n for u in kernel.report.updates if u.block is not None}
    assert found == 16
    body = kernel.source.split("__global__")[1]
    assert "ldmatrix4(" in body
