"""What a block of threads reads of each Func for its tile of sums (``blocks``): boxes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from halide_bridge.schedules.recognise.program import Member
from halide_bridge.schedules.recognise.reuse import Index, Read, Reuse
from selector.dataclass import dataclass
from selector.families.blocks import Tile


@dataclass(frozen=True, slots=True)
class Box:
    """What a block reads of a Func for a run: ``extents`` along its dimensions, and the first
    element along each, where that is the same for all blocks but for multiples of their tiles.
    """

    extents: tuple[int, ...]
    first: tuple[int | None, ...]

    def rounded(self, d: int, run: int) -> int:
        """The extent along a dimension if it begins and ends at multiples of ``run``."""
        first = self.first[d]
        before = run - 1 if first is None else first % run
        return -(-(before + self.extents[d]) // run) * run


@dataclass(frozen=True, slots=True)
class Part:
    """Reads of a Func that move together from block to block and from run to run: all of them, or
    of two kinds those that follow the ``dimension`` of the sum and are a Func of their own then, or
    the others. ``kept``: they are staged, each result reads them once otherwise.
    """

    func: str
    reads: tuple[Read, ...]
    dimension: int | None
    kept: bool


def lengths_of(reuse: Reuse, runs: Mapping[str, int]) -> dict[str, int | None]:
    """Terms along each variable that a block has at a time; None: one of an unknown number."""
    return {**reuse.reduced, **runs}


def boxes_of(
    reuse: Reuse, tile: Tile, runs: Mapping[str, int], member: Member, *, anywhere: bool
) -> list[tuple[Part, Box]] | None:
    """What a block reads for a run; None if reads of one Func lie apart in more than two places.
    ``anywhere``: tiles may begin at any element of a row, and at multiples of vectors if not.
    """
    extents = {name: e or 1 for name, e in lengths_of(reuse, runs).items()}
    for d, n in zip((reuse.n, reuse.m), tile.extents, strict=True):
        if d is not None:
            extents[member.args[d]] = n
    moving = {*member.args, *runs}
    loose = {member.args[reuse.n]} if anywhere else set[str]()
    several = bool(runs) or None in reuse.reduced.values()
    found = list[tuple[Part, Box]]()
    for name in dict.fromkeys(r.func for r in reuse.reads):
        reads = tuple(r for r in reuse.every if r.func == name)
        for parts in _ways(name, reads, reuse, member):
            if several and any(p.kept and r in reuse.first for p in parts for r in p.reads):
                continue  # what a sum begins with is read before all of them
            boxes = [(part, _box(part, extents, moving, loose)) for part in parts]
            whole = [(part, box) for part, box in boxes if box is not None]
            if len(whole) == len(boxes):
                found += whole
                break
        else:
            return None
    return found


def _ways(
    name: str, reads: tuple[Read, ...], reuse: Reuse, member: Member
) -> Iterator[tuple[Part, ...]]:
    """The reads of a Func as one part, or as two."""

    def part(some: Iterable[Read], dimension: int | None) -> Part:
        each = tuple(some)
        return Part(name, each, dimension, any(r in reuse.reads for r in each))

    yield (part(reads, None),)
    for d, arg in enumerate(member.args):
        those = [r for r in reads if r.follows(arg)]
        if 0 < len(those) < len(reads):
            yield part(those, d), part((r for r in reads if r not in those), None)


def _box(part: Part, extents: Mapping[str, int], moving: Set[str], loose: Set[str]) -> Box | None:
    along = zip(*(r.indices for r in part.reads), strict=True)
    spans = [_span(indices, extents, moving, loose) for indices in along]
    whole = [span for span in spans if span is not None]
    if len(whole) < len(spans):
        return None
    return Box(tuple(n for n, _ in whole), tuple(first for _, first in whole))


def _span(
    indices: Sequence[Index], extents: Mapping[str, int], moving: Set[str], loose: Set[str]
) -> tuple[int, int | None] | None:
    """How many elements lie from the first to the last along a dimension that some indices name,
    and which is the first, where that does not depend on what is ``loose``; None if they do not
    move together, with the variables (``moving``) that are elsewhere in another block or run.
    """
    outer = [{v: f for v, f in i.factors.items() if v not in extents} for i in indices]
    bases = [{v: f for v, f in i.factors.items() if v in moving} for i in indices]
    apart = [(i.rest - indices[0].rest).constant for i in indices]
    if None in apart or any(b != (outer[0], bases[0]) for b in zip(outer, bases, strict=True)):
        return None
    low = [(a or 0) + i.low(extents) for a, i in zip(apart, indices, strict=True)]
    high = [x + i.reach(extents) for x, i in zip(low, indices, strict=True)]
    known = not outer[0] and indices[0].factors.keys().isdisjoint(loose)
    start = indices[0].rest.constant if known else None
    return max(high) - min(low) + 1, None if start is None else start + min(low)
