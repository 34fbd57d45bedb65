"""Sizes to try a model of costs at: drawn log-uniformly, and some of a public sweep."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from casestudies.gemm.problem import Problem

SMALLEST, LARGEST = 16, 8192
MOST_MACS = 1 << 36
LEAST_MACS = 1 << 22
LAYOUTS = ("nn", "nt", "tn")
SWEEP = (
    Problem(1, 4096, 4096, "f16-f16", "nt"),
    Problem(8, 6144, 4096, "f16-f16", "nt"),
    Problem(32, 28672, 8192, "f16-f16", "nt"),
    Problem(96, 10240, 2560, "f16-f16", "nt"),
    Problem(192, 4096, 4096, "f16-f16", "nt"),
    Problem(512, 1000, 2048, "f16-f16", "nt"),
    Problem(2000, 6144, 4096, "f16-f16", "nt"),
    *(Problem(n, n, n, "f16-f16") for n in (256, 512, 768, 1000, 1280, 1536, 2048, 3072)),
    Problem(777, 1111, 999, "f16-f16"),
    Problem(8192, 8192, 32, "f16-f16"),
    Problem(128, 128, 32768, "f16-f16"),
)


def drawn(count: int, seed: int) -> Iterator[Problem]:
    """``count`` products with extents drawn log-uniformly, most of them multiples of 8, and so much
    to do that a launch is not all of it.
    """
    draw = random.Random(seed)
    low, high = math.log(SMALLEST), math.log(LARGEST)
    while count:
        step = draw.choice((8, 8, 8, 64, 1))
        m, n, k = (_rounded(math.exp(draw.uniform(low, high)), step) for _ in range(3))
        layout = draw.choice(LAYOUTS)
        if LEAST_MACS <= m * n * k <= MOST_MACS:
            yield Problem(m, n, k, "f16-f16", layout)
            count -= 1


def _rounded(extent: float, step: int) -> int:
    return max(step, round(extent / step) * step)
