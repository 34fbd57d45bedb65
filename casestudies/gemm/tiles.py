"""Which tiling of the family a matrix product has beside what the family picks itself. Plain
arithmetic: programs are named by it, where there is no Halide.
"""

from __future__ import annotations

from dataclasses import replace

from selector.families.contraction import Shape, Tiling, pick
from selector.families.contraction.usual import LARGE, is_large
from selector.machine import machine_for

TENSOR = Tiling(parts_n=2, parts_m=1, persistent=1, tall=True)

WARPS = Tiling(n=64, m=128, parts_n=2, parts_m=2, unit="warp", band=0)
LARGE_WARPS = replace(WARPS, n=256, parts_n=4, stages=3)
NARROW_WARPS = replace(WARPS, n=128, parts_m=4, stages=2)
SHARED = 160 << 10  # bytes of a block that the tiles of warps may take, but for narrow ones
TARGET = "sm_90a"


def groups_for(shape: Shape) -> Tiling:
    """The family's choice for warpgroups."""
    return pick(shape, machine_for(TARGET))


def tensor_groups_for(shape: Shape) -> Tiling:
    """Tiles of 128 rows for each group, the most that an instruction of tcgen05 has, but for bytes:
    nothing else was measured, since there was no such GPU. Wide ones where those of ``groups_for``
    are large.
    """
    found = groups_for(shape)
    size = TENSOR if found.m * found.n >= LARGE.m * LARGE.n else replace(TENSOR, n=128, stages=6)
    size = replace(size, copied=found.copied)
    if not shape.integers:
        return size
    # Statements of 128 rows of bytes would be longer than Halide allows. Of 64 rows, each group has
    # one instruction's: sums of several lie apart in tensor memory where another group is between.
    return replace(size, k=128, depth=32, tall=False, parts_n=1, parts_m=2)


def warps_for(shape: Shape, *, narrow: bool = False) -> Tiling:
    """Small tiles where there would be too few blocks for a GPU, else the ones that read least;
    ``narrow``: for GPUs with less shared memory.
    """
    if narrow:
        return NARROW_WARPS if is_large(shape) else replace(WARPS, stages=3)
    return LARGE_WARPS if is_large(shape) else WARPS
