"""What the problems of filters of an image share: names, arrays, and the blocks of warpgroups.

conv1d and conv2d filter at every pixel (``Convolution``), downsample and upsample by a factor
(``Sampling``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from casestudies.common.blocks import Block, Blocks
from casestudies.common.boundary import VALID, check, suffix
from casestudies.common.case import ArraySpec, given, picture_size
from selector.diagnostics import UserError
from selector.targets import Target

ELEMENTS = ("f16", "bf16")


class Filtering:
    """A filter of ``taps`` taps along each of ``axes``, whose output has ``width`` x ``height``
    pixels; ``title`` is the case's.
    """

    __slots__ = ()
    title: ClassVar[str]
    axes: ClassVar[int] = 2
    width: int
    height: int
    taps: int
    boundary: str

    @property
    def blocks(self) -> Blocks | None:
        """Of the schedule for warpgroups; None if it has no tiles for the taps."""
        return None

    @property
    def block(self) -> Block | None:
        """Of the schedule for warpgroups, where it has tiles for the taps, and these fill a GPU."""
        return None if self.blocks is None else self.blocks.chosen(self.width, self.height)

    @property
    def variant(self) -> str:
        """What tells programs apart besides taps, boundary and blocks."""
        return ""

    @property
    def name(self) -> str:
        return f"{self.program}-{self.width}x{self.height}"

    @property
    def program(self) -> str:
        blocks = "" if self.blocks is None else self.blocks.suffix(self.block)
        return f"{self.title}-k{self.taps}{self.variant}{suffix(self.boundary)}{blocks}"

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("output", (self.height, self.width), "f32")

    @property
    def multiply_adds(self) -> int:
        return self.width * self.height * self.taps**self.axes

    def arrays(self, image: tuple[int, ...], element: str = "f16") -> tuple[ArraySpec, ...]:
        """An image of that shape, and the taps."""
        taps = (self.taps,) * self.axes
        return ArraySpec("I", image, element), ArraySpec("K", taps, element)


@dataclass(frozen=True, slots=True)
class Convolution(Filtering):
    """Extents of the output, taps along each axis, and rows and columns of the image that are not
    read: of rows only where there are taps along them.
    """

    width: int
    height: int
    taps: int
    spare: int = 0
    boundary: str = VALID
    element: str = "f16"

    def __post_init__(self) -> None:
        check(self.title, self.boundary)
        if self.element not in ELEMENTS:
            raise UserError(
                f"{self.title} of {self.element!r}", hint=f"elements: {', '.join(ELEMENTS)}"
            )
        if min(self.width, self.height, self.taps) < 1 or self.spare < 0:
            size = f"{self.width} x {self.height}"
            if self.axes == 1:
                what = f"{self.taps} taps leave an output of {size} pixels"
            else:
                what = f"{self.taps} x {self.taps} taps leave {size} pixels"
            hint = f"the image must be {'wider' if self.axes == 1 else 'larger'} than the taps"
            raise UserError(f"{self.title}: {what}", hint=hint)

    @classmethod
    def of_image(
        cls, width: int, height: int, taps: int, boundary: str = VALID, element: str = "f16"
    ) -> Self:
        """The paper's size: an image of ``width`` columns gives ``width - taps`` outputs a row, one
        that continues ``width``.
        """
        if boundary != VALID:
            return cls(width, height, taps, 0, boundary, element)
        rows = height - taps if cls.axes == 2 else height
        return cls(width - taps, rows, taps, 1, boundary, element)

    @property
    def variant(self) -> str:
        return "" if self.element == "f16" else f"-{self.element}"

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        margin = self.spare + (self.taps - 1 if self.boundary == VALID else 0)
        rows = self.height + (margin if self.axes == 2 else 0)
        return self.arrays((rows, self.width + margin), self.element)

    @classmethod
    def from_options(cls, options: Mapping[str, Any], taps: int) -> Self:
        """``taps`` (by default so many), ``boundary`` (valid), ``element`` (f16) and ``size``, the
        (width, height) of the image.
        """
        width, height = picture_size(options, 4096)
        return cls.of_image(width, height, **given(options, "boundary", "element", taps=taps))


@dataclass(frozen=True, slots=True)
class Sampling(Filtering):
    """Extents of the output, taps along each axis (of all phases), the factor, and rows and columns
    that the image has beyond the last ones that are needed.
    """

    width: int
    height: int
    taps: int
    factor: int = 2
    boundary: str = VALID
    spare: int = 0

    def __post_init__(self) -> None:
        check(self.title, self.boundary)

    @property
    def variant(self) -> str:
        return "" if self.factor == 2 else f"-by{self.factor}"


def on_target(problem: Filtering, schedule: str, target: Target) -> str:
    """``tensor`` means warpgroups where there are any and the image has work for all of them."""
    wide = schedule == "tensor" and target.has("wgmma")
    return "wgmma" if wide and problem.block is not None else schedule
