"""How large the text of a program is once its loops are unrolled, and what makes it so: measured as
it is printed, by the nodes that its lines are from (``runtime.plan.TextSize`` says what for).

A loop counts as often as NVRTC writes it: one that is unrolled as often as it runs, and so a short
one that is left to the compiler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from operator import itemgetter, mul
from typing import TypeVar

from selector.dataclass import dataclass
from selector.diagnostics import Where
from selector.gpu.codegen.scalars.names import identifier
from selector.gpu.cuda.printer import Printed
from selector.gpu.ir.nodes import Comment, For, Let, Node
from selector.gpu.ir.views import View
from selector.ir.contents import loaded, nodes_of
from selector.ir.module import Module
from selector.ir.nodes import Allocate, IntImm, Role, Store, Var
from selector.ir.traverse import walk_stmt
from selector.runtime.plan import AT_ONCE, Part, TextSize

T = TypeVar("T", bound=Hashable)

_SHORT = 16  # iterations of a loop that NVRTC unrolls by itself
_BRACKETS = " {}"  # of blocks, with what is before them
_NO_DIGITS = str.maketrans("", "", "0123456789")


def text_size(texts: Iterable[Printed], module: Module) -> TextSize:
    """Of the kernels of a program."""
    texts = tuple(texts)
    times = [_times(text) for text in texts]
    lengths = ([len(line.strip(_BRACKETS)) for line in text.lines] for text in texts)
    characters = sum(sum(map(mul, n, each)) for n, each in zip(times, lengths, strict=True))
    size = TextSize(characters, sum(len(text.loops) for text in texts))
    if size.seconds <= AT_ONCE:
        return size
    return replace(size, largest=_largest(zip(texts, times, strict=True), _places(module)))


def _times(text: Printed) -> list[int]:
    """How often each line is written, unrolled; a pragma is none."""
    times = [1] * len(text.lines)
    for first, end, loop in text.loops:
        if loop.how != "plain":
            times[first - 1] = 0
        if (n := _iterations(loop)) != 1:
            times[first:end] = [n * before for before in times[first:end]]
    return times


def _iterations(loop: For) -> int:
    """How often NVRTC writes a loop's body."""
    if not isinstance(loop.stop, IntImm) or loop.start is None or loop.also is not None:
        return 1
    if loop.how == "rolled" or not (loop.step is None or isinstance(loop.step, IntImm)):
        return 1
    start = loop.start.value if isinstance(loop.start, IntImm) else 0
    step = 1 if loop.step is None else loop.step.value
    count = max(1, -(-(loop.stop.value - start) // step))
    match loop.how:
        case "plain":
            return count if count <= _SHORT and isinstance(loop.start, IntImm) else 1
        case "fours":
            return min(4, count)
        case _:
            return count


@dataclass(frozen=True, slots=True)
class _Lines:
    """Those of a node from the ``first`` on, and how often they are written; ``place``: the name of
    a Func and its stage, where it is known.
    """

    place: tuple[str, str]
    text: Printed
    first: int
    copies: int
    characters: int

    @property
    def statement(self) -> str:
        return self.text.lines[self.first].strip()

    @property
    def loops(self) -> tuple[str, ...]:
        """The unrolled ones around them, outer ones first."""
        around = (x for x in self.text.loops if x[0] < self.first < x[1] and _iterations(x[2]) > 1)
        return tuple(loop.var for _, _, loop in sorted(around, key=itemgetter(0)))


def _largest(texts: Iterable[tuple[Printed, list[int]]], places: dict[str, Where]) -> Part:
    """What most of some texts is for, and of that the statement, up to numbers in it, that has
    most characters: its first copy, copies and characters in all. What is for no Func that is known
    is for the one that its kernel is named by.
    """
    found = [lines for text, times in texts for lines in _owned(text, times, places)]
    name, stage = most = _most((x.place, x.characters) for x in found)
    forms = [(x.statement.translate(_NO_DIGITS), x) for x in found if x.place == most]
    longest = _most((form, x.characters) for form, x in forms)
    same = [x for form, x in forms if form == longest]
    place = places.get(name, Where(name))
    place = replace(place, stage=stage or place.stage, statement=same[0].statement[:200])
    copies, characters = sum(x.copies for x in same), sum(x.characters for x in same)
    return Part(place, same[0].loops, copies, characters)


def _most(items: Iterable[tuple[T, int]]) -> T:
    """What has the largest sum."""
    sums: Counter[T] = Counter()
    for key, n in items:
        sums[key] += n
    return max(sums, key=sums.__getitem__)


def _owned(text: Printed, times: list[int], places: dict[str, Where]) -> Iterator[_Lines]:
    """The lines of each node: for what the last one that says so writes. Names in a kernel begin
    with those of the program, and those of loops with Func and stage.
    """
    known = cache(partial(_known, places=places))
    kernel = text.kernel.name.removeprefix("kernel_")
    name, stages = known(kernel) or kernel, dict[str, str]()
    sizes = [n * len(line.strip(_BRACKETS)) for n, line in zip(times, text.lines, strict=True)]
    ends = (*(first for first, _ in text.nodes), len(text.lines))
    for (first, end), (_, node) in zip(pairwise(ends), text.nodes, strict=True):
        if first == end:  # what it stands under is on its line, too
            continue
        written = _written(node)
        if func := known(written):
            name = func
            stage = written[len(func) + 1 :].partition("_")[0]
            if stage[:1] == "s" and stage[1:].isdigit():
                stages[func] = "update" if int(stage[1:]) else "init"
        yield _Lines((name, stages.get(name, "")), text, first, times[first], sum(sizes[first:end]))


def _known(name: str, places: dict[str, Where]) -> str:
    """The longest of the Funcs' names that one of a kernel begins with."""
    return max((n for n in places if name == n or name.startswith(f"{n}_")), key=len, default="")


def _written(node: Node) -> str:
    """The name of what a node sets, if it says so."""
    match node:
        case For(var=name) | Let(names=(name, *_)):
            return name
        case Comment(text):
            return text.partition(" ")[0].rstrip(":")
        case _:
            to = getattr(node, "to", None) or getattr(node, "of", None)
    match to:
        case str():
            return to
        case View(memory):
            return memory
        case None:
            return ""
        case _:
            return next((v.name for v in nodes_of(to, Var)), "")


def _places(module: Module) -> dict[str, Where]:
    """The Funcs that a module stores, by the begins of their names in kernels, as the user knows
    them; with the stage that most of their text is for where it does not say.
    """
    stores = [s for s in walk_stmt(module.body) if isinstance(s, Store)]
    updated = {s.buffer for s in stores if s.buffer in loaded(s.value)}
    stored = [s.name for s in walk_stmt(module.body) if isinstance(s, Allocate)]
    stored += [b.name for b in module.buffers if b.role is Role.OUTPUT]
    known = {o.name: Where(o.func, location=o.location) for o in module.origins}
    return {
        identifier(name): replace(
            known.get(name, Where(name)), stage="update" if name in updated else "init"
        )
        for name in stored
    }
