"""The space of schedules for warpgroups that a GPU and a size choose from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import halide as hl

from casestudies.gemm.algorithm import multiply
from casestudies.gemm.problem import Problem
from casestudies.gemm.warpgroups import Groups, groups_for, warpgroups

# Block tiles (n, m) and groups along n and m: 64 to 128 registers of a thread are accumulators.
TILES = (
    (128, 64, 1, 1),
    (128, 128, 1, 1),
    (128, 128, 1, 2),
    (128, 192, 1, 3),
    (128, 256, 1, 2),
    (192, 128, 1, 2),
    (256, 64, 1, 1),
    (256, 64, 2, 1),
    (256, 128, 1, 2),
    (256, 128, 2, 1),
    (256, 128, 2, 2),
    (256, 192, 1, 3),
    (256, 256, 2, 2),
)
BANDS = (4, 8, 16)
MOST_STAGES = 8
RING_BYTES = 224 << 10  # of the 227 KB that a block may have


def space(problem: Problem) -> Iterator[Groups]:
    """Tiles, the two deepest rings that fit, and how many block rows run side by side; first the
    schedule that is used without tuning.
    """
    usual = groups_for(problem)
    yield usual
    bytes_of_k = usual.k * (1 if problem.operand == "s8" else 2)
    for n, m, groups_n, groups_m in TILES:
        deepest = min(MOST_STAGES, RING_BYTES // ((n + m) * bytes_of_k))
        for stages in (deepest, deepest - 1):
            for band in BANDS:
                yield replace(
                    usual, n=n, m=m, groups_n=groups_n, groups_m=groups_m, stages=stages, band=band
                )


def schedule(problem: Problem, groups: Groups) -> hl.Func:
    """The pipeline's output in that configuration."""
    product = multiply(problem.types, problem.layout, problem.epilogue)
    return warpgroups(product, groups)
