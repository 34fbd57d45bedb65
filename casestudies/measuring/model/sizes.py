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
BATCHES = (1, 1, 1, 12, 200)
SWEEP = (
    Problem(1, 1000, 2048, "f16-f16", "nt"),
    Problem(1, 4096, 4096, "f16-f16", "nt"),
    Problem(8, 6144, 4096, "f16-f16", "nt"),
    Problem(32, 2560, 10240, "f16-f16", "nt"),
    Problem(96, 10240, 2560, "f16-f16", "nt"),
    Problem(192, 4096, 4096, "f16-f16", "nt"),
    Problem(1568, 512, 1024, "f16-f16", "nt", "bias-relu"),
    Problem(784, 1024, 2048, "f16-f16", "nt"),
    Problem(1568, 512, 2048, "f16-f16", "nt"),
    Problem(2000, 1000, 2048, "f16-f16", "nt"),
    Problem(6272, 512, 512, "f16-f16", "nt"),
    Problem(512, 2560, 10240, "f16-f16", "nt"),
    *(Problem(n, n, n, "f16-f16") for n in (256, 512, 768, 1000, 1280, 1536, 2048)),
    *(Problem(n, n, n, "f16-f16", "tt") for n in (896, 1280, 1792, 2304)),
    Problem(777, 1111, 999, "f16-f16"),
    Problem(129, 257, 8193, "f16-f16"),
    Problem(8192, 8192, 32, "f16-f16"),
    *(Problem(n, n, (1 << 22) // n, "f16-f16") for n in (32, 64, 128)),
    Problem(256, 256, 8192, "f16-f16", "nt"),
    Problem(512, 512, 16384, "f16-f16"),
    Problem(128, 4096, 14336, "f16-f16", "nt"),
    Problem(512, 512, 512, "f16-f16", batch=16),
    Problem(128, 64, 128, "f16-f16", batch=96),
    Problem(64, 64, 64, "f16-f16", batch=1024),
    Problem(16, 16, 16, "f16-f16", batch=4096),
    Problem(64, 4096, 4096, "s8-s32", "nt"),
    Problem(1000, 1000, 1000, "s8-s32", "nt"),
    Problem(512, 512, 512, "s8-s32"),
    *(Problem(n, n, n, "s8-s32") for n in (768, 1024, 1536, 2048)),
    *(Problem(n, n, n, "s8-s32", "nt") for n in (1024, 1792)),
    *(Problem(n, n, n, "f16-f32") for n in (512, 896, 1024, 1280, 1792)),
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
        batch = draw.choice(BATCHES)
        if LEAST_MACS <= batch * m * n * k <= MOST_MACS:
            yield Problem(m, n, k, "f16-f16", layout, batch=batch)
            count -= 1


def _rounded(extent: float, step: int) -> int:
    return max(step, round(extent / step) * step)
