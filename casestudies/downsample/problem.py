"""Sizes and types of downsampling: ``output[y, x] = sum_(s,t) K[s, t] * I[f * y + s, f * x + t]``
for a factor f, f16 in, f32 out.
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
    title = "downsample"

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.taps, self.factor) < 1:
            raise UserError(f"downsample: {self.taps} taps by a factor of {self.factor}")
        if min(self.width, self.height) < 1 or self.spare < 0:
            raise UserError(
                f"downsample: {self.taps} x {self.taps} taps leave {self.width} x {self.height} "
                "pixels",
                hint="the image must be larger than the taps, or continue: --boundary clamp",
            )

    @staticmethod
    def of_image(
        width: int, height: int, taps: int, factor: int = 2, boundary: str = VALID
    ) -> Problem:
        """An image of that size. ``valid``: a row gives ``(width - taps) / factor`` outputs, as
        the convolutions have it; else ``width / factor``, rounded up.
        """
        if min(taps, factor) < 1:
            return Problem(1, 1, taps, factor, boundary)
        if boundary == VALID:
            return Problem(
                (width - taps) // factor, (height - taps) // factor, taps, factor, spare=factor
            )
        outputs = -(-width // factor), -(-height // factor)
        extents = zip((width, height), outputs, strict=True)
        spare = min(extent - factor * (n - 1) - 1 for extent, n in extents)
        return Problem(*outputs, taps, factor, boundary, spare)

    @property
    def axis(self) -> Axis:
        first = -before(self.boundary, self.taps, self.factor)
        return Axis(self.taps, self.factor, first=first)

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        reach = self.taps if self.boundary == VALID else 1
        image = tuple(
            self.factor * (extent - 1) + reach + self.spare for extent in (self.height, self.width)
        )
        return self.arrays(image)


BENCHMARK = tuple(Problem.of_image(4096, 4096, taps) for taps in TAPS)
# One pixel more and less than a tile, prime extents, a single pixel, other factors and taps, and
# images that continue.
SMALL = (
    Problem(256, 32, 16),
    Problem(257, 33, 16),
    Problem(255, 31, 16, spare=1),
    Problem(101, 37, 32),
    Problem(1, 1, 16),
    Problem(67, 19, 7),
    Problem(133, 23, 12, 3),
    Problem(131, 35, 16, 2, CLAMP),
    Problem(67, 19, 16, 2, ZERO, 1),
    Problem(3, 2, 32, 2, CLAMP),
    Problem(45, 11, 9, 3, ZERO),
)
