"""How large the text of a kernel is once its loops are unrolled, and what makes it so.

NVRTC's time grows with that, and cannot be stopped in this process: what is known to take little is
compiled here, the rest where it can be ended (``nvrtc``). The text is read line by line, as the
emitters write it: a loop with ``#pragma unroll`` counts as often as it runs, and so does a short
one without, as NVRTC takes it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from selector.dataclass import dataclass
from selector.diagnostics import Where
from selector.ir.contents import loaded
from selector.ir.module import Module
from selector.ir.nodes import Allocate, Role, Store
from selector.ir.traverse import walk_stmt

SECONDS, A_CHARACTER, A_LOOP = 0.2, 9e-6, 5.5e-7
"""NVRTC's time for an empty kernel, for a character, and for a character and each loop of a text:
loops that stand one after the other are compared with each other.

Of 269 programs (60 of the case studies and the corpus, 209 drawn) those foretold to take up to 2 s
all took less than that. One drawn program took ten times as long: 68 loops, each around a
long select between barriers, 28 s of a foretold 2.7. So a text that is foretold 2 s may take 20.
"""
_KERNEL = re.compile(r"\bvoid\b.*\bkernel_(\w+)\(")
_LOOP = re.compile(r"for \(int (\w+) = ([^;]+); \1 < (\d+); (?:\+\+\1|\1 \+= (\d+))\)")
_PRAGMA = re.compile(r"#pragma unroll(?: (\d+))?$")
_NUMBER = re.compile(r"\b\d+\b")
_NAMED = re.compile(r"(?<=[A-Za-z])_?\d+\b")
_WORD = re.compile(r"[A-Za-z_]\w*")
_STAGE = re.compile(r"s(\d+)_")
_WRITTEN = re.compile(
    r"// (\w+)"  # what instructions follow for
    r"|for \(int (\w+)"
    r"|const int (\w+) ="
    r"|(?!const )[\w ]+\* (?:const )?\w+ = (\w+)"  # where elements go
    r"|(?:if \(.*?\) |\w+\()?(\w+)\["  # an element, or the accumulator of an instruction
)
_SHORT = 16  # iterations of a loop that NVRTC unrolls by itself


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a text: how often, unrolled, and the loops that repeat it."""

    text: str
    copies: int
    loops: tuple[str, ...]

    @property
    def characters(self) -> int:
        """Of all copies."""
        return self.copies * len(self.text)


@dataclass(frozen=True, slots=True)
class Largest:
    """The Func and stage that most of a text is for, and of that the line, up to numbers in it,
    that has most characters: its first copy, copies and characters in all.
    """

    func: str
    stage: str
    line: Line
    copies: int
    characters: int


@dataclass(frozen=True, slots=True)
class TextSize:
    """The lines of all kernels of a source, and the loops that stand in it."""

    lines: tuple[Line, ...]
    loops: int

    @property
    def characters(self) -> int:
        """With loops unrolled."""
        return sum(line.characters for line in self.lines)

    @property
    def seconds(self) -> float:
        """What NVRTC is foretold to take."""
        return SECONDS + self.characters * (A_CHARACTER + A_LOOP * self.loops)

    def largest(self, funcs: Iterable[str] = ()) -> Largest:
        """What most of the text is for. ``funcs``: names to look for; what none is found for is for
        the Func that its kernel is named by.
        """
        owned = list(_owned(self.lines, funcs))
        parts: Counter[tuple[str, str]] = Counter()
        for owner, line in owned:
            parts[owner] += line.characters
        most = max(parts, key=parts.__getitem__, default=("", ""))
        copies: Counter[str] = Counter()
        characters: Counter[str] = Counter()
        first: dict[str, Line] = {}
        for line in (line for owner, line in owned if owner == most):
            key = _NUMBER.sub("#", _NAMED.sub("#", line.text))
            first.setdefault(key, line)
            copies[key] += line.copies
            characters[key] += line.characters
        key = max(characters, key=characters.__getitem__, default="")
        return Largest(*most, first.get(key, Line("", 0, ())), copies[key], characters[key])


def _owned(lines: Iterable[Line], funcs: Iterable[str]) -> Iterator[tuple[tuple[str, str], Line]]:
    """Each line with the Func and the stage that it is for: that of the last line that says what it
    writes. Emitted names begin with those of the program, and loops with Func and stage.
    """
    names = {re.sub(r"\W+", "_", name): name for name in sorted(funcs, key=len, reverse=True)}

    def known(word: str) -> str:
        return next((n for n in names if word == n or word.startswith(f"{n}_")), "")

    func, stages = "", dict[str, str]()
    for line in lines:
        if kernel := _KERNEL.search(line.text):
            func, stages = names.get(known(kernel[1]), kernel[1]), {}
        for word in _WORD.findall(line.text):
            stage = _STAGE.match(word, len(known(word)) + 1)
            if known(word) and stage is not None:
                stages[names[known(word)]] = "update" if int(stage[1]) else "init"
        written = _WRITTEN.match(line.text)
        if written is not None and (name := known(next(filter(None, written.groups())))):
            func = names[name]
        yield (func, stages.get(func, "")), line


def unrolled_size(source: str) -> TextSize:
    """Read the kernels of a source; what stands before the first one is not counted."""
    lines: list[Line] = []
    times = [1]  # of each block that is open
    loops: list[str] = [""]  # the loop that opens each of them, where it is unrolled
    written = 0
    pending: int | None = None  # the pragma above: as often as it says, 0 for all
    for line in map(str.strip, source.partition("__global__")[2].splitlines()):
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
            lines.append(Line(statement, here, tuple(name for name in loops if name)))
        for brace in re.findall(r"[{}]", line):
            if brace == "{":
                loops.append(loop[1] if loop and here > times[-1] else "")
                times.append(here)
            elif len(times) > 1:
                times.pop()
                loops.pop()
    return TextSize(tuple(lines), written)


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
    """The Funcs that a module stores, by their names in the source, as the user knows them; with
    the stage that most of their text is for where it does not say.
    """
    stores = [s for s in walk_stmt(module.body) if isinstance(s, Store)]
    updated = {s.buffer for s in stores if s.buffer in loaded(s.value)}
    stored = [s.name for s in walk_stmt(module.body) if isinstance(s, Allocate)]
    stored += [b.name for b in module.buffers if b.role is Role.OUTPUT]
    known = {o.name: Where(o.func, location=o.location) for o in module.origins}
    places = {name: known.get(name, Where(name)) for name in stored}
    return {
        name: replace(place, stage="update" if name in updated else "init")
        for name, place in places.items()
    }
