"""Sums over taps that begin where data say (``recognise.resampling``), on CUDA cores.

A thread computes several results that share a start and weights: all channels of a pixel, and some
neighbours along a dimension that is not resampled. They are in its registers, and it goes through
the taps once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from halide_bridge.schedules.kernels import Grid, fused
from halide_bridge.schedules.recognise.facts import SMALL
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.stock import REGISTER
from selector.dataclass import dataclass

WIDE, HIGH = 32, 8  # threads of a block
ROWS = 4  # rows of results that share weights
LANES = 8  # neighbours that do, loaded and stored side by side
ALIGNED = 64  # elements: rows of what may lie as it likes begin at whole lines
BLOCKS = 4  # of a multiprocessor, at least, before a thread has several results


@dataclass(frozen=True, slots=True)
class Taps:
    """``along``: the dimension of a sum's results that is resampled; ``order``: which dimension of
    what is stored each of its own is; ``extents``: of what is stored, where they are numbers;
    ``about``: those to be fast at; ``free``: whether it may lie in memory as it likes; ``blocks``:
    how many there should be at least.
    """

    along: int
    order: tuple[int, ...]
    extents: tuple[int | None, ...]
    about: tuple[int, ...]
    free: bool
    blocks: int

    @property
    def short(self) -> tuple[int, ...]:
        """Dimensions of a few elements, as the channels of a pixel, unless all are."""
        found = tuple(d for d, e in enumerate(self.extents) if e is not None and e <= SMALL)
        return found if len(found) < len(self.extents) else found[:-1]

    @property
    def long(self) -> tuple[int, ...]:
        return tuple(d for d in range(len(self.extents)) if d not in self.short)

    @property
    def lanes(self) -> int:
        """Neighbours of a thread along the innermost of the long dimensions."""
        beside = self.order[self.along] != self.long[0]
        return self._at_most(LANES) if beside and (self.free or self.long[0] == 0) else 1

    @property
    def rows(self) -> int:
        """Neighbours of a thread along the next one."""
        resampled = self.order[self.along] == self.long[0]
        return self._at_most(ROWS) if resampled and len(self.long) > 1 else 1

    def _at_most(self, several: int) -> int:
        """Results of a thread, as many as leave enough blocks."""
        threads = prod(self.about[d] for d in self.long) // (WIDE * HIGH)
        return max((n for n in (8, 4, 2) if n <= several and threads >= n * self.blocks), default=1)

    def each(self, d: int) -> int | None:
        """How many elements along one of the sum's dimensions a thread has; None: one."""
        place = self.order[d]
        if place in self.short:
            return self.extents[place]
        several = dict(zip(self.long, (self.lanes, self.rows), strict=False)).get(place, 1)
        return several if several > 1 else None


def by_taps(
    script: Script,
    func: Recorded,
    stored: Recorded,
    taps: Taps,
    starts: Sequence[Recorded],
    weights: Recorded,
) -> Grid:
    """The directives; ``stored`` reads the sums where it is computed itself."""
    args = stored.args()
    x, *others = (args[d] for d in taps.long)
    stored.compute_root()
    xo, xi, xl, yo, yi, yl = script.variables("xo", "xi", "xl", "yo", "yi", "yl")
    stored.split(x, xo, xi, WIDE * taps.lanes)
    inner = [args[d] for d in taps.short]
    if taps.lanes > 1:
        stored.split(xi, xi, xl, taps.lanes)
        if taps.short:
            stored.reorder_storage(x, *(a for d, a in enumerate(args) if d != taps.long[0]))
        if taps.free:
            stored.align_storage(x, ALIGNED)
    threads, blocks = [xi], [xo]
    if others:
        y, *outer = others
        stored.split(y, yo, yi, HIGH * taps.rows)
        if taps.rows > 1:
            stored.split(yi, yi, yl, taps.rows)
            inner.append(yl)
        threads, blocks = [xi, yi], [xo, yo, *fused(script, stored, outer)]
    vectors = [xl] if taps.lanes > 1 else []
    stored.reorder(*vectors, *inner, *threads, *blocks)
    for loop in vectors:
        stored.vectorize(loop)
    for loop in inner:
        stored.unroll(loop)
    stored.gpu_blocks(*blocks).gpu_threads(*threads)
    func.compute_at(stored, xi)
    _sums(func, taps)
    for table in starts:
        table.in_(func).compute_at(stored, xi).store_in(REGISTER)
    weights.in_(func).compute_at(func, func.rvars(0)[0]).store_in(REGISTER)
    several = {"neighbours": taps.lanes, "rows": taps.rows}
    text = f"{WIDE} x {HIGH} threads" if others else f"{WIDE} threads"
    return Grid(text=text + "".join(f", {n} {what} each" for what, n in several.items() if n > 1))


def _sums(func: Recorded, taps: Taps) -> None:
    """The results of a thread, all of them for each tap."""
    update, args = func.update(0), func.args()
    each = [(arg, n) for d, arg in enumerate(args) if (n := taps.each(d)) is not None]
    side = [arg for d, arg in enumerate(args) if taps.lanes > 1 and taps.order[d] == taps.long[0]]
    inner = sorted((arg for arg, _ in each), key=lambda a: a.name() not in {s.name() for s in side})
    for arg, n in each:
        func.bound_extent(arg, n)
    if inner:
        update.reorder(*inner, *func.rvars(0))
    for arg in inner:
        for stage in (func, update):
            if any(arg.name() == s.name() for s in side):
                stage.vectorize(arg)
            else:
                stage.unroll(arg)
