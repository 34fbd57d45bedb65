"""Which schedule of the family a matrix product has. Plain arithmetic: programs are named by it,
where there is no Halide.
"""

from __future__ import annotations

from dataclasses import replace

from casestudies.common.case import ELEMENT_BYTES
from casestudies.gemm.problem import Problem
from selector.families.contraction import Shape, Tiling

SMALL = Tiling(n=128, m=64, parts_m=1, stages=8)
LARGE = Tiling(persistent=1, cluster=2)
TALL = Tiling(n=128, m=256, persistent=1)

WARPS = Tiling(n=64, m=128, parts_n=2, parts_m=2, unit="warp", band=0)
LARGE_WARPS = replace(WARPS, n=256, parts_n=4, stages=3)
NARROW_WARPS = replace(WARPS, n=128, parts_m=4, stages=2)
SHARED = 160 << 10  # bytes of a block that the tiles of warps may take, but for narrow ones


def shape_of(problem: Problem) -> Shape:
    """The problem as the family knows it."""
    a, b = problem.layout
    sizes = ELEMENT_BYTES[problem.operand], ELEMENT_BYTES[problem.output.element]
    return Shape(problem.m, problem.n, problem.k, *sizes, a == "n", b == "t")


def groups_for(problem: Problem) -> Tiling:
    """Small tiles where there would be too few blocks for a GPU, else large ones, lying or upright,
    whichever take fewer rounds; a run of k is 128 bytes.
    """
    size = TALL if problem.is_tall else LARGE if problem.is_large else SMALL
    size = replace(size, copied=problem.copied)
    if problem.operand == "s8":
        return replace(size, k=128, depth=32, persistent=0, cluster=1)
    return size


def warps_for(problem: Problem, *, narrow: bool = False) -> Tiling:
    """Small tiles where there would be too few blocks for a GPU, else the ones that read least;
    ``narrow``: for GPUs with less shared memory.
    """
    if narrow:
        return NARROW_WARPS if problem.is_large else replace(WARPS, stages=3)
    return LARGE_WARPS if problem.is_large else WARPS
