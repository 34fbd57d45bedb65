"""Tiles that every turn of a persistent block has of its own come ahead of it, by the group that
feeds: the queries of attention.
"""

from __future__ import annotations

import pytest

pytest.importorskip("halide")

import halide_bridge as hb
from casestudies.attention.algorithm import attend
from halide_bridge.schedules import schedule_attention
from selector.families.attention.tiling import Tiling
from selector.gpu.codegen.program import emit_kernels
from selector.simulate import simulate
from selector.targets import find_target
from tests.lowering.test_online import error, operands, truth

pytestmark = pytest.mark.verified


def kernel(units: int, keys: int, stages: int, depth: int, *, causal: bool = False) -> hb.Kernel:
    channels = 32 if depth % 32 == 0 else 16
    tiling = Tiling(units, 64, keys, stages, 64, groups=True, channels=channels, persistent=1)
    return hb.compile(
        schedule_attention(attend(depth, causal=causal, run=keys), tiling), target="sm_90a"
    )


@pytest.mark.parametrize("flags", [True, False], ids=["maps", "no-maps"])
@pytest.mark.parametrize(
    ("units", "keys", "stages", "depth", "causal"),
    [
        (2, 64, 2, 64, False),
        (1, 64, 3, 80, False),
        (3, 64, 2, 32, True),
        (2, 128, 2, 64, True),
        (2, 80, 2, 48, True),
    ],
)
def test_every_turn_has_its_own(
    units: int, keys: int, stages: int, depth: int, causal: bool, flags: bool
) -> None:
    """Blocks of several turns (there are three multiprocessors), the last tile of a head ragged;
    every fault that the simulator knows is reported.
    """
    found = kernel(units, keys, stages, depth, causal=causal)
    assert "barrier_await(tile_full, " in found.source
    kernels, plan = emit_kernels(found.module, find_target("sm_90a"))
    queries, heads = units * 64 * 2 + 37, 4
    arrays = operands(heads, queries, queries if causal else 150, depth)
    result = simulate(kernels, plan, arrays, (heads, queries, depth), flags=flags)
    assert result.faults == ()
    expected = truth(**{n.lower(): a for n, a in arrays.items()}, causal=causal)
    assert error(result.outputs["output"], expected) < 5e-4


def test_a_block_of_one_turn_copies_its_own() -> None:
    tiling = Tiling(2, 64, 64, 2, 64, groups=True)
    source = hb.compile(schedule_attention(attend(64, run=64), tiling), target="sm_90a").source
    assert "tile_full" not in source
