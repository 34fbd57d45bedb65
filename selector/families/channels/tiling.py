"""Sizes of such sums, and a schedule as data."""

from __future__ import annotations

from math import prod

from selector.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Windows:
    """So many ``taps`` along a dimension, that many elements ``apart``, which move on by ``step``
    from one result to the next.
    """

    taps: int = 1
    step: int = 1
    apart: int = 1

    def reach(self, results: int) -> int:
        """Elements that neighbours read."""
        return self.step * (results - 1) + self.apart * (self.taps - 1) + 1


@dataclass(frozen=True, slots=True)
class Shape:
    """``extents`` of the results, in the order of memory, and the windows along each; ``channel``:
    the place of the channels there, of which ``group`` are summed up for each; ``bytes`` of an
    element. ``side``: whether channels lie side by side in the image; among the weights so many
    elements lie ``inside`` of a channel.
    """

    extents: tuple[int, ...]
    windows: tuple[Windows, ...]
    channel: int
    group: int
    bytes: int
    side: bool
    inside: int = 1

    @property
    def terms(self) -> int:
        return self.group * prod(w.taps for w in self.windows)

    @property
    def alone(self) -> bool:
        """Whether channels lie side by side, each with a filter of its own."""
        return self.side and self.group == 1

    @property
    def windowed(self) -> tuple[int, ...]:
        """The dimensions with several taps."""
        return tuple(d for d, w in enumerate(self.windows) if w.taps > 1)


@dataclass(frozen=True, slots=True)
class Tile:
    """A thread has ``each`` results along each dimension, ``lanes`` of them a vector, a block so
    many ``threads``; the taps along dimension ``rolled`` are a loop, along none if that is None:
    what neighbouring results read there comes once for each, along others once for all;
    ``staged``: what threads read is in shared memory. ``resident`` blocks are to find registers.
    """

    each: tuple[int, ...]
    threads: tuple[int, ...]
    lanes: int
    rolled: int | None
    resident: int = 1
    staged: bool = False

    @property
    def row(self) -> bool:
        return in_rows(self.each, self.lanes)

    @property
    def vectors(self) -> bool:
        return self.lanes > 1 or self.row


def in_rows(each: tuple[int, ...], lanes: int) -> bool:
    """Whether a thread has neighbours along rows of planes."""
    return lanes == 1 and each[0] > 1
