"""Sizes and types of upsampling by a factor f: ``output[y, x] = sum_(s,t) I[y // f + s, x // f + t]
* K[f * s + y % f, f * t + x % f]``, f16 in, f32 out.
"""

from __future__ import annotations

from dataclasses import dataclass

from casestudies.common.blocks import Block, Blocks
from casestudies.common.boundary import CLAMP, VALID, ZERO, check, suffix
from casestudies.common.case import ArraySpec
from selector.diagnostics import UserError

TAPS = (16, 32)

# Of warpgroups.
FEW = Blocks(1024, 4, (Block(4, 4), Block(4, 2)), start=5, warps=(27, 1.3))
MANY = Blocks(1024, 4, (Block(8, 4), Block(8, 2), Block(8, 3)), start=6, warps=(22, 1.1))


def blocks_for(phase_taps: int, factor: int) -> Blocks | None:
    """Of the schedule for warpgroups; None if it has no tiles for the taps. Few taps leave the time
    to the stores, which more and smaller blocks spread.
    """
    if factor != 2 or not 8 <= phase_taps <= 16:
        return None
    return FEW if phase_taps == 8 else MANY


@dataclass(frozen=True, slots=True)
class Problem:
    """Extents of the output, taps of all phases along each axis, the factor, and rows and columns
    that the image has beyond the last ones that are needed.
    """

    width: int
    height: int
    taps: int
    factor: int = 2
    boundary: str = VALID
    spare: int = 0

    def __post_init__(self) -> None:
        check("upsample", self.boundary)
        if min(self.taps, self.factor) < 1 or self.taps % self.factor:
            raise UserError(
                f"upsample: {self.taps} taps in {self.factor} phases along each axis",
                hint="the factor must divide the taps",
            )
        if min(self.width, self.height) < 1 or self.spare < 0:
            raise UserError(
                f"upsample: {self.taps // self.factor} taps of a phase leave {self.width} x "
                f"{self.height} pixels",
                hint="the image must be larger than the taps of a phase, or continue: "
                "--boundary clamp",
            )

    @staticmethod
    def of_image(
        width: int, height: int, taps: int, factor: int = 2, boundary: str = VALID
    ) -> Problem:
        """An image of that size; every window of a phase's taps in it gives ``factor`` outputs
        along each axis.
        """
        lost = 0 if boundary != VALID else taps // max(1, factor) - 1
        return Problem((width - lost) * factor, (height - lost) * factor, taps, factor, boundary)

    @property
    def phase_taps(self) -> int:
        """Taps of one phase along an axis."""
        return self.taps // self.factor

    @property
    def name(self) -> str:
        return f"{self.program}-{self.width}x{self.height}"

    @property
    def program(self) -> str:
        by = "" if self.factor == 2 else f"-by{self.factor}"
        blocks = blocks_for(self.phase_taps, self.factor)
        other = "" if blocks is None else blocks.suffix(self.block)
        return f"upsample-k{self.taps}{by}{suffix(self.boundary)}{other}"

    @property
    def block(self) -> Block | None:
        """Of the schedule for warpgroups, where it has tiles for the taps, and these fill a GPU.
        Rows that do not start at multiples of 16 bytes take it longer: no copy engine brings them.
        """
        blocks, odd = blocks_for(self.phase_taps, self.factor), self.inputs[0].shape[1] % 8
        return None if blocks is None or odd else blocks.chosen(self.width, self.height)

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        reach = self.phase_taps if self.boundary == VALID else 1
        image = tuple(
            -(-extent // self.factor) - 1 + reach + self.spare
            for extent in (self.height, self.width)
        )
        return (ArraySpec("I", image, "f16"), ArraySpec("K", (self.taps, self.taps), "f16"))

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("output", (self.height, self.width), "f32")

    @property
    def multiply_adds(self) -> int:
        return self.width * self.height * self.phase_taps**2


# An image of 2056 or 2064 columns, of which all but the last are needed.
BENCHMARK = tuple(Problem(4096, 4096, taps, spare=1) for taps in TAPS)
# One pixel more and less than a tile, prime extents, a single pixel, other factors and taps, and
# images that continue.
SMALL = (
    Problem(512, 64, 16),
    Problem(514, 66, 16, spare=1),
    Problem(255, 31, 16),
    Problem(101, 37, 32),
    Problem(1, 1, 16),
    Problem(67, 19, 6),
    Problem(133, 23, 12, 3),
    Problem(131, 35, 16, 2, CLAMP),
    Problem(67, 19, 16, 2, ZERO),
    Problem(3, 2, 32, 2, CLAMP),
    Problem(50, 11, 15, 3, ZERO),
)
