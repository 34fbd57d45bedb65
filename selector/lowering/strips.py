"""Staged rows in strips, so that windows several chunks apart are read without bank conflicts.

``ldmatrix`` reads 8 windows of 16 bytes at once. Windows that start an even number of chunks of 16
bytes apart (a convolution of stride 2: two) meet in the same banks of shared memory; where every
``step``-th chunk of a row lies side by side, the windows do.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Strips:
    """Rows of ``pitch`` elements, each in ``step`` strips: of the chunks of ``per`` elements the
    first strip holds numbers 0, step, 2 * step ..., the second one 1, step + 1 ...
    """

    pitch: int
    step: int
    per: int

    def place(self, index: int) -> int:
        """The element where the program's element ``index`` lies."""
        row, x = divmod(index, self.pitch)
        chunk, inside = divmod(x, self.per)
        turn, strip = divmod(chunk, self.step)
        length, longer = divmod(self.pitch // self.per, self.step)
        start = strip * length + min(strip, longer)
        return row * self.pitch + (start + turn) * self.per + inside

    def index(self, text: str) -> str:
        """``place`` of an index that the kernel computes."""
        row, x = f"({text}) / {self.pitch}", f"({text}) % {self.pitch}"
        return f"({row} * {self.pitch} + {self.column(x)})"

    def column(self, text: str) -> str:
        """``place`` of an index inside the first row."""
        return f"strip_column<{self.pitch}, {self.step}, {self.per}>({text})"
