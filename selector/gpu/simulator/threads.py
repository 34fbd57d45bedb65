"""The threads of a kernel, as few as its conditions tell apart."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from selector.dataclass import dataclass
from selector.gpu.ir.expressions import THREAD, THREAD_OF_GROUP
from selector.gpu.ir.nodes import Kernel, Memory, Node, expressions, walk
from selector.gpu.simulator.worlds import World
from selector.ir.nodes import Compare, CompareOp, Expr, IntImm, Var
from selector.ir.traverse import walk_expr

WARP, GROUP = 32, 128
KNOWN, FENCED, TOLD = range(3)  # rows of a clock: what somebody knows of, of that the copy engine
ROWS = 3  # can see, of what has been done to tensor memory

Clock = npt.NDArray[np.int64]


class Values(dict[Any, int]):
    """Of an agent's variables. What is given and does not follow from them is assumed in the
    world.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world.flags)
        self.world = world

    def __missing__(self, key: str | Expr) -> int:
        if isinstance(key, str):
            raise KeyError(key)
        return self.world.assumed(key)


@dataclass(slots=True)
class Issued:
    """What a thread has asked of wgmma: the fragments of instructions that are of no group yet, the
    clock of each group and its fragments, and how many are complete.
    """

    open: set[str] = field(default_factory=set[str])
    clocks: list[Clock] = field(default_factory=list[Clock])
    groups: list[frozenset[str]] = field(default_factory=list[frozenset[str]])
    complete: int = 0
    component: int = 0  # of the clocks: for all threads of the group


@dataclass(slots=True)
class Queue:
    """Of asynchronous work that a thread has asked for: the component of the clocks that says how
    much is complete, how much there is, and how much when each group was committed.
    """

    component: int = 0
    asked: int = 0
    groups: list[int] = field(default_factory=list[int])

    def ask(self) -> int:
        """The number of one more."""
        self.asked += 1
        return self.asked

    def commit(self) -> None:
        self.groups.append(self.asked)

    def complete(self, pending: int) -> int:
        """How much is once all groups but the last are."""
        return self.groups[-1 - pending] if len(self.groups) > pending else 0


@dataclass(frozen=True, slots=True)
class Queues:
    """Those of a thread; ``products`` and ``loads`` are of tensor memory."""

    copies: Queue = field(default_factory=Queue)
    stores: Queue = field(default_factory=Queue)
    products: Queue = field(default_factory=Queue)
    loads: Queue = field(default_factory=Queue)


@dataclass(frozen=True, slots=True)
class Places:
    """What names of a thread stand for: the bytes at which descriptors begin, and memories."""

    descriptors: dict[str, int] = field(default_factory=dict[str, int])
    memories: dict[str, Memory] = field(default_factory=dict[str, Memory])


@dataclass(slots=True)
class Agent:
    """Neighbouring threads of a warp that go the same way, ``first`` to ``last``."""

    block: int
    first: int
    last: int
    values: Values
    number: int = 0
    clock: Clock = field(default_factory=lambda: np.zeros((ROWS, 0), np.int64))
    met: Clock = field(default_factory=lambda: np.zeros((ROWS, 0), np.int64))  # since its warp met
    queues: Queues = field(default_factory=Queues)
    matrix: Issued = field(default_factory=Issued)
    places: Places = field(default_factory=Places)
    ready: Callable[[], bool] | None = lambda: True  # to go on; None: it has ended
    waits: Node | None = None

    def __post_init__(self) -> None:
        self.place(self.first)

    @property
    def threads(self) -> int:
        return self.last - self.first + 1

    @property
    def over(self) -> bool:
        return self.ready is None

    @property
    def time(self) -> int:
        """Its own."""
        return int(self.clock[KNOWN, self.number])

    def tick(self) -> None:
        """What follows is known to nobody who knows of what was."""
        self.clock[KNOWN, self.number] += 1

    def learn(self, clock: Clock) -> None:
        """Know what others know."""
        self.clock = np.maximum(self.clock, clock)

    def place(self, thread: int) -> None:
        """Take the place of one of the threads."""
        self.values.update(
            {
                THREAD.name: thread,
                "lane": thread % WARP,
                "warp": thread // WARP,
                "group": thread // GROUP,
            }
        )

    @contextmanager
    def as_last(self) -> Generator[None]:
        self.place(self.last)
        yield
        self.place(self.first)

    def each(self) -> Iterator[int]:
        """Its threads, one after the other."""
        for thread in range(self.first, self.last + 1):
            self.place(thread)
            yield thread
        self.place(self.first)


def agents_of(kernel: Kernel, world: World, barriers: int) -> list[Agent]:
    """All threads of all blocks of a cluster, with clocks that have a component for each, for its
    copies, its stores and its group's instructions, and for so many barriers, which come last.
    """
    cuts = _cuts(kernel)
    ranges = [(a, b - 1) for a, b in pairwise(cuts)]
    found: list[Agent] = []
    for block in range(kernel.cluster):
        place = {"blockIdx.x": block, "gridDim.x": kernel.cluster, "cluster_rank": block}
        for first, last in ranges:
            agent = Agent(block, first, last, Values(world))
            agent.values.update(place)
            found.append(agent)
    groups = -(-kernel.threads // GROUP)
    size = 5 * len(found) + groups * kernel.cluster + barriers
    for number, agent in enumerate(found):
        agent.number = number
        agent.queues.copies.component = len(found) + number
        agent.queues.stores.component = 2 * len(found) + number
        agent.queues.products.component = 3 * len(found) + number
        agent.queues.loads.component = 4 * len(found) + number
        agent.matrix.component = 5 * len(found) + agent.block * groups + agent.first // GROUP
        agent.clock = np.zeros((ROWS, size), np.int64)
        agent.clock[KNOWN, number] = 1
        agent.met = agent.clock.copy()
    return found


def _cuts(kernel: Kernel) -> list[int]:
    """Where threads begin that a condition may tell from those before."""
    warps = range(0, kernel.threads, WARP)
    cuts = {*warps, kernel.threads}
    for e in _all(kernel):
        match e:
            case Compare(CompareOp.EQ, Var(THREAD.name), IntImm(thread)):
                cuts |= {thread, thread + 1}
            case Var("lane"):
                cuts |= {start + 1 for start in warps}
            case _ if e == THREAD_OF_GROUP:
                groups = range(0, kernel.threads, GROUP)
                cuts |= {start + n + 1 for start in groups for n in range(kernel.cluster)}
            case _:
                pass
    return sorted(cut for cut in cuts if cut <= kernel.threads)


def _all(kernel: Kernel) -> Iterator[Expr]:
    for node in walk(kernel.body):
        for e in expressions(node):
            yield from walk_expr(e)
