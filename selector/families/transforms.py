"""Transforms of overlapping tiles, there and back, in one kernel: filters along rows, along columns
as often as there are, and along rows again, each of which has all phases of a tile at once.

    rows[q, y] = sum_k  F[k, q % 16] * image[8 * (q / 16) + k, y]       a column of tiles a warp
    ...                                                                 stays in its registers
    pixels[x, y] = sum_k  G[k, x % 8] * columns[16 * (x / 8) + k, y]    from shared memory

A warp has a column of tiles, whose bins are the rows of its products, so that what one product
gives is the next one's operand as it lies in registers. The last filter adds neighbouring columns,
which all warps of a block have left in shared memory. Where a tile has fewer bins than a product
has rows, a warp has several columns, and the first filter's products have rows of the image, which
go to the next one by way of shared memory.

Shapes are those of windows, the last filter first and that of the image last. What is no property
of a GPU, how long a block takes beside its work, was fitted to times of 20 tilings of two pictures
on an H100; of 30 tilings of three other pictures the choice was the fastest every time
(``tests/gpu/build_separable.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise, product
from math import ceil, hypot

from selector.dataclass import dataclass
from selector.families.windows.limits import pitch
from selector.families.windows.tiling import COLUMNS, Axis, Shape, rounded
from selector.machine.record import Machine
from selector.targets import Target, find_target

ROWS, DEPTH = 16, 16  # of an instruction
WIDTHS, HEIGHTS = (32, 64, 96, 128), (16, 32, 64)
OTHERS = 20  # registers of a thread beside the bins that it keeps
START = 7050.0  # clocks of a block, for its part of the image to come and its results to leave
TURN = 2.87  # clocks of a warp for a row of a tile's bins, whose products wait for each other


@dataclass(frozen=True, slots=True)
class Tiling:
    """Outputs of a block, and how many neighbours a warp has at once of the last filter."""

    width: int
    height: int
    across: int


@dataclass(frozen=True)
class Chain:
    """The filters of one, ``channels`` of a pixel of which are a block's, and what a tile of a size
    needs of each: ``heights`` rows, the last filter's first and those of the image last, of
    ``columns`` of warps, ``read`` pixels of a row of the image.
    """

    shapes: tuple[Shape, ...]
    channels: int
    tiling: Tiling

    @property
    def first(self) -> Axis:
        return self.shapes[-1].x

    @property
    def last(self) -> Axis:
        return self.shapes[0].x

    @property
    def unit(self) -> int:
        """Bins of a warp."""
        return max(self.first.phases, ROWS)

    @property
    def upright(self) -> bool:
        """Whether rows of the image are the rows of the first filter's products."""
        return self.first.phases < ROWS

    @property
    def parts(self) -> tuple[int, ...]:
        """Rows, or for the last filter columns, of a product of each."""
        rows = (max(_axis(s).phases, COLUMNS) for s in self.shapes[:-1])
        return (*rows, ROWS if self.upright else COLUMNS)

    @cached_property
    def heights(self) -> tuple[int, ...]:
        found = [self.tiling.height]
        for shape in self.shapes[1:-1]:
            found.append(shape.y.reach(found[-1]))
        return (found[0], *found[:-1], rounded(found[-1], self.parts[-1]))

    @property
    def columns(self) -> int:
        return ceil(self.last.reach(self.tiling.width) / self.unit)

    @property
    def lead(self) -> int:
        """Pixels of a row ahead of what is read, since it begins where copies do."""
        return self.first.first % self.shapes[-1].run

    @property
    def read(self) -> int:
        reach = self.lead + self.first.reach(self.columns * self.unit)
        return rounded(reach, self.shapes[-1].run)

    @property
    def stored(self) -> int:
        """Turns of warps that have a part of the last filter each."""
        return self.tiling.width // self.tiling.across * (self.tiling.height // ROWS)

    @property
    def threads(self) -> int:
        return 32 * max(self.columns, self.stored)

    @property
    def shared(self) -> int:
        """Bytes of the image, of what the last filter reads, of its results, and the matrices,
        which may be bands as well.
        """
        t, run = self.tiling, self.shapes[-1].run
        image = self.channels * self.heights[-1] * pitch(self.read, run)
        between = self.columns * self.unit * pitch(t.height, run)
        if self.upright:
            between += self.columns * self.heights[-1] * pitch(self.unit, run)
        results = self.channels * (t.width + run) * t.height
        matrices = sum(_axis(s).phases * pitch(_axis(s).taps, run) for s in self.shapes)
        return 2 * (image + between + results + 2 * matrices) + 1024

    @property
    def registers(self) -> int:
        """Of a thread, about: what a filter reads and what it gives are kept as halves."""
        most = max(made + read for made, read in pairwise((*self.heights[1:], 0)))
        return OTHERS + self.unit * most // 64


def ranked(shapes: Sequence[Shape], channels: int, machine: Machine) -> list[tuple[float, Tiling]]:
    """Those that a target takes, with microseconds, the best first."""
    target, found = find_target(machine.target), list[tuple[float, Tiling]]()
    for tiling in _space(shapes):
        chain = Chain(tuple(shapes), channels, tiling)
        if not why_not(chain, target):
            found.append((microseconds(chain, machine), tiling))
    return sorted(found, key=lambda each: each[0])


def _space(shapes: Sequence[Shape]) -> Iterator[Tiling]:
    """Warps have as few neighbours of the last filter as leaves each of them some."""
    phases = max(shapes[0].x.phases, COLUMNS)
    for width, height in product(WIDTHS, HEIGHTS):
        turns = width // phases * (height // ROWS)
        columns = Chain(tuple(shapes), 1, Tiling(width, height, phases)).columns
        yield Tiling(width, height, phases * (1 << (-(-turns // columns) - 1).bit_length()))


def _axis(shape: Shape) -> Axis:
    return shape.y if shape.down else shape.x


def why_not(chain: Chain, target: Target) -> str:
    """Why a chain is none, or a block has no room for it; empty if it has."""
    last, *between, first = chain.shapes
    if not target.has("mma") or any(s.bytes != 2 or s.converted for s in chain.shapes):
        return "its values are no halves"
    if not between or not all(s.down for s in between) or last.down or first.down:
        return "its filters do not lie along rows, columns and rows"
    if any(s.y.taps > 1 or s.signal or s.channels > 1 for s in (last, first)):
        return "a filter along rows has taps along columns, too"
    axes, bins = [_axis(s) for s in chain.shapes], chain.first.phases
    held = axes[1 : -2 if chain.upright else -1]  # what these read lies in registers
    if any(a.dilation > 1 or a.taps % COLUMNS for a in axes) or any(a.step % COLUMNS for a in held):
        return "its windows are no whole operands"
    if any(max(a.phases, COLUMNS) % min(a.phases, COLUMNS) for a in axes):
        return "its phases are no whole products"
    if chain.unit % bins or chain.unit % ROWS or chain.first.step * chain.unit // bins % COLUMNS:
        return "tiles of the first filter are no whole products"
    if last.x.step * chain.tiling.width // last.x.phases % chain.unit or last.x.first:
        return "the last filter does not read whole columns of tiles"
    return _no_room(chain, target)


def _no_room(chain: Chain, target: Target) -> str:
    t = chain.tiling
    tall = zip(chain.heights[1:-1], chain.parts[1:-1], strict=True)
    if t.width % t.across or t.across % chain.parts[0] or t.height % ROWS:
        return "a tile has no whole products"
    if any(height % part for height, part in tall):
        return "a tile has no whole products"
    room = target.multiprocessor
    assert room is not None
    if chain.threads > target.max_threads or chain.shared > target.shared_memory:
        return "a block has no room for it"
    few = chain.registers * chain.threads > room.registers
    return "a thread has too few registers" if few else ""


def microseconds(chain: Chain, machine: Machine) -> float:
    """On a GPU, foretold: memory and multiprocessors overlap in part. On these, products of all
    blocks take turns; beside that a block waits, while others that are resident do as well.
    """
    last, t = chain.shapes[0], chain.tiling
    planes = ceil(last.planes / chain.channels)
    blocks = ceil(last.width / t.width) * ceil(last.height / t.height) * planes
    busiest = ceil(blocks / machine.multiprocessors)
    alone = START + TURN * chain.channels * sum(chain.heights[1:])
    waves = max(1.0, busiest / _resident(chain, machine))
    moved = last.planes * last.width * last.height * (2 + last.result_bytes)
    clocks = busiest * _products(chain) / machine.rates.get("mma.f16", 1.0) + waves * alone
    return machine.launch + hypot(moved / machine.copy / 1e6, clocks / machine.megahertz)


def _products(chain: Chain) -> int:
    """Multiply-adds of a block, in whole instructions."""
    bins, t = chain.columns * chain.unit, chain.tiling
    sums = [t.width * t.height, *(bins * n for n in chain.heights[1:])]
    parts = (*chain.parts[:-1], chain.unit)
    deep = (_axis(s).reach(part) for s, part in zip(chain.shapes, parts, strict=True))
    return chain.channels * sum(n * rounded(k, DEPTH) for n, k in zip(sums, deep, strict=True))


def _resident(chain: Chain, machine: Machine) -> int:
    """Blocks that run on a multiprocessor at once."""
    room = find_target(machine.target).multiprocessor
    assert room is not None
    return max(
        1,
        min(
            room.blocks,
            room.warps * 32 // chain.threads,
            room.registers // (chain.threads * rounded(chain.registers, 8)),
            room.shared_memory // (chain.shared + room.reserved_shared),
        ),
    )
