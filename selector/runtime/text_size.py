"""How large the text of a kernel is once its loops are unrolled, and what makes it so.

NVRTC's time grows with that, and cannot be stopped in this process: what is known to be small is
compiled here, the rest where it can be ended (``nvrtc``). The text is read line by line, as the
emitters write it: a loop with ``#pragma unroll`` counts as often as it runs, and so does a short
one without, as NVRTC takes it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

_LOOP = re.compile(r"for \(int (\w+) = ([^;]+); \1 < (\d+); (?:\+\+\1|\1 \+= (\d+))\)")
_PRAGMA = re.compile(r"#pragma unroll(?: (\d+))?$")
_NUMBER = re.compile(r"\b\d+\b")
_NAMED = re.compile(r"(?<=[A-Za-z])_?\d+\b")
_SHORT = 16  # iterations of a loop that NVRTC unrolls by itself


@dataclass(frozen=True, slots=True)
class Repeated:
    """A line that occurs often, up to numbers in it: how often, unrolled, and characters in all."""

    line: str
    copies: int
    characters: int


@dataclass(frozen=True, slots=True)
class TextSize:
    """Characters of all kernels of a source with loops unrolled, and the line that has most."""

    characters: int
    largest: Repeated


def unrolled_size(source: str) -> TextSize:
    """Read the kernels of a source; what stands before the first one is not counted."""
    body = source.partition("__global__")[2]
    copies: Counter[str] = Counter()
    characters: Counter[str] = Counter()
    first: dict[str, str] = {}
    times = [1]  # of each block that is open
    pending: int | None = None  # the pragma above: as often as it says, 0 for all
    for line in map(str.strip, body.splitlines()):
        pragma = _PRAGMA.match(line)
        if pragma is not None:
            pending = int(pragma[1] or 0)
            continue
        here = times[-1] * _iterations(line, pending)
        if line:
            pending = None
        statement = line.strip("{} ")
        if len(statement) > 1:
            key = _NUMBER.sub("#", _NAMED.sub("#", statement))
            first.setdefault(key, statement)
            copies[key] += here
            characters[key] += here * len(statement)
        for brace in re.findall(r"[{}]", line):
            if brace == "{":
                times.append(here)
            elif len(times) > 1:
                times.pop()
    total = characters.total()
    key = max(characters, key=characters.__getitem__, default="")
    return TextSize(total, Repeated(first.get(key, ""), copies[key], characters[key]))


def _iterations(line: str, pending: int | None) -> int:
    """How often the loop that a line opens is written, unrolled; 1 for any other line."""
    loop = _LOOP.search(line)
    if loop is None:
        return 1
    start = int(loop[2]) if loop[2].isdigit() else 0
    count = max(1, -(-(int(loop[3]) - start) // int(loop[4] or 1)))
    if pending is None:
        return count if count <= _SHORT and loop[2].isdigit() else 1
    return min(pending, count) if pending else count
