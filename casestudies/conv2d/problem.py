"""Sizes and types of the 2-D convolution: ``output[y, x] = sum_(s,t) K[s, t] * I[y + s, x + t]``,
f16 in, f32 out.
"""

from __future__ import annotations

from dataclasses import dataclass

from casestudies.common.blocks import Block, Blocks
from casestudies.common.boundary import CLAMP, VALID, ZERO, check, suffix
from casestudies.common.case import ArraySpec
from selector.diagnostics import UserError

TAPS = (16, 32)

ELEMENTS = ("f16", "bf16")

# Of warpgroups. 16 taps wait for memory.
CHOICES = (Block(16, 4), Block(16, 2), Block(16, 3), Block(8, 2))
FEW = Blocks(512, 4, CHOICES, start=8, warps=(12, 1.3))
MANY = Blocks(512, 4, CHOICES, start=3, warps=(8, 1.43))


def blocks_for(taps: int) -> Blocks | None:
    """Of the schedule for warpgroups; None if it has no tiles for the taps."""
    if taps == 16:
        return FEW
    return MANY if 24 <= taps <= 32 else None


@dataclass(frozen=True, slots=True)
class Problem:
    """Extents of the output, taps along each axis, and rows and columns of the image that are not
    read.
    """

    width: int
    height: int
    taps: int
    spare: int = 0
    boundary: str = VALID
    element: str = "f16"

    def __post_init__(self) -> None:
        check("conv2d", self.boundary)
        if self.element not in ELEMENTS:
            raise UserError(f"conv2d of {self.element!r}", hint=f"elements: {', '.join(ELEMENTS)}")
        if min(self.width, self.height, self.taps) < 1 or self.spare < 0:
            raise UserError(
                f"conv2d: {self.taps} x {self.taps} taps leave {self.width} x {self.height} pixels",
                hint="the image must be larger than the taps",
            )

    @staticmethod
    def of_image(
        width: int, height: int, taps: int, boundary: str = VALID, element: str = "f16"
    ) -> Problem:
        """The paper's size: an image of ``width`` columns gives ``width - taps`` outputs a row, one
        that continues ``width``.
        """
        if boundary == VALID:
            return Problem(width - taps, height - taps, taps, 1, boundary, element)
        return Problem(width, height, taps, 0, boundary, element)

    @property
    def name(self) -> str:
        return f"{self.program}-{self.width}x{self.height}"

    @property
    def program(self) -> str:
        element = "" if self.element == "f16" else f"-{self.element}"
        blocks = blocks_for(self.taps)
        other = "" if blocks is None else blocks.suffix(self.block)
        return f"conv2d-k{self.taps}{element}{suffix(self.boundary)}{other}"

    @property
    def block(self) -> Block | None:
        """Of the schedule for warpgroups, where it has tiles for the taps, and these fill a GPU."""
        blocks = blocks_for(self.taps)
        return None if blocks is None else blocks.chosen(self.width, self.height)

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        margin = self.spare + (self.taps - 1 if self.boundary == VALID else 0)
        image = (self.height + margin, self.width + margin)
        return (
            ArraySpec("I", image, self.element),
            ArraySpec("K", (self.taps, self.taps), self.element),
        )

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("output", (self.height, self.width), "f32")

    @property
    def multiply_adds(self) -> int:
        return self.width * self.height * self.taps**2


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
