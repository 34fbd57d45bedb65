"""What neighbouring threads write together, each for itself: loops and conditions that only single
threads go through, run for all of them at once.

Bytes are counted in chunks of 16; a set of chunks is an integer, bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import cache
from typing import Any

import numpy as np

from selector.dataclass import dataclass
from selector.diagnostics import InternalError
from selector.gpu.ir.expressions import THREAD
from selector.gpu.ir.layouts import CHUNK, GROUP_ROWS
from selector.gpu.ir.memory import CopyRun
from selector.gpu.ir.nodes import Body, For, If, Leave, Node, Read, Touch, expressions, walk
from selector.gpu.ir.values import asked, values_of
from selector.gpu.simulator.threads import GROUP, WARP, Agent
from selector.ir.nodes import Expr


@dataclass(slots=True)
class Moves:
    """The chunks that threads store, those of which they store some bytes, and those that are
    copied for them; of runs of the copy engine how many there are and which chunks, by the address
    of their barrier.
    """

    stored: int = 0
    parts: int = 0
    copied: int = 0
    runs: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])


_ALL = (1 << CHUNK) - 1


def of_range(start: int, end: int) -> int:
    """The chunks of bytes from ``start`` to before ``end``."""
    first, last = start // CHUNK, -(-end // CHUNK)
    return ((1 << (last - first)) - 1) << first if last > first else 0


@cache
def _read(step: int, matrices: tuple[int, ...]) -> int:
    bits = 0
    for start in matrices:
        for row in range(GROUP_ROWS):
            bits |= 1 << (start + row * step) // CHUNK
    return bits


def of_read(node: Read, start: int) -> int:
    """The chunks that ``ldmatrix`` reads from rows that begin at an address."""
    return _read(node.step, node.matrices) << start // CHUNK


class Lanes:
    """Of one kernel: what threads do is kept, by what they ask for."""

    def __init__(self) -> None:
        self.kept: dict[tuple[object, ...], Moves] = {}
        self.asked: dict[int, tuple[str | Expr, ...]] = {}

    def moves(self, agent: Agent, node: Node) -> Moves:
        """What an agent's threads do in a node."""
        names = self.asked.get(id(node))
        if names is None:
            names = self.asked[id(node)] = tuple(sorted(_names(node), key=str))
        values = agent.values
        key = (id(node), agent.first, agent.last, *[values[name] for name in names])
        found = self.kept.get(key)
        if found is None:
            given = dict(zip(names, key[3:], strict=True))
            found = self.kept[key] = _Lanes(agent, given).moves(node)
        return found


def _names(node: Node) -> Iterator[str | Expr]:
    """Those that a node asks for, but for those it declares and the threads' places."""
    own = {THREAD.name, "lane", "warp", "group"}
    own |= {x.var for x in walk((node,)) if isinstance(x, For)}
    found = {n for x in walk((node,)) for e in expressions(x) for n in asked(e)}
    return iter(found - own)


class _Lanes:
    """Some threads, and the ``values`` of names: numbers, or arrays of one for each thread."""

    def __init__(self, agent: Agent, values: dict[Any, Any]) -> None:
        thread = np.arange(agent.first, agent.last + 1)
        place = {"lane": thread % WARP, "warp": thread // WARP, "group": thread // GROUP}
        self.values: dict[Any, Any] = {**values, THREAD.name: thread, **place}
        self.shape = thread.shape
        self.found = Moves()
        self.some: dict[int, int] = {}  # the bytes that are stored, bit by bit, of such chunks

    def moves(self, node: Node) -> Moves:
        self.body((node,), np.ones(self.shape, bool))
        whole = sum(1 << chunk for chunk, found in self.some.items() if found == _ALL)
        self.found.stored |= whole
        self.found.parts = sum(1 << chunk for chunk in self.some) & ~self.found.stored
        return self.found

    def value(self, e: Expr) -> Any:
        return np.broadcast_to(values_of(e)(self.values), self.shape)

    def body(self, body: Body, here: Any) -> tuple[Any, Any]:
        """Run it for the threads that are ``here``: those that go on after it, those that leave the
        loop around.
        """
        over = np.zeros(self.shape, bool)
        for node in body:
            if not here.any():
                break
            match node:
                case Leave("loop"):
                    return np.zeros(self.shape, bool), over | here
                case Leave():
                    return np.zeros(self.shape, bool), over
                case If(condition, then, otherwise):
                    holds = self.value(condition).astype(bool)
                    first, left = self.body(then, here & holds)
                    second, away = self.body(otherwise, here & ~holds)
                    here, over = first | second, over | left | away
                case For():
                    self.loop(node, here)
                case Touch(how, at, bytes_, wanted):
                    self.touch(how, self.value(at)[self.wanted(here, wanted)], bytes_)
                case CopyRun(to, _, bytes_, barrier):
                    self.run(*(self.value(e)[here] for e in (to, bytes_, barrier)))
                case _:
                    raise InternalError(f"{node} is not what single threads do")
        return here, over

    def loop(self, node: For, here: Any) -> None:
        assert node.start is not None
        self.values[node.var] = self.value(node.start)
        while True:
            here = here & (self.values[node.var] < self.value(node.stop))
            if not here.any():
                return
            _, over = self.body(node.body, here)
            here = here & ~over
            step = 1 if node.step is None else self.value(node.step)
            self.values[node.var] = self.values[node.var] + step

    def wanted(self, here: Any, condition: Expr | None) -> Any:
        return here if condition is None else here & self.value(condition).astype(bool)

    def touch(self, how: str, at: Any, bytes_: int) -> None:
        bits = 0
        starts = np.unique(at).tolist()
        if bytes_ < CHUNK:
            for start in starts:
                own = ((1 << bytes_) - 1) << start % CHUNK
                self.some[start // CHUNK] = self.some.get(start // CHUNK, 0) | own
            return
        for start in starts:
            bits |= of_range(start, start + bytes_)
        if how == "copied":
            self.found.copied |= bits
        else:
            self.found.stored |= bits

    def run(self, to: Any, bytes_: Any, barrier: Any) -> None:
        for start, length, at in zip(to.tolist(), bytes_.tolist(), barrier.tolist(), strict=True):
            count, bits = self.found.runs.get(at, (0, 0))
            self.found.runs[at] = count + 1, bits | of_range(start, start + length)
