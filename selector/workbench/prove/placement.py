"""Where a rule puts values: moves between memories, and what a tensor unit does.

At a lane a ``Move``, a ``TileRead`` and a ``TileFill`` are what they hold, so that values say
nothing of them. A rule leaves moves as they are, but that a store into a unit, the sum with a
product there and a load out of it become its own fill, instruction and read, each of the dense
run of memory that is its accumulator.
"""

from __future__ import annotations

from collections.abc import Iterator

from selector.dataclass import dataclass
from selector.workbench.prove.context import Arg, Cls, Context, Node
from selector.workbench.prove.goals import Goals
from selector.workbench.prove.sizes import number

_MEMORY = "mem"
_MULTIPLY, _FILL, _READ = "MultiplyAdd", "TileFill", "TileRead"
_PLACED = ("Move", _MULTIPLY, _FILL, _READ)


@dataclass(frozen=True, slots=True)
class Stored:
    """A statement."""

    buffer: str
    index: Cls
    value: Cls
    predicate: Cls


@dataclass(frozen=True, slots=True)
class Placement:
    """What premises say of places, and the goals about them."""

    context: Context
    goals: Goals

    def united(self, a: Cls, b: Cls) -> None:
        """Two terms are where they were, or the second one reads what the first one loads."""
        reads = self._new(a, b, _READ)
        for read in reads:
            self._read(a, _of(read.args[0]))
        if not reads:
            self._stays(a, b)

    def stored(self, old: Stored, new: Stored) -> None:
        """A store into a unit is its fill or its instruction, any other one as it was."""
        fills, sums = (self._new(old.value, new.value, name) for name in (_FILL, _MULTIPLY))
        for fill in fills:
            self._moved(old.value, _of(fill.args[0]), into_memory=False)
        for instruction in sums:
            self._instruction(old, instruction)
        if fills or sums:
            self._run(new.index)
            always = bool(self.context.having(new.predicate, "Always"))
            self.goals.demand(always, "a predicate that always holds")
        else:
            self._stays(old.value, new.value)

    def _new(self, a: Cls, b: Cls, name: str) -> list[Node]:
        """What the second class does there, and the first one does not."""
        known = {self._key(n) for n in self.context.having(a, name)}
        return [n for n in self.context.having(b, name) if self._key(n) not in known]

    def _key(self, node: Node) -> tuple[str | Cls, ...]:
        """What a node does in which place, and with what value or accumulator."""
        context = self.context
        match node.name, node.args:
            case "Move", (str(source), str(target), int(value)):
                return context.string(source), context.string(target), context.find(value)
            case "MultiplyAdd", (str(f), _, _, _, int(accumulator), *_):
                return node.name, context.string(f), context.find(accumulator)
            case name, (int(value),):
                return name, context.find(value)
            case name, _:
                raise AssertionError(name)

    def _read(self, e: Cls, what: Cls) -> None:
        """A tile is read where its accumulator is moved to memory."""
        self._moved(e, what, into_memory=True)
        for load in self.context.having(what, "Load"):
            self._run(_of(load.args[2]))
        self.goals.demand(bool(self.context.having(what, "Load")), "an accumulator that is loaded")

    def _moved(self, e: Cls, what: Cls, *, into_memory: bool) -> None:
        """A class is something else, moved between memory and a unit."""
        moves = self.context.having(e, "Move")
        ends = 0 if into_memory else 1
        found = any(
            self.context.find(_of(n.args[2])) == self.context.find(what)
            and self.context.string(str(n.args[1 - ends])) == _MEMORY
            and self.context.strings.are_different(str(n.args[ends]), _MEMORY)
            for n in moves
        )
        way = "from a unit to memory" if into_memory else "from memory to a unit"
        self.goals.demand(found, f"a move {way}")

    def _instruction(self, store: Stored, node: Node) -> None:
        """What a tensor unit does is done where its accumulator lives, on what is stored."""
        context = self.context
        places = {context.string(str(n.args[1])) for n in context.having(store.value, "Move")}
        name, accumulator = context.string(str(node.args[0])), _of(node.args[4])
        homes = {context.string(u.location) for u in context.target.units
                 if context.string(u.name) == name}  # fmt: skip
        self.goals.demand(bool(places & homes), "an instruction of that location")
        loads = [n.args[1:3] for n in context.having(accumulator, "Load")]
        in_place = any(
            context.string(str(b)) == context.string(store.buffer)
            and context.find(_of(i)) == context.find(store.index)
            for b, i in loads
        )
        self.goals.demand(in_place, "an accumulator that is what is stored")

    def _run(self, index: Cls) -> None:
        """An index walks elements side by side."""
        is_run = any(
            self.context.literal(_of(n.args[1])) == number(1)
            and self.context.lane_count(_of(n.args[0])) == number(1)
            for n in self.context.having(index, "Ramp")
        )
        self.goals.demand(is_run, "an accumulator that is one dense run")

    def _stays(self, a: Cls, b: Cls) -> None:
        kept = set(self._below(a)) == set(self._below(b))
        self.goals.demand(kept, "moves and what units do as they are")

    def _below(self, e: Cls) -> Iterator[tuple[str | Cls, ...]]:
        """The keys of the moves, and of what units do, within a class."""
        waiting, seen = [e], set[Cls]()
        while waiting:
            e = self.context.find(waiting.pop())
            if e in seen:
                continue
            seen.add(e)
            for node in self.context.nodes.get(e, ()):
                waiting += [arg for arg in node.args if isinstance(arg, int)]
                if node.name in _PLACED:
                    yield self._key(node)


def _of(arg: Arg) -> Cls:
    assert isinstance(arg, int)
    return arg
