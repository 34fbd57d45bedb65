"""A tile is stored once it is complete: the registers of a warp hold the tiles in work only."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("halide")

import halide as hl

import halide_bridge as hb
from casestudies.common.filters import tensor
from casestudies.conv1d.algorithm import convolve
from selector.families.windows import Tiling

pytestmark = pytest.mark.verified


def rows_of(vectors: int) -> Tiling:
    return Tiling(outputs=128, vectors=vectors, rows=1)


def order(source: str) -> list[tuple[str, int]]:
    """("mma" or "store", tile) in the order of the text, the guarded copies of stores left out."""
    found: list[tuple[str, int]] = []
    for match in re.finditer(r"mma_\w+\(conv\[(\d+)\]|store2\(.*conv\[(\d+)\]", source):
        tile = match[1] if match[1] is not None else match[2]
        found.append(("mma" if match[1] is not None else "store", int(tile)))
    return found


def test_stores_stand_among_the_instructions() -> None:
    kernel = hb.compile(tensor(convolve(64), rows_of(8)), target="sm_90a")
    steps = order(kernel.source)
    for tile in range(8):
        assert steps.index(("store", tile)) > max(
            n for n, step in enumerate(steps) if step == ("mma", tile)
        )
    assert steps.index(("store", 0)) < steps.index(("mma", 2))
    assert [t for kind, t in dict.fromkeys(steps) if kind == "store"] == list(range(8))


def test_a_loop_over_taps_ends_before_the_stores() -> None:
    """Tiles that a loop still adds to are not complete in it."""
    p = convolve(512)  # two bands
    kernel = hb.compile(tensor(p, rows_of(2)), target="sm_90a")
    steps = order(kernel.source)
    for tile in range(2):
        assert steps.index(("store", tile)) > max(
            n for n, step in enumerate(steps) if step == ("mma", tile)
        )


@pytest.mark.slow
@pytest.mark.nvrtc
def test_registers_do_not_grow_with_the_tiles() -> None:
    from selector.runtime.nvrtc import resource_usage

    def registers(vectors: int) -> int:
        func: hl.Func = tensor(convolve(256), rows_of(vectors))
        cubin = hb.compile(func, target="sm_90a").cubin()
        return max(usage.registers for usage in resource_usage(cubin).values())

    assert registers(12) <= registers(6) + 8
