"""How large the text of a kernel is once its loops are unrolled, and what makes it so.

NVRTC's time grows with that, and cannot be stopped in this process: what is known to be small is
compiled here, the rest where it can be ended (``nvrtc``). The text is read line by line, as the
emitters write it: a loop with ``#pragma unroll`` counts as often as it runs, and so does a short
one without, as NVRTC takes it.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from selector.diagnostics import Where
from selector.ir.nodes import Allocate, Module, Role
from selector.ir.traverse import walk_stmt

_LOOP = re.compile(r"for \(int (\w+) = ([^;]+); \1 < (\d+); (?:\+\+\1|\1 \+= (\d+))\)")
_PRAGMA = re.compile(r"#pragma unroll(?: (\d+))?$")
_NUMBER = re.compile(r"\b\d+\b")
_NAMED = re.compile(r"(?<=[A-Za-z])_?\d+\b")
_WORD = re.compile(r"[A-Za-z_]\w*")
_BEFORE = 8  # lines above a statement that may say what its pointers point to
_SHORT = 16  # iterations of a loop that NVRTC unrolls by itself


@dataclass(frozen=True, slots=True)
class Repeated:
    """A line that occurs often, up to numbers in it: how often, unrolled, and characters in all;
    the lines above its first copy, nearest first, and the loops of the text that repeat it."""

    line: str
    copies: int
    characters: int
    above: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()

    def name(self, known: Iterable[str]) -> str:
        """The first of the known names that the line speaks of, or else one of those above it;
        empty if none does. Emitted names begin with those of the program."""
        names = sorted(known, key=len, reverse=True)
        for line in (self.line, *self.above):
            for word in _WORD.findall(line):
                found = (n for n in names if word == n or word.startswith(f"{n}_"))
                if name := next(found, ""):
                    return name
        return ""


@dataclass(frozen=True, slots=True)
class TextSize:
    """Characters of all kernels of a source with loops unrolled, loops that stand in it, and the
    line that has most characters.
    """

    characters: int
    loops: int
    largest: Repeated


def unrolled_size(source: str) -> TextSize:
    """Read the kernels of a source; what stands before the first one is not counted."""
    body = source.partition("__global__")[2]
    copies: Counter[str] = Counter()
    characters: Counter[str] = Counter()
    first: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {}
    times = [1]  # of each block that is open
    loops: list[str] = [""]  # the loop that opens each of them, where it is unrolled
    before: deque[str] = deque(maxlen=_BEFORE)
    written = 0
    pending: int | None = None  # the pragma above: as often as it says, 0 for all
    for line in map(str.strip, body.splitlines()):
        pragma = _PRAGMA.match(line)
        if pragma is not None:
            pending = int(pragma[1] or 0)
            continue
        loop = _LOOP.search(line)
        written += line.startswith("for (")
        here = times[-1] * _iterations(loop, pending)
        if line:
            pending = None
        statement = line.strip("{} ")
        if len(statement) > 1:
            key = _NUMBER.sub("#", _NAMED.sub("#", statement))
            if key not in first:
                around = tuple(name for name in loops if name)
                first[key] = statement, tuple(reversed(before)), around
            before.append(statement)
            copies[key] += here
            characters[key] += here * len(statement)
        for brace in re.findall(r"[{}]", line):
            if brace == "{":
                loops.append(loop[1] if loop and here > times[-1] else "")
                times.append(here)
            elif len(times) > 1:
                times.pop()
                loops.pop()
    total = characters.total()
    key = max(characters, key=characters.__getitem__, default="")
    line, above, around = first.get(key, ("", (), ()))
    return TextSize(total, written, Repeated(line, copies[key], characters[key], above, around))


def _iterations(loop: re.Match[str] | None, pending: int | None) -> int:
    """How often the loop that a line opens is written, unrolled; 1 for a line that opens none."""
    if loop is None:
        return 1
    start = int(loop[2]) if loop[2].isdigit() else 0
    count = max(1, -(-(int(loop[3]) - start) // int(loop[4] or 1)))
    if pending is None:
        return count if count <= _SHORT and loop[2].isdigit() else 1
    return min(pending, count) if pending else count


def funcs_of(module: Module) -> dict[str, Where]:
    """The Funcs that a module stores, by their names in the source, as the user knows them."""
    stored = [s.name for s in walk_stmt(module.body) if isinstance(s, Allocate)]
    stored += [b.name for b in module.buffers if b.role is Role.OUTPUT]
    known = {o.name: Where(o.func, location=o.location) for o in module.origins}
    return {name: known.get(name, Where(name)) for name in stored}
