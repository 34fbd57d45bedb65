"""The sizes of a layer, and a schedule of it as data."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from selector.dataclass import dataclass
from selector.families import MOST_LANES
from selector.families.contraction.tiling import LINE

ROWS = 64  # pixels of a product by a warpgroup, or filters where these are its rows
SUM_BYTES = 4
SLICES = 1, 2, 4, 8, 16
WARP_PIXELS = 16  # of a product by a warp
WARP_DEPTHS = 32, 24, 16, 8  # channels of one of its vector statements, the most first
UNIT = 16  # bytes of a row in shared memory that warps read at once
DEPTH_BYTES = 32  # of channels of one vector statement, which has fewer than 65536 terms


@dataclass(frozen=True, slots=True)
class Shape:
    """``pixels`` of the outputs: their extents, innermost first, with that of the images; so many
    ``filters`` of ``channels`` times ``taps``; elements of so many ``bytes``. ``phases``: so many
    times, with taps of their own. ``steps``: from the pixel that one output reads at a tap to that
    of the next, along each dimension, 1 where there are none. ``reach``: from the first pixel of a
    window to the last, along each dimension. ``rows``: the filters of a pixel lie side by side in
    the result, for each of which so many elements are read; 0 where they do not. ``fixed``: every
    call has so many channels. ``across``: weights have filters, not channels, along their rows.
    ``planes``: in the result it is pixels along the first dimension that lie side by side.
    """

    pixels: tuple[int, ...]
    filters: int
    channels: int
    taps: int
    bytes: int = 2
    phases: int = 1
    steps: tuple[int, ...] = ()
    rows: int = 0
    reach: tuple[int, ...] = ()
    fixed: bool = False
    across: bool = False
    planes: bool = False

    @property
    def depth(self) -> int:
        """Channels of one vector statement."""
        return DEPTH_BYTES // self.bytes

    @property
    def deep(self) -> int:
        """Channels in whole vectors."""
        return -(-self.channels // self.depth) * self.depth


@dataclass(frozen=True, slots=True)
class Tiling:
    """A group of four warps has ``boxes`` of 64 pixels, each a ``box``, and a block so many
    ``groups``, all in a row ``along`` one dimension, with ``n`` filters; it goes through runs of
    ``k`` channels, of which there are ``stages`` in shared memory, of elements of so many
    ``bytes``. A run has the pixels of one tap, or of all ``taps`` at once: then they ``reach`` so
    far beyond the block's along each dimension, whose windows are ``steps`` apart. ``persistent``:
    a block a multiprocessor stays, and goes on to the next tile while its results leave. ``part``:
    blocks sum so many channels each, and a second kernel adds their sums (0: all). ``strips``: the
    weights of all channels and taps stay in shared memory, a run has the pixels of so many tiles in
    a row, one after the other, and their results leave one after the other (0: weights come with
    each run). ``apart``: the next block has other pixels, not other filters of the same ones.

    What leaves in planes does so in two ways. ``planes``: the rows of a product are 64 filters and
    its columns the pixels of a box, up to 256 of them. ``staged``: sums go through shared memory,
    some filters at a time, so that threads side by side store pixels side by side.

    ``unit`` "warp": each of ``warps`` side by side along the first dimension, times ``groups``, has
    boxes of 16 pixels instead, so many ``sides`` of them side by side as well.
    """

    box: tuple[int, ...]
    groups: int
    along: int
    n: int
    k: int
    stages: int
    bytes: int = 2
    persistent: bool = False
    part: int = 0
    boxes: int = 1
    taps: int = 1
    reach: tuple[int, ...] = ()
    strips: int = 0
    steps: tuple[int, ...] = ()
    apart: bool = False
    planes: bool = False
    staged: bool = False
    unit: str = "group"
    sides: int = 1
    warps: int = 1

    @property
    def depth(self) -> int:
        """Channels of one vector statement."""
        if self.unit == "group":
            return DEPTH_BYTES // self.bytes
        return next(d for d in WARP_DEPTHS if self.k % d == 0)

    @property
    def columns(self) -> int:
        """Filters of one vector statement."""
        if self.planes:
            return ROWS
        most = 16 * self.bytes
        return self.n if self.unit == "warp" else most if self.n % most == 0 else 16

    @property
    def slices(self) -> int:
        """Vector statements for the pixels of a box, of slices of its last dimension each."""
        lanes = prod(self.box) * ROWS * self.depth
        return next(n for n in SLICES if lanes <= n * MOST_LANES) if self.planes else 1

    @property
    def sliced(self) -> int:
        """That dimension."""
        return max((d for d in self.order if self.box[d] > 1), key=self.order.index, default=0)

    @property
    def part_of(self) -> tuple[int, ...]:
        """Pixels of a group or warp along each dimension."""
        return _times(self.box, self.sides, self.along, self.boxes)

    @property
    def block(self) -> tuple[int, ...]:
        """Pixels of a block along each dimension."""
        sides, boxes = self.sides * self.warps, self.boxes * self.groups
        return _times(self.box, sides, self.along, boxes)

    @property
    def read(self) -> tuple[int, ...]:
        """Pixels of a run along each dimension."""
        return _read(self.block, self.steps, self.reach)

    @property
    def order(self) -> tuple[int, ...]:
        """The dimensions of pixels as they lie in shared memory, innermost first: those of a box
        side by side, so those that windows reach along are the last ones.
        """
        return _order(len(self.box), self.reach)

    @property
    def sums(self) -> int:
        """Registers of a thread's sums."""
        return prod(self.part_of) * self.n // (32 if self.unit == "warp" else 128)

    @property
    def statements(self) -> int:
        """Vector statements of a group for a run."""
        parts = self.boxes * self.slices * -(-self.n // self.columns)
        return self.taps * (self.k // self.depth) * parts

    @property
    def row_bytes(self) -> int:
        """What the channels of a run take of shared memory: whole lines, or a half or quarter."""
        row = self.k * self.bytes
        if self.unit == "warp":
            return _odd(row)
        return -(-row // LINE) * LINE if row > LINE else 1 << (row - 1).bit_length()

    @property
    def weight_bytes(self) -> int:
        """What the weights of a run take of shared memory, along whichever rows they lie."""
        rows = self.n * self.row_bytes
        if self.unit == "warp":
            rows = max(rows, self.k * _odd(self.n * self.bytes))
        return self.taps * rows

    @property
    def run_bytes(self) -> int:
        """What a run takes of shared memory each time that it comes."""
        pixels = prod(self.read) * self.row_bytes
        return pixels if self.strips else pixels + self.weight_bytes

    @property
    def shared_bytes(self) -> int:
        """What a block takes of shared memory, without results."""
        stay = self.weight_bytes if self.strips else 0
        return self.stages * self.run_bytes + stay + self.staged_bytes

    @property
    def staged_bytes(self) -> int:
        """What sums on their way take of shared memory, with a pixel more in each row."""
        rows = prod(self.block) // self.block[0]
        return rows * (self.block[0] + 1) * self.columns * SUM_BYTES if self.staged else 0

    @property
    def threads(self) -> int:
        if self.unit == "warp":
            return 32 * self.groups * self.warps
        return 128 * (self.groups + 1)

    @property
    def label(self) -> str:
        """What tells it from others of one problem, for names of files."""
        said = (
            (f"-x{self.boxes}", self.boxes > 1),
            ("-whole", self.taps > 1),
            ("-persistent", self.persistent),
            (f"-part{self.part}", self.part),
            (f"-strips{self.strips}", self.strips),
            ("-apart", self.apart),
            ("-planes", self.planes),
            ("-staged", self.staged),
        )
        box, units = "x".join(map(str, self.box)), f"g{self.groups}"
        if self.unit == "warp":
            units = f"w{self.warps}x{self.groups}v{self.sides}"
        text = f"{box}-{units}a{self.along}-{self.n}x{self.k}-s{self.stages}"
        return text + "".join(part for part, wanted in said if wanted)


@lru_cache(maxsize=1 << 12)
def _times(box: tuple[int, ...], sides: int, along: int, boxes: int) -> tuple[int, ...]:
    """A box so many times, side by side along the first dimension, and along another one."""
    several = [1] * len(box)
    several[0] *= sides
    several[along] *= boxes
    return tuple(e * n for e, n in zip(box, several, strict=True))


@lru_cache(maxsize=1 << 12)
def _read(
    block: tuple[int, ...], steps: tuple[int, ...], reach: tuple[int, ...]
) -> tuple[int, ...]:
    more, apart = reach or (0,) * len(block), steps or (1,) * len(block)
    return tuple((e - 1) * step + 1 + m for e, step, m in zip(block, apart, more, strict=True))


@lru_cache(maxsize=1 << 8)
def _order(dimensions: int, reach: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(dimensions), key=lambda d: bool(reach) and reach[d] > 0))


def _odd(row: int) -> int:
    """An odd number of units for a row of so many bytes: eight rows lie in different banks."""
    return (-(-row // UNIT) | 1) * UNIT
