"""Sizes and types of the 1-D convolution: ``output[y, x] = sum_t K[t] * I[y, x + t]``, f16 in, f32
out.
"""

from __future__ import annotations

from dataclasses import dataclass

from casestudies.common.boundary import CLAMP, VALID, ZERO, check, suffix
from casestudies.common.case import ArraySpec
from selector.diagnostics import UserError

TAPS = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256)

ELEMENTS = ("f16", "bf16")


@dataclass(frozen=True, slots=True)
class Problem:
    """Extents of the output, taps, and columns of the image beyond the ``width + taps - 1`` that
    are read.
    """

    width: int
    height: int
    taps: int
    spare: int = 0
    boundary: str = VALID
    element: str = "f16"

    def __post_init__(self) -> None:
        check("conv1d", self.boundary)
        if self.element not in ELEMENTS:
            raise UserError(f"conv1d of {self.element!r}", hint=f"elements: {', '.join(ELEMENTS)}")
        if min(self.width, self.height, self.taps) < 1 or self.spare < 0:
            raise UserError(
                f"conv1d: {self.taps} taps leave an output of {self.width} x {self.height} pixels",
                hint="the image must be wider than the taps",
            )

    @staticmethod
    def of_image(
        width: int, height: int, taps: int, boundary: str = VALID, element: str = "f16"
    ) -> Problem:
        """The paper's size: an image of ``width`` columns gives ``width - taps`` outputs a row, one
        that continues ``width``.
        """
        if boundary == VALID:
            return Problem(width - taps, height, taps, 1, boundary, element)
        return Problem(width, height, taps, 0, boundary, element)

    @property
    def name(self) -> str:
        return f"{self.program}-{self.width}x{self.height}"

    @property
    def program(self) -> str:
        element = "" if self.element == "f16" else f"-{self.element}"
        return f"conv1d-k{self.taps}{element}{suffix(self.boundary)}"

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        reach = self.taps if self.boundary == VALID else 1
        image = (self.height, self.width + reach - 1 + self.spare)
        return (
            ArraySpec("I", image, self.element),
            ArraySpec("K", (self.taps,), self.element),
        )

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("output", (self.height, self.width), "f32")

    @property
    def multiply_adds(self) -> int:
        return self.width * self.height * self.taps


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
