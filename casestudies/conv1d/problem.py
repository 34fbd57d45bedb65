"""Sizes and types of the 1-D convolution: ``output[y, x] = sum_t K[t] * I[y, x + t]``, f16 in, f32
out.
"""

from __future__ import annotations

from casestudies.common.boundary import CLAMP, ZERO
from casestudies.common.filtering import Convolution

TAPS = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256)


class Problem(Convolution):
    """Taps along the rows."""

    __slots__ = ()
    title = "conv1d"
    axes = 1


BENCHMARK = tuple(Problem.of_image(4096, 4096, taps) for taps in TAPS)
# One pixel more and less than a tile, prime extents, a single pixel, several tiles.
SMALL = (
    *(
        Problem(width, height, taps)
        for width, height, taps in (
            (256, 4, 8),
            (1025, 5, 16),
            (255, 3, 64),
            (257, 1, 64),
            (1023, 7, 63),
            (131, 2, 256),
            (2053, 9, 256),
            (1, 1, 24),
            (300, 5, 300),
        )
    ),
    Problem(515, 5, 16, 0, CLAMP),
    Problem(259, 3, 63, 1, ZERO),
    Problem(7, 2, 24, 0, CLAMP),
    Problem(40, 3, 300, 0, ZERO),
    Problem(515, 5, 16, element="bf16"),
    Problem(131, 3, 40, 0, CLAMP, "bf16"),
)
