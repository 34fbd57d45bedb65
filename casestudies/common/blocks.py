"""Which blocks of the schedules for warpgroups fill a GPU at an image's size.

A multiprocessor runs one block at a time, and all blocks take as long: the grid takes rounds. Plain
arithmetic: problems choose by it, where there is no Halide.
"""

from __future__ import annotations

from dataclasses import dataclass

MULTIPROCESSORS = 132  # of an H100 or H200
WORTH = 0.95  # of the usual block's time, for one program more


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of outputs of a group, tiles of a block one below the other."""

    rows: int
    tiles: int


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of ``groups`` groups, ``width`` outputs wide; the first of ``choices`` is the usual
    one.

    Times in rows of a group, fitted to those of an H200: ``start``, what a block takes beside its
    rows; ``warps``, what the schedule for warps takes in any case, and for a row of outputs of
    every multiprocessor's groups.
    """

    width: int
    groups: int
    choices: tuple[Block, ...]
    start: float
    warps: tuple[float, float]

    @property
    def usual(self) -> Block:
        return self.choices[0]

    def chosen(self, width: int, height: int) -> Block | None:
        """What takes least time for so many outputs; None: the schedule for warps."""
        best = min(self.choices, key=lambda b: self._time(b, width, height))
        if self._time(best, width, height) > WORTH * self._time(self.usual, width, height):
            best = self.usual
        return best if self._time(best, width, height) <= self._by_warps(width, height) else None

    def suffix(self, block: Block | None) -> str:
        """Of a program's name, for other blocks than the usual ones."""
        return "" if block in (None, self.usual) else f"-{block.rows}x{block.tiles}"

    def _time(self, block: Block, width: int, height: int) -> float:
        across = -(-width // self.width)
        blocks = across * -(-height // (block.rows * self.groups * block.tiles))
        return -(-blocks // MULTIPROCESSORS) * (block.rows * block.tiles + self.start)

    def _by_warps(self, width: int, height: int) -> float:
        once, row = self.warps
        return once + row * width * height / (self.width * self.groups * MULTIPROCESSORS)
