"""Sizes and types of the 2-D convolution: ``output[y, x] = sum_(s,t) K[s, t] * I[y + s, x + t]``,
f16 in, f32 out.
"""

from __future__ import annotations

from casestudies.common.boundary import CLAMP, ZERO
from casestudies.common.filtering import Convolution

TAPS = (16, 32)


class Problem(Convolution):
    """Taps along both axes."""

    __slots__ = ()
    title = "conv2d"


BENCHMARK = tuple(Problem.of_image(4096, 4096, taps) for taps in TAPS)
# One pixel more and less than a tile, prime extents, a single pixel, a number of taps that 8 does
# not divide.
SMALL = (
    *(
        Problem(width, height, taps)
        for width, height, taps in (
            (256, 16, 16),
            (257, 17, 16),
            (255, 15, 16),
            (101, 31, 32),
            (513, 5, 32),
            (1, 1, 16),
            (67, 19, 7),
        )
    ),
    Problem(257, 33, 16, 0, CLAMP),
    Problem(67, 19, 7, 1, ZERO),
    Problem(3, 2, 32, 0, CLAMP),
    Problem(101, 17, 16, element="bf16"),
    Problem(67, 19, 16, 0, ZERO, "bf16"),
)
