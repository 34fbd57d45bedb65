"""Which schedule of the family a matrix product has. Plain arithmetic: programs are named by it,
where there is no Halide.
"""

from __future__ import annotations

from dataclasses import replace

from selector.families.contraction import Shape, Tiling, estimate, pick, worth_copying
from selector.machine import machine_for

SMALL = Tiling(n=128, m=64, parts_m=1, stages=8)
LARGE = Tiling(persistent=1, cluster=2)
TALL = Tiling(n=128, m=256, persistent=1)
TENSOR = Tiling(parts_n=2, parts_m=1, persistent=1, tall=True)

WARPS = Tiling(n=64, m=128, parts_n=2, parts_m=2, unit="warp", band=0)
LARGE_WARPS = replace(WARPS, n=256, parts_n=4, stages=3)
NARROW_WARPS = replace(WARPS, n=128, parts_m=4, stages=2)
SHARED = 160 << 10  # bytes of a block that the tiles of warps may take, but for narrow ones
WORTH = 0.95  # of the usual schedule's time, for a program of its own
TARGET = "sm_90a"


def is_large(shape: Shape) -> bool:
    """Whether blocks of 128 x 256 keep a large GPU busy."""
    return shape.m * shape.n >= 1 << 21


def is_tall(shape: Shape) -> bool:
    """Whether blocks of 256 x 128 instead take fewer rounds on such a GPU."""
    return is_large(shape) and _rounds(shape, 256, 128) < _rounds(shape, 128, 256)


def _rounds(shape: Shape, m: int, n: int) -> int:
    blocks = -(-shape.m // m) * -(-shape.n // n)
    return -(-blocks // machine_for(TARGET).multiprocessors)


def usual_groups(shape: Shape) -> Tiling:
    """Small tiles where there would be too few blocks for a GPU, else large ones, lying or upright,
    whichever take fewer rounds; a run of k is 128 bytes.
    """
    size = TALL if is_tall(shape) else LARGE if is_large(shape) else SMALL
    size = replace(size, copied=worth_copying(shape))
    if shape.integers:
        return replace(size, k=128, depth=32, persistent=0, cluster=1)
    return size


def groups_for(shape: Shape) -> Tiling:
    """The usual schedule, or the model's choice where that is worth a program. Of bytes that lie
    across the sum it is the one for copies of them: the model has not been held against the times
    of warps that read them as they lie.
    """
    usual = usual_groups(shape)
    machine = machine_for(TARGET)
    found = pick(replace(shape, along_a=True, along_b=True) if shape.across else shape, machine)
    if shape.across:
        found = replace(found, copied=worth_copying(shape))
    time = estimate(found, shape, machine).microseconds
    return found if time < WORTH * estimate(usual, shape, machine).microseconds else usual


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
