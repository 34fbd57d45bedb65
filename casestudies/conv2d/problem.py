"""Sizes and types of the 2-D convolution: ``output[y, x] = sum_(s,t) K[s, t] * I[y + s, x + t]``,
f16 in, f32 out.
"""

from __future__ import annotations

from dataclasses import dataclass

from casestudies.common.case import ArraySpec
from selector.diagnostics import UserError

TAPS = (16, 32)


@dataclass(frozen=True, slots=True)
class Problem:
    """Extents of the output, taps along each axis, and rows and columns of the image that are not
    read.
    """

    width: int
    height: int
    taps: int
    spare: int = 0

    def __post_init__(self) -> None:
        if min(self.width, self.height, self.taps) < 1 or self.spare < 0:
            raise UserError(
                f"conv2d: {self.taps} x {self.taps} taps leave {self.width} x {self.height} pixels",
                hint="the image must be larger than the taps",
            )

    @staticmethod
    def of_image(width: int, height: int, taps: int) -> Problem:
        """The paper's size: an image of ``width`` columns gives ``width - taps`` outputs a row."""
        return Problem(width - taps, height - taps, taps, spare=1)

    @property
    def name(self) -> str:
        return f"conv2d-k{self.taps}-{self.width}x{self.height}"

    @property
    def program(self) -> str:
        return f"conv2d-k{self.taps}"

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        margin = self.taps - 1 + self.spare
        image = (self.height + margin, self.width + margin)
        return (ArraySpec("I", image, "f16"), ArraySpec("K", (self.taps, self.taps), "f16"))

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("output", (self.height, self.width), "f32")

    @property
    def multiply_adds(self) -> int:
        return self.width * self.height * self.taps**2


BENCHMARK = tuple(Problem.of_image(4096, 4096, taps) for taps in TAPS)
# One pixel more and less than a tile, prime extents, a single pixel, a number of taps that 8 does
# not divide.
SMALL = tuple(
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
)
