"""The tilings for warpgroups that have been measured at more sizes than any others. The model tells
tilings of about the same time apart no better than within a few per cent; these are the ones to
have there: of 14 products that it had others for, all within that, they were 1.6 % faster in the
mean and 1.6 % slower at most (one H100, 2026-11-27). Of 23 large ones the choice lost 1.7 % to the
best that was measured; had others had to promise 5 % instead of 3 %, 2.5 % (one H200, 2026-11-30).
"""

from __future__ import annotations

from dataclasses import replace

from selector.families.contraction.space import worth_copying
from selector.families.contraction.tiling import Shape, Tiling
from selector.machine.record import Machine

SMALL = Tiling(n=128, m=64, parts_m=1, stages=8)
LARGE = Tiling(persistent=1, cluster=2)
TALL = Tiling(n=128, m=256, persistent=1)
WORTH, WORTH_OF_BYTES = 0.97, 0.95  # of the usual tiling's time, for another one


def usual(shape: Shape, machine: Machine) -> Tiling:
    """Small tiles where there would be too few blocks for a GPU, else large ones, lying or upright,
    whichever take fewer rounds; a run of k is 128 bytes.
    """
    size = TALL if is_tall(shape, machine) else LARGE if is_large(shape) else SMALL
    size = replace(size, copied=worth_copying(shape))
    if shape.integers:
        return replace(size, k=128, depth=32, persistent=0, cluster=1)
    return size


def is_large(shape: Shape) -> bool:
    """Whether blocks of 128 x 256 keep a large GPU busy."""
    return shape.m * shape.n >= 1 << 21


def is_tall(shape: Shape, machine: Machine) -> bool:
    """Whether blocks of 256 x 128 instead take fewer rounds on such a GPU."""
    tall, lying = (_rounds(shape, machine, *tile) for tile in ((256, 128), (128, 256)))
    return is_large(shape) and tall < lying


def _rounds(shape: Shape, machine: Machine, m: int, n: int) -> int:
    blocks = -(-shape.m // m) * -(-shape.n // n)
    return -(-blocks // machine.multiprocessors)
