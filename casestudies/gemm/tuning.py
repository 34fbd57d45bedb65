"""The space of schedules for warpgroups that a GPU and a size choose from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import halide as hl

from casestudies.gemm.algorithm import multiply
from casestudies.gemm.problem import Problem
from casestudies.gemm.schedule import tensor
from casestudies.gemm.tiles import groups_for
from selector.families.contraction import Tiling

# Block tiles (n, m) and groups along n and m: 64 to 128 registers of a thread are accumulators, and
# the group that feeds the ring has room for its own.
TILES = (
    (128, 64, 1, 1),
    (128, 128, 1, 1),
    (128, 128, 1, 2),
    (128, 192, 1, 3),
    (128, 256, 1, 2),
    (192, 128, 1, 2),
    (256, 64, 2, 1),
    (256, 128, 1, 2),
    (256, 128, 2, 1),
)
GRIDS = ((0, 1), (1, 1), (1, 2))  # blocks that stay on a multiprocessor, blocks of a cluster
MOST_STAGES = 8
RING_BYTES = 224 << 10  # of the 227 KB that a block may have


def space(problem: Problem) -> Iterator[Tiling]:
    """Tiles, grids and the deepest rings that fit; first the schedule that is used without tuning.

    Blocks that stay keep room for results that leave: their rings may have to be shorter.
    """
    usual = groups_for(problem.shape)
    yield usual
    bytes_of_k = usual.k * (1 if problem.operand == "s8" else 2)
    for n, m, groups_n, groups_m in TILES:
        tile = replace(usual, n=n, m=m, parts_n=groups_n, parts_m=groups_m)
        deepest = min(MOST_STAGES, RING_BYTES // ((n + m) * bytes_of_k))
        for persistent, cluster in GRIDS:
            for stages in range(deepest, deepest - (3 if persistent else 2), -1):
                yield replace(tile, persistent=persistent, cluster=cluster, stages=stages)


def schedule(problem: Problem, tiling: Tiling) -> hl.Func:
    """The pipeline's output in that configuration."""
    batched = problem.batch > 1
    product = multiply(problem.types, problem.layout, problem.epilogue, batched=batched)
    return tensor(product, tiling)
