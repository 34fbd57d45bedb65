"""Sizes of the convolution layer: taps over images, bias and ReLU; NHWC, f16 in, f32 or f16
out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from casestudies.common.case import ArraySpec, check_known
from selector.diagnostics import UserError
from selector.families.layers import Tiling

TAPS = 3


@dataclass(frozen=True, slots=True)
class Window:
    """``taps`` x ``taps`` pixels, every ``dilation``-th of a row and of the rows."""

    taps: int = TAPS
    dilation: int = 1

    @property
    def reach(self) -> int:
        """From the first pixel to the last."""
        return self.dilation * (self.taps - 1)


USUAL = Window()


@dataclass(frozen=True, slots=True)
class Problem:
    """``batch`` images of ``height`` x ``width`` outputs, ``channels`` of the input and
    ``filters``, the channels of the output. There are ``taps`` x ``taps`` of them, of every
    ``dilation``-th pixel. The input is ``stride`` times as wide and as high, and larger on every
    side by half a window; ``padded``: without those pixels, in whose place are zeros.
    ``residual``: f16 of the output's shape, added before the ReLU. ``result``: the output's type.
    """

    batch: int
    height: int
    width: int
    channels: int
    filters: int
    stride: int = 1
    taps: int = field(default=TAPS, kw_only=True)
    dilation: int = field(default=1, kw_only=True)
    padded: bool = field(default=False, kw_only=True)
    residual: bool = field(default=False, kw_only=True)
    result: str = field(default="f32", kw_only=True)

    def __post_init__(self) -> None:
        if min(self.batch, self.height, self.width, self.channels, self.filters, self.stride) < 1:
            raise UserError(
                f"conv_layer: {self.batch} images of {self.width} x {self.height} pixels, stride "
                f"{self.stride}, {self.channels} to {self.filters} channels, is not a size"
            )
        if self.taps < 1 or self.taps % 2 == 0 or self.dilation < 1:
            raise UserError(
                f"conv_layer: {self.taps} x {self.taps} taps of dilation {self.dilation} have no "
                "middle"
            )
        check_known("conv_layer", "result", self.result, ("f32", "f16"))

    @property
    def program(self) -> str:
        """A schedule is for one size."""
        return self.name

    @property
    def name(self) -> str:
        step = f"-s{self.stride}" if self.stride > 1 else ""
        more = f"-t{self.taps}" * (self.taps != TAPS)
        more += (
            f"-d{self.dilation}" * (self.dilation > 1)
            + "-padded" * self.padded
            + "-residual" * self.residual
        )
        more += f"-{self.result}" * (self.result != "f32")
        size = f"{self.batch}x{self.height}x{self.width}"
        return f"conv_layer-c{self.channels}-{self.filters}{step}{more}-{size}"

    @property
    def border(self) -> int:
        """Zeros on each side of the image."""
        return self.window.reach // 2 if self.padded else 0

    @property
    def window(self) -> Window:
        return Window(self.taps, self.dilation)

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        border = 0 if self.padded else self.window.reach
        high, wide = (self.stride * n + border for n in (self.height, self.width))
        image = (self.batch, high, wide, self.channels)
        return (
            ArraySpec("I", image, "f16"),
            ArraySpec("K", (self.taps, self.taps, self.channels, self.filters), "f16"),
            ArraySpec("bias", (self.filters,), "f16"),
            *((ArraySpec("residual", self.output.shape, "f16"),) if self.residual else ()),
        )

    @property
    def output(self) -> ArraySpec:
        shape = (self.batch, self.height, self.width, self.filters)
        return ArraySpec("output", shape, self.result)

    @property
    def multiply_adds(self) -> int:
        pixels = self.batch * self.height * self.width
        return pixels * self.taps**2 * self.channels * self.filters


BENCHMARK = (
    *(Problem(4096, 64, 64, channels, channels) for channels in (16, 32)),
    Problem(32, 56, 56, 64, 64),
    Problem(32, 28, 28, 128, 128),
)


def _tiling(
    box: tuple[int, int, int], groups: int, n: int, k: int, stages: int, **more: Any
) -> Tiling:
    """Of all taps, groups of rows below each other."""
    return Tiling(box, groups, 1, n, k, stages, taps=TAPS**2, reach=(TAPS - 1, TAPS - 1, 0), **more)


# Found by hand, and timed; the machine model takes deeper rings, longer runs, and more pixels.
TILINGS = dict(
    zip(
        BENCHMARK,
        (
            _tiling((64, 1, 1), 4, 16, 16, 2, boxes=2, strips=2, persistent=True),
            _tiling((64, 1, 1), 4, 32, 32, 2, boxes=2, strips=2, persistent=True),
            _tiling((8, 1, 8), 2, 64, 16, 6, boxes=2, persistent=True),
            _tiling((8, 1, 8), 7, 64, 16, 5, apart=True),
        ),
        strict=True,
    )
)
# A whole tile and one pixel more and less, a single pixel, prime extents; more or fewer channels
# out than in, numbers of channels that 16 and 8 do not divide; channels in runs, images side by
# side; strides.
SMALL = tuple(
    Problem(*sizes)
    for sizes in (
        (2, 64, 64, 16, 16),
        (3, 5, 7, 16, 16),
        (1, 1, 1, 16, 16),
        (1, 9, 65, 32, 32),
        (2, 17, 31, 32, 32),
        (2, 11, 13, 8, 8),
        (1, 7, 33, 48, 24),
        (1, 6, 35, 64, 64),
        (1, 13, 19, 16, 64),
        (2, 5, 9, 3, 16),
        (1, 5, 20, 20, 12),
        (17, 3, 5, 100, 72),
        (1, 3, 67, 128, 128),
        (1, 5, 67, 16, 32, 2),
        (9, 3, 7, 80, 64, 2),
        (2, 5, 3, 24, 20, 3),
    )
)
