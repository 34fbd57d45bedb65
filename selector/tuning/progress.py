"""How far tuning is: one line that is written anew on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from selector.tuning.results import Status, Trial
from selector.tuning.space import describe

_CLEAR = "\r\x1b[2K"
_WIDTH = 110
_SECONDS = 0.2  # between two writings


class Line:
    """``3/48, 1 failed, best 86.10 us (n=256), 31 s`` on a terminal."""

    def __init__(self, name: str, count: int, stream: TextIO | None = None) -> None:
        self._name, self._count = name, count
        self._stream = stream or sys.stderr
        self._begin = time.monotonic()
        self._written = 0.0
        self._trials: list[Trial] = []

    def add(self, trial: Trial) -> None:
        """A trial has ended."""
        self._trials.append(trial)
        self.show()

    def show(self, building: int = 0, timing: str = "") -> None:
        """Write the line, if the last one is old enough."""
        now = time.monotonic()
        if now - self._written < _SECONDS and len(self._trials) < self._count:
            return
        self._written = now
        self._stream.write(_CLEAR + self._text(building, timing)[:_WIDTH])
        self._stream.flush()

    def close(self) -> None:
        """Remove the line."""
        self._stream.write(_CLEAR)
        self._stream.flush()

    def _text(self, building: int, timing: str) -> str:
        parts = [f"tuning {self._name}: {len(self._trials)}/{self._count}"]
        for status in (Status.FAILED, Status.WRONG):
            count = sum(t.status is status for t in self._trials)
            if count:
                parts.append(f"{count} {status}")
        parts.append(f"{time.monotonic() - self._begin:.0f} s")
        best = min(self._trials, key=lambda t: t.microseconds, default=None)
        if best is not None and best.status is Status.TIMED:
            parts.append(f"best {best.microseconds:.2f} us ({describe(best.settings)})")
        if building:
            parts.append(f"compiling {building}")
        if timing:
            parts.append(f"timing {timing}")
        return ", ".join(parts)


class Quiet:
    """Shows nothing; ``each`` is called with every trial that has ended."""

    def __init__(self, each: Callable[[Trial], object] | None = None) -> None:
        self._each = each

    def add(self, trial: Trial) -> None:
        if self._each is not None:
            self._each(trial)

    def show(self, building: int = 0, timing: str = "") -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def reporter(
    progress: bool | Callable[[Trial], object] | None, name: str, count: int
) -> Line | Quiet:
    """``None``: the line if standard error is a terminal; a function gets each trial."""
    if callable(progress):
        return Quiet(progress)
    if progress or (progress is None and sys.stderr.isatty()):
        return Line(name, count)
    return Quiet()
