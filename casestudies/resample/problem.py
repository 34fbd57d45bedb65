"""Sizes of the resampling: ``output[c, y, x] = sum_ij R[y, i] * I[c, i, j] * C[x, j]`` with the
Lanczos-3 weights R and C of the two axes; f16 in, f16 out, colour planes outermost.
"""

from __future__ import annotations

from dataclasses import dataclass

from casestudies.common.case import ArraySpec
from casestudies.resample.reference import weights
from selector.diagnostics import UserError

LARGEST = 1 << 14  # twice the product of two extents is an index of 32 bits
PLANES = 3


@dataclass(frozen=True, slots=True)
class Problem:
    """Extents of the image and of the output in pixels."""

    width: int
    height: int
    to_width: int
    to_height: int

    def __post_init__(self) -> None:
        extents = (self.width, self.height, self.to_width, self.to_height)
        if min(extents) < 1 or max(extents) > LARGEST:
            raise UserError(
                f"resample: no way from {self.width} x {self.height} to "
                f"{self.to_width} x {self.to_height} pixels",
                hint=f"extents are 1 to {LARGEST} pixels",
            )

    @property
    def name(self) -> str:
        return f"resample-{self.width}x{self.height}-{self.to_width}x{self.to_height}"

    @property
    def program(self) -> str:
        return "resample"

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        return (ArraySpec("I", (PLANES, self.height, self.width), "f16"),)

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("output", (PLANES, self.to_height, self.to_width), "f16")

    @property
    def multiply_adds(self) -> int:
        """Weights that are not zero, rows first."""
        rows = int((weights(self.height, self.to_height) != 0).sum())
        columns = int((weights(self.width, self.to_width) != 0).sum())
        return PLANES * (rows * self.width + columns * self.to_height)


BENCHMARK = tuple(Problem(2048, 2048, n, n) for n in (143, 245, 450, 921))
# Up, down, one axis each way, the size itself, single pixels, one more and one less than a group.
SMALL = (
    Problem(64, 64, 16, 16),
    Problem(75, 100, 20, 33),
    Problem(300, 40, 21, 7),
    Problem(19, 17, 50, 40),
    Problem(31, 33, 31, 33),
    Problem(33, 200, 100, 3),
    Problem(150, 130, 15, 17),
    Problem(3, 5, 1, 1),
    Problem(1, 1, 5, 3),
)
