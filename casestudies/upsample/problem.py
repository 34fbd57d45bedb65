"""Sizes and types of upsampling by a factor f: ``output[y, x] = sum_(s,t) I[y // f + s, x // f + t]
* K[f * s + y % f, f * t + x % f]``, f16 in, f32 out.
"""

from __future__ import annotations

from casestudies.common.boundary import CLAMP, VALID, ZERO, before
from casestudies.common.case import ArraySpec
from casestudies.common.filtering import Sampling
from selector.diagnostics import UserError
from selector.families.windows import Axis

TAPS = (16, 32)


class Problem(Sampling):
    """Extents of the output, taps along each axis, the factor."""

    __slots__ = ()
    title = "upsample"

    def __post_init__(self) -> None:
        super().__post_init__()
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
    def axis(self) -> Axis:
        taps = self.phase_taps
        return Axis(taps, phases=self.factor, first=-before(self.boundary, taps))

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        reach = self.phase_taps if self.boundary == VALID else 1
        image = tuple(
            -(-extent // self.factor) - 1 + reach + self.spare
            for extent in (self.height, self.width)
        )
        return self.arrays(image)

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
