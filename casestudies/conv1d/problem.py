"""Sizes and types of the 1-D convolution: ``output[y, x] = sum_t K[t] * I[y, x + t]``, f16 in, f32
out.
"""

from __future__ import annotations

from dataclasses import dataclass

from casestudies.common.case import ArraySpec
from selector.diagnostics import UserError

TAPS = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256)


@dataclass(frozen=True, slots=True)
class Problem:
    """Extents of the output, taps, and columns of the image beyond the ``width + taps - 1`` that
    are read.
    """

    width: int
    height: int
    taps: int
    spare: int = 0

    def __post_init__(self) -> None:
        if min(self.width, self.height, self.taps) < 1 or self.spare < 0:
            raise UserError(
                f"conv1d: {self.taps} taps leave an output of {self.width} x {self.height} pixels",
                hint="the image must be wider than the taps",
            )

    @staticmethod
    def of_image(width: int, height: int, taps: int) -> Problem:
        """The paper's size: an image of ``width`` columns gives ``width - taps`` outputs a row."""
        return Problem(width - taps, height, taps, spare=1)

    @property
    def name(self) -> str:
        return f"conv1d-k{self.taps}-{self.width}x{self.height}"

    @property
    def program(self) -> str:
        return f"conv1d-k{self.taps}"

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        image = (self.height, self.width + self.taps - 1 + self.spare)
        return (ArraySpec("I", image, "f16"), ArraySpec("K", (self.taps,), "f16"))

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("output", (self.height, self.width), "f32")

    @property
    def multiply_adds(self) -> int:
        return self.width * self.height * self.taps


BENCHMARK = tuple(Problem.of_image(4096, 4096, taps) for taps in TAPS)
# One pixel more and less than a tile, prime extents, a single pixel, several tiles.
SMALL = tuple(
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
)
