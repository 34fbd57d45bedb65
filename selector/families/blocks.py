"""Sums on CUDA cores by blocks of threads, each thread with a tile of sums in its registers.

Neighbouring threads have neighbouring runs of sums along n, the innermost dimension: what differs
along it is loaded from shared memory 16 bytes a thread, what does not is the same for all threads
of a warp. A thread of a long product may have two such runs: for as many loads it has more sums,
and half as many threads have the registers. How large a tile is decides how often an element is
loaded, and how many blocks there are to share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from selector.dataclass import dataclass
from selector.machine import Machine

LANES = 32
RUN_OF_TERMS = 16  # that is staged at a time
RUN = 4  # sums of a thread along n: 16 bytes of f32
BYTES, SHARED = 4, 160 << 10  # of an element; of a multiprocessor's shared memory
BUSY = 8  # warps that keep a multiprocessor busy
WARPS = 4  # of a block, that bring what it reads; fewer where there is no more to do
WAITING = 64  # warps of a block that wait for each other for as long as they compute
START = 1000  # clocks of a block beside its sums
BROUGHT = 16  # elements that come to a multiprocessor's shared memory in a clock
SINGLE = 6  # times that, if they come one by one
PER_TURN = 4  # multiply-adds of a warp for which a multiprocessor needs a clock
WRITTEN_OUT = 1024  # multiply-adds of a thread that are written out
SHORTEST = 256  # terms of a part
GAIN = 2  # times sooner that parts have to be added up: with less they were slower
LONG = 256  # terms from which a thread has two runs of sums; with fewer what is made of them counts
HELD = 64  # registers of a thread that sums may take, of the 128 that it has; of 255 twice as many


@dataclass(frozen=True, slots=True)
class Factor:
    """What is read for each term: whether it follows n and m, whether the terms of a sum along n
    are neighbours (``slides``), for how many terms a block has each element brought once, how many
    lie around those of a tile along n and m, and whether they are brought one by one.
    """

    n: bool
    m: bool
    slides: bool = False
    terms: int = 1
    around: tuple[int, int] = (0, 0)
    single: bool = False

    def brought(self, tile: Tile) -> float:
        """Elements that come to a block, by term."""
        n, m = (
            x if follows else 1 for x, follows in zip(tile.extents, (self.n, self.m), strict=True)
        )
        return (n + self.around[0]) * (m + self.around[1]) / self.terms


@dataclass(frozen=True, slots=True)
class Sums:
    """``n`` times ``m`` results, ``others`` times, of ``terms`` each; ``inner``: the lengths of the
    two inner loops over terms; ``work``: multiply-adds that a term is as long as, written out;
    ``last``: that what is made of a sum is as long as; ``registers`` of a sum.
    """

    n: int
    m: int
    others: int
    terms: int
    factors: tuple[Factor, ...] = (Factor(True, False), Factor(False, True))
    inner: tuple[int, int] = (16, 1)
    work: int = 1
    last: int = 0
    registers: int = 1


@dataclass(frozen=True, slots=True)
class Tile:
    """``lanes`` x ``rows`` threads with ``n`` x ``m`` sums each: along n runs of ``RUN``, and
    between those of a thread the runs of the others.
    """

    n: int
    m: int
    lanes: int
    rows: int

    @property
    def threads(self) -> int:
        return self.lanes * self.rows

    @property
    def resident(self) -> int:
        """Blocks of a multiprocessor that are to find registers: 128 for a thread, or 255."""
        return max(1, (512 if self.runs == 1 else 256) // self.threads)

    @property
    def runs(self) -> int:
        return max(1, self.n // RUN)

    @property
    def extents(self) -> tuple[int, int]:
        """Results of a block."""
        return self.n * self.lanes, self.m * self.rows

    def fits(self, sums: Sums) -> bool:
        """Whether its sums stay in registers, and the inner loop, and what is made of the sums, are
        soon compiled.
        """
        sums_of_a_thread, times = self.n * self.m, min(sums.inner[0], RUN_OF_TERMS)
        written_out = sums_of_a_thread * max(times * sums.work, sums.last)
        held, most = HELD * self.runs, WRITTEN_OUT * self.runs
        return sums_of_a_thread * sums.registers <= held and written_out <= most

    def written_out(self, inner: tuple[int, int], work: int = 1) -> int:
        """Iterations of the second loop over terms that are written out around the first, so that
        what they share is loaded once.
        """
        most = max(1, WRITTEN_OUT // (inner[0] * self.n * self.m * work))
        return max(times for times in range(1, most + 1) if inner[1] % times == 0)


def ranked(
    sums: Sums, machine: Machine, *, flat: bool = False, longest: int = 0
) -> list[tuple[float, Tile, int]]:
    """Tiles, with the clocks that they take and the parts in which blocks add up; ``flat``: there
    is no second dimension; ``longest``: terms that may be cut into parts, 0 for none.
    """
    if flat:
        space = [Tile(RUN, 1, 256, 1)]
    else:
        short = [x for x in (4, 8, 16) if RUN * x >= sums.n][:1] or _narrower(sums.n)
        space = [
            Tile(RUN, m, lanes, warps * LANES // lanes)
            for lanes in (LANES, *short)
            for m in (16, 8, 4, 2)
            for warps in (8, 4, 2, 1)
            if warps >= WARPS or (m == 2 and 2 * m * warps * LANES // lanes > sums.m)
        ]
        apart = all(f.n != f.m and not f.slides and not f.single for f in sums.factors)
        if apart and sums.terms >= LONG:
            space.append(Tile(2 * RUN, 16, LANES, WARPS))
    least = min(space, key=lambda tile: tile.n * tile.m)
    fitting = [tile for tile in space if tile.fits(sums)] or [least]
    whole = [cycles(sums, tile, machine) for tile in fitting]
    found = [(clocks, tile, 1) for clocks, tile in zip(whole, fitting, strict=True)]
    cut = [tile for tile in fitting if tile.runs == 1]  # of two runs not measured
    parts = [x for tile in cut for x in _in_parts(sums, tile, machine, longest)]
    return [*found, *(x for x in parts if x[0] * GAIN <= min(whole))]


def _in_parts(
    sums: Sums, tile: Tile, machine: Machine, longest: int
) -> Iterator[tuple[float, Tile, int]]:
    """With twice as many parts and so on, which have to be added up: by blocks of ``LANES``
    results, two on a multiprocessor.
    """
    parts, results = 2, sums.n * sums.m * sums.others * sums.registers
    rounds = ceil(results / (2 * LANES * machine.multiprocessors))
    while parts * SHORTEST <= longest:
        each = replace(sums, others=sums.others * parts, terms=ceil(sums.terms / parts))
        microseconds = 2 * machine.launch + 2 * BYTES * parts * results / (machine.l2 * 1e6)
        added = microseconds * machine.megahertz + rounds * START
        yield cycles(each, tile, machine) + added, tile, parts
        parts *= 2


def _narrower(n: int) -> list[int]:
    """Lanes of tiles that together go less far beyond the last of ``n`` results."""

    def covered(lanes: int) -> int:
        return ceil(n / (RUN * lanes)) * lanes

    return [lanes for lanes in (16, 8) if covered(lanes) < covered(LANES)]


def cycles(sums: Sums, tile: Tile, machine: Machine) -> float:
    """Clocks of the GPU until all is done."""
    n, m = tile.extents
    blocks = ceil(sums.n / n) * ceil(sums.m / m) * sums.others
    warps = tile.threads / LANES
    each = ceil(blocks / machine.multiprocessors)
    if tile.runs > 1:  # one that is alone at last takes nearly as long as two
        each = ceil(each / tile.resident) * tile.resident
    held = BYTES * sum(f.brought(tile) * max(f.terms, RUN_OF_TERMS) for f in sums.factors)
    running = min(each, tile.resident, max(1, SHARED // held)) * warps
    bounds = (
        tile.n * tile.m * sums.work / PER_TURN * warps,
        sum(_wavefronts(f, sums, tile) for f in sums.factors) * warps,
        sum(f.brought(tile) * (SINGLE if f.single else 1) for f in sums.factors) / BROUGHT,
    )
    clocks = (0.75 * max(bounds) + 0.25 * sum(bounds)) * (1 + warps / WAITING)
    return each * (START + sums.terms * clocks) * max(1.0, BUSY / running)


def _wavefronts(factor: Factor, sums: Sums, tile: Tile) -> float:
    """Clocks of shared memory for what a warp reads for a term."""
    times, (length, _) = tile.written_out(sums.inner, sums.work), sums.inner
    rows = (tile.m + times - 1) / times if factor.m and factor.n else tile.m if factor.m else 1.0
    along = (length + tile.n - 1) / length if factor.slides else tile.n
    lines = max(1, LANES // tile.lanes)  # of threads in a warp, which read the same along n
    if factor.n:
        return rows * along * (1 if factor.m else 1 / lines)
    return rows / RUN * (lines if factor.m else 1)
