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
GROUP = 16  # outputs that share where their weights start
ROW_RUNS = (32, 48, 64, 96, 128, 160, 176)  # taps that a block takes at once, along y and along x
COLUMN_RUNS = (48, 64, 112, 192, 320)


def run_of(size: int, count: int, classes: tuple[int, ...], step: int) -> int:
    """The run of taps, of those in ``classes``, that covers a group's with the least waste; starts
    are multiples of ``step``.
    """
    reach = 6 * max(size, count)
    taps = -(-((GROUP - 1) * size + reach) // count) + step - 1
    runs = -(-taps // classes[-1])
    return next(run for run in classes if run * runs >= taps)


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
    def runs(self) -> tuple[int, int]:
        """Taps of a run along y and along x: what the kernel is compiled for. It serves all sizes,
        and is fastest where one run, or a few full ones, are a group's taps.
        """
        rows = run_of(self.height, self.to_height, ROW_RUNS, 1)
        return rows, run_of(self.width, self.to_width, COLUMN_RUNS, 8)

    @property
    def program(self) -> str:
        return f"resample-{self.runs[0]}x{self.runs[1]}"

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
# Every program of the benchmark; down, up, one axis each way, the size itself, single pixels, one
# more and one less than a group, many runs of taps.
SMALL = (
    Problem(200, 215, 14, 15),
    Problem(150, 140, 18, 17),
    Problem(90, 100, 20, 22),
    Problem(75, 80, 33, 35),
    Problem(19, 17, 50, 40),
    Problem(31, 33, 31, 33),
    Problem(33, 200, 100, 3),
    Problem(4, 4, 1, 1),
    Problem(1, 1, 5, 3),
)
