"""The sizes of a filter of an image, and a schedule of it as data."""

from __future__ import annotations

from dataclasses import field
from math import gcd
from typing import Literal

from selector.dataclass import dataclass

ALIGNMENT = 16  # bytes that copies to shared memory begin and end at
LONGEST_BAND = 256  # taps of one vector statement; more are taken band by band
BAND = 16  # rows of a band of taps that lie along y only
COLUMNS = 8  # of an instruction
WINDOWS = 64  # of a statement of a warpgroup
APART = 8  # elements from one of these windows to the next
FACTORS = (1, 2, 4)  # elements from an output to the next that fit this
DEPTH = 16  # elements that an instruction takes from a window


def rounded(n: int, multiple: int) -> int:
    """Up to the next multiple."""
    return -(-n // multiple) * multiple


@dataclass(frozen=True, slots=True)
class Axis:
    """What output i reads along an axis of the image: ``taps`` elements, ``dilation`` apart, from
    ``step * (i // phases) + first`` on.
    """

    taps: int
    step: int = 1
    phases: int = 1
    dilation: int = 1
    first: int = 0

    @property
    def window(self) -> int:
        """Elements from the first tap's to the last one's."""
        return self.dilation * (self.taps - 1) + 1

    def reach(self, outputs: int) -> int:
        """Neighbouring elements that so many neighbouring outputs read."""
        return self.step * (-(-outputs // self.phases) - 1) + self.window


@dataclass(frozen=True, slots=True)
class Shape:
    """A filter: ``width`` x ``height`` outputs, what they read along ``x`` and ``y``, and
    ``planes`` of them. ``bytes``: of an element of the image; ``result_bytes``: of an output.
    ``declared``: the image is an argument, not computed: nothing lies around it. ``signal``: there
    is no y. ``aligned``: rows of the image begin at multiples of 16 bytes. ``converted``: bytes,
    which are multiplied as f16. ``channels``: elements of a pixel, which are next to each other in
    a row: ``x`` is in elements.
    """

    width: int
    height: int
    x: Axis
    y: Axis = field(default=Axis(1))
    planes: int = 1
    bytes: int = 2
    result_bytes: int = 4
    declared: bool = True
    signal: bool = False
    aligned: bool = True
    converted: bool = False
    channels: int = 1

    @property
    def operand_bytes(self) -> int:
        """Of an element as instructions take it."""
        return 2 if self.converted else self.bytes

    @property
    def lead(self) -> int:
        """Elements of a window ahead of its first tap, since it begins where copies do; what is
        converted may begin anywhere.
        """
        return 0 if self.converted else self.x.first % self.run

    @property
    def is_apart(self) -> bool:
        """Whether windows do not overlap: each pixel is read once, and there is nothing to share.
        That holds for single elements only; threads would read pixels of several far apart.
        """
        axes = (self.x, self.y)
        return self.channels == 1 and all(a.phases == 1 and a.window <= a.step for a in axes)

    @property
    def down(self) -> bool:
        """Whether there are taps along y only, which neighbours along x share."""
        return self.x == Axis(1) and self.y.taps > 1

    @property
    def band(self) -> int:
        """Rows of outputs of one vector statement, where taps lie along y only: those of a band, or
        all phases, which read the same rows of the image; of few phases as often as an instruction
        has columns.
        """
        return BAND if self.y.phases == 1 else max(self.y.phases, COLUMNS)

    @property
    def run(self) -> int:
        """Elements that copies to shared memory begin and end at a multiple of."""
        return ALIGNMENT // self.bytes


@dataclass(frozen=True, slots=True)
class Tiling:
    """Outputs of one vector statement, ``vectors`` side by side and ``rows`` of a warp or a group
    of four, and ``units`` of these of a block, one below the other. ``tap_rows`` rows of taps are
    unrolled together: an image row that several output rows need is then read once for all of them
    (a group has it so in any case).

    A block works through ``segments`` such tiles, one below the other, with ``stages`` parts of the
    image on their way: its bands are built once for all of them. ``boxes``: a part is copied as a
    whole, else row by row. ``resident``: blocks of a multiprocessor, which bound the registers (0:
    the compiler's choice).
    """

    unit: Literal["warp", "group"] = "warp"
    outputs: int = 256
    vectors: int = 1
    rows: int = 8
    units: int = 4
    tap_rows: int = 1
    segments: int = 1
    stages: int = 1
    boxes: bool = True
    resident: int = 0

    @property
    def label(self) -> str:
        """Names it among those of a filter."""
        more = f"-{self.resident}" if self.resident else ""
        copied = "" if self.boxes else "-rows"
        return (
            f"{self.unit[0]}{self.outputs}x{self.vectors}-{self.rows}x{self.units}"
            f"-t{self.tap_rows}-s{self.segments}x{self.stages}{copied}{more}"
        )

    @property
    def width(self) -> int:
        """Outputs of a row of a tile."""
        return self.outputs * self.vectors

    @property
    def height(self) -> int:
        """Rows of a tile."""
        return self.rows * self.units

    def tile(self, shape: Shape) -> tuple[int, int]:
        """Outputs across and down; units of a signal lie side by side."""
        return (self.width * self.units, 1) if shape.signal else (self.width, self.height)

    @property
    def threads(self) -> int:
        """Of a block, beside those that feed it."""
        return self.units * (128 if self.unit == "group" else 32)


def whole(phases: int) -> int:
    """Outputs of whole instructions of whole groups of phases."""
    return 16 * phases if 256 % (16 * phases) == 0 else 128 * phases // gcd(phases, 8)


def per_window(x: Axis) -> int:
    """Outputs of a window of a warpgroup, of one phase."""
    return APART // (x.step if x.step in FACTORS else 1)


def group_outputs(x: Axis) -> int:
    """Of a vector statement of a warpgroup."""
    return WINDOWS * per_window(x) * x.phases


def reached(x: Axis, lead: int) -> int:
    """Elements of a row from the first window's of a warpgroup, which begins ``lead`` elements
    before its taps, to the end of the last one's last step.
    """
    window = per_window(x)
    depth = lead + x.taps + x.step * (window - 1)
    return x.step * window * (WINDOWS - 1) + rounded(depth, DEPTH)


def alignment(x: Axis) -> int:
    """The multiple that a staged row which begins before the image starts and ends at, so that it
    holds what the windows of a warpgroup reach.
    """
    unit = x.step * per_window(x)
    for multiple in (APART << n for n in range(8)):
        before = x.first % multiple  # elements of the staged row before the first tap
        length = rounded(before + x.reach(group_outputs(x)), multiple)
        if before // unit * unit + reached(x, before % unit) <= length:
            return multiple
    raise AssertionError("rows of several windows hold one step more")
