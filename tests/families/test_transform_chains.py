"""Chains of transforms as data: what a block holds, which ones a target takes, and their costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from selector.families.transforms import Chain, Tiling, microseconds, ranked, why_not
from selector.families.windows import Axis, Shape
from selector.machine import machine_named
from selector.targets import find_target

H100 = machine_named("H100")
SM_90A = find_target("sm_90a")


def shapes(tile: int = 16, width: int = 4032, height: int = 3024) -> tuple[Shape, ...]:
    """Of tiles that overlap by half, there and back: the last filter first."""
    step = tile // 2
    there = Axis(tile, step=step, phases=tile, first=-step)
    back = Axis(2 * tile, step=tile, phases=step)
    one = Shape(width, height, back, planes=3, result_bytes=2)
    last = replace(one, declared=False)
    columns, bins = replace(one, x=Axis(1), y=back), replace(one, x=Axis(1), y=there)
    return last, columns, bins, replace(one, x=there, declared=False)


def test_what_a_block_reads() -> None:
    chain = Chain(shapes(), 3, Tiling(64, 32, 16))
    assert chain.heights == (32, 32, 80, 48)  # pixels, columns, bins, and rows of the image
    assert (chain.columns, chain.read, chain.threads) == (9, 80, 288)


def test_a_warp_has_two_columns_of_small_tiles() -> None:
    chain = Chain(shapes(8), 3, Tiling(64, 32, 16))
    assert chain.heights == (32, 32, 72, 48)  # of the image 40, which are no whole products
    assert (chain.unit, chain.columns, chain.lead, chain.read) == (16, 9, 4, 80)


def test_one_kernel_is_ranked_by_what_it_takes() -> None:
    assert H100 is not None
    found = ranked(shapes(), 3, H100)
    assert [us for us, _ in found] == sorted(us for us, _ in found)
    assert len(found) > 6
    for us, tiling in found:
        chain = Chain(shapes(), 3, tiling)
        assert us == microseconds(chain, H100)
        assert chain.shared <= SM_90A.shared_memory
        assert chain.stored <= chain.columns


MISSES = {
    "halves": replace(shapes()[3], bytes=4),
    "rows, columns and rows": replace(shapes()[3], x=Axis(1), y=shapes()[2].y),
    "taps along columns, too": replace(shapes()[3], y=Axis(3)),
    "whole operands": replace(shapes()[3], x=Axis(20, step=8, phases=16)),
    "whole products": replace(shapes()[3], x=Axis(16, step=8, phases=24)),
}


@pytest.mark.parametrize("name", MISSES)
def test_others_are_refused(name: str) -> None:
    chain = Chain((*shapes()[:3], MISSES[name]), 3, Tiling(64, 32, 16))
    assert name in why_not(chain, SM_90A)
    assert not why_not(Chain(shapes(), 3, Tiling(64, 32, 16)), SM_90A)


def test_a_tile_has_whole_products_and_room() -> None:
    assert "whole products" in why_not(Chain(shapes(), 3, Tiling(64, 24, 16)), SM_90A)
    assert "no room" in why_not(Chain(shapes(), 3, Tiling(512, 64, 16)), SM_90A)
    assert "no room" in why_not(Chain(shapes(), 3, Tiling(128, 128, 64)), SM_90A)
