"""Which part of each input a block of the output needs. Axes here are dimensions of the loop IR,
innermost first, as in ``motion``; only ``call`` turns them round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from selector.dask.motion import Motion
from selector.dask.regions import Side, region_ends
from selector.dataclass import dataclass
from selector.ir.module import Module

Span = tuple[int, int]  # first element, and one past the last


@dataclass(frozen=True, slots=True)
class Window:
    """A block: the outputs to keep of those that a call computes, which begin at ``begin`` and are
    ``extents``; and the part of each side that it is given.
    """

    begin: tuple[int, ...]
    extents: tuple[int, ...]
    keep: tuple[Span, ...]  # in the whole output
    reads: Mapping[Side, Span]


@dataclass(frozen=True, slots=True)
class Layout:
    """The extents of a call on the whole image; ``motions`` of the dimensions that can be cut;
    ``output``: its extents.
    """

    module: Module
    motions: Mapping[int, Motion]
    inputs: Mapping[Side, int]
    output: tuple[int, ...]
    scalars: Mapping[str, Any]

    def window(self, keep: Sequence[Span]) -> Window:
        """The smallest window of whole tiles in which those outputs are right."""
        begin, end = [0] * len(keep), [high for _, high in keep]
        tiles: dict[int, Span] = {}
        for d, motion in self.motions.items():
            tile = motion.tile
            start, last = keep[d][0] // tile, (keep[d][1] - 1) // tile
            start = max(start - motion.margin, 0)
            if motion.aligned:
                end[d] = min((last + 1) * tile, self.output[d])
                start -= start > 0 and end[d] - start * tile < tile
            begin[d], tiles[d] = start * tile, (start, last)
        extents = tuple(high - low for low, high in zip(begin, end, strict=True))
        return Window(tuple(begin), extents, tuple(keep), self._reads(extents, tiles))

    def _reads(self, extents: tuple[int, ...], tiles: Mapping[int, Span]) -> dict[Side, Span]:
        moved = {side for m in self.motions.values() for side in m.steps}
        known = {side: n for side, n in self.inputs.items() if side not in moved}
        ends = region_ends(self.module, known, extents, self.scalars)
        reads: dict[Side, Span] = {}
        for side, whole in self.inputs.items():
            if side not in moved:
                reads[side] = (0, whole)
                continue
            low, reach = 0, ends.get(side, 1)
            for d, motion in self.motions.items():
                step = motion.steps.get(side, 0)
                low += tiles[d][0] * step
                if side in motion.after:
                    reach = max(reach, (tiles[d][1] - tiles[d][0]) * step + motion.after[side])
            low = min(low, whole)
            reads[side] = (low, max(low, min(low + reach, whole)))
        return reads

    def chunks(self, d: int, extent: int, chunked: Mapping[Side, Sequence[int]]) -> tuple[int, ...]:
        """Chunks of output dimension ``d`` that follow those of the first input it moves along."""
        motion = self.motions.get(d)
        for side, sizes in chunked.items():
            step = 0 if motion is None else motion.steps.get(side, 0)
            if motion is None or not step:
                continue
            ends = {min(end * motion.tile // step, extent) for end in accumulate(sizes)}
            bounds = sorted({0, *ends, extent})
            return tuple(high - low for low, high in pairwise(bounds))
        return (extent,)


def spans(sizes: Sequence[int]) -> list[Span]:
    """First and one past the last element of each chunk."""
    ends = list(accumulate(sizes))
    return list(zip([0, *ends[:-1]], ends, strict=True))


def pieces(sizes: Sequence[int], span: Span) -> list[tuple[int, Span]]:
    """The chunks that a span takes part in, and its part of each; the first for an empty span."""
    found = [
        (i, (max(span[0], low) - low, min(span[1], high) - low))
        for i, (low, high) in enumerate(spans(sizes))
        if max(span[0], low) < min(span[1], high)
    ]
    return found or [(0, (0, 0))]
