"""Sizes of the denoiser: planes of ``height`` x ``width``, f16 in and out."""

from __future__ import annotations

from dataclasses import dataclass

from casestudies.common.case import ArraySpec
from selector.diagnostics import UserError

TILE, STRIDE = 16, 8


@dataclass(frozen=True, slots=True)
class Problem:
    """Extents of the picture in pixels, and its planes: 1 for gray, 3 for RGB.

    ``strength`` is the standard deviation of the noise, in units of a pixel's value, that coring is
    set to take away; it is an input of the kernel, not part of it.
    """

    width: int
    height: int
    planes: int = 3
    strength: float = 0.1

    def __post_init__(self) -> None:
        if min(self.width, self.height, self.planes) < 1:
            raise UserError(
                f"dct_denoise: {self.width} x {self.height} x {self.planes} is no picture"
            )
        if not 0 <= self.strength < 1000:
            raise UserError(
                f"dct_denoise: a strength of {self.strength}",
                hint="it is the standard deviation of the noise; pixels are 0 to 1",
            )

    @property
    def name(self) -> str:
        return f"dct_denoise-{self.width}x{self.height}x{self.planes}"

    @property
    def program(self) -> str:
        return "dct_denoise"

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        return (
            ArraySpec("I", (self.planes, self.height, self.width), "f16"),
            ArraySpec("F", (TILE, TILE), "f16"),
            ArraySpec("G", (STRIDE, 2 * TILE), "f16"),
            ArraySpec("T", (1,), "f16"),
        )

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("output", (self.planes, self.height, self.width), "f16")

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles along y and along x: one more than runs of eight pixels."""
        return -(-self.height // STRIDE) + 1, -(-self.width // STRIDE) + 1

    @property
    def multiply_adds(self) -> int:
        """Four products of 16 x 16 x 16 a tile."""
        down, across = self.tiles
        return self.planes * down * across * 4 * TILE**3


BENCHMARK = (Problem(1024, 1024),)
# A multiple of all tiles, one pixel more and less, primes, smaller than a tile, a single pixel.
SMALL = tuple(
    Problem(width, height, planes)
    for width, height, planes in (
        (128, 64, 3),
        (129, 65, 1),
        (127, 63, 3),
        (101, 37, 2),
        (200, 9, 1),
        (5, 70, 1),
        (1, 1, 3),
    )
)
