"""How the threads of a kernel meet, run without their data.

Every thread's way through the synchronising nodes of a kernel is followed, in all worlds: with and
without tensor maps, for loops of none to twice as many iterations as a pipeline has stages, the
last threads of a block first or the first ones, copies as late as possible or at once. Text says
nothing here. Found are

- threads that wait forever, and for whom;
- more arrivals at a barrier than its phase has, fewer at the end, bytes that nobody expects;
- waits that end because of the parity of another phase than the one that is meant;
- copies by who cannot know that all who wait have seen the phase before; phases that end by
  arrivals of who cannot, or before anybody waited for the one before;
- registers that instructions of wgmma have, touched before these are complete; memory that they
  read, written by the copy engine before its thread can know that they are;
- copies of the engine to where another one is under way, or those of another barrier go;
- barriers used by a thread that cannot know that they are made, or are no more; arrivals at a
  block of the cluster that may have ended.

What a thread can know is kept in clocks: how far each other one was at the last moment of which
this one knows through barriers (happens-before). Threads of a warp whose control is the same are
one; they are told apart where a condition does (``lane == 0``, ``threadIdx.x == 256``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import lru_cache, partial
from itertools import product

import numpy as np

from selector.gpu.ir.memory import EngineCopy
from selector.gpu.ir.nodes import (
    Arrive,
    Await,
    Body,
    Commit,
    Drain,
    Fence,
    For,
    Fused,
    If,
    Init,
    Kernel,
    Leave,
    Node,
    Retire,
    Sync,
    Under,
    walk,
)
from selector.gpu.ir.products import Busy, Pin
from selector.gpu.ir.text import line
from selector.gpu.simulator.barriers import Barrier, Meeting, place_of
from selector.gpu.simulator.matrix import Instructions
from selector.gpu.simulator.meeting import meeting_only
from selector.gpu.simulator.threads import Agent, Clock, agents_of
from selector.gpu.simulator.values import value_of
from selector.gpu.simulator.variables import assign, declared, start_of
from selector.gpu.simulator.worlds import World, worlds_of
from selector.ir.nodes import Expr

Way = Generator[Callable[[], bool], None, str]  # yields what it waits for; returns what it leaves
Place = tuple[int, int, int]  # a block, and bytes of its shared memory

MOST_STEPS = 1_000_000


def protocol_faults(kernel: Kernel) -> tuple[str, ...]:
    """What is wrong with the protocol of a kernel, in any world; nothing, as a rule."""
    return _faults(meeting_only(kernel))


@lru_cache(maxsize=1 << 10)
def _faults(kernel: Kernel) -> tuple[str, ...]:
    """Of a kernel that does nothing else: many programs meet alike."""
    if not any(isinstance(node, Init | Sync) for node in walk(kernel.body)):
        return ()
    found: dict[str, None] = {}
    for world, eager in product(worlds_of(kernel), (True, False)):
        found |= dict.fromkeys(_Run(kernel, world, eager).faults)
    return tuple(found)


class _Run:
    """One kernel in one world. ``eager``: the first threads first, and copies at once; else the
    last threads first, and copies when nothing else can go on.
    """

    def __init__(self, kernel: Kernel, world: World, eager: bool) -> None:
        self.kernel, self.world, self.eager = kernel, world, eager
        self.faults: dict[str, None] = {}
        self.body = (*kernel.declarations, *kernel.body)
        self.agents = agents_of(kernel, world)
        for number, agent in enumerate(self.agents):
            agent.number, agent.clock = number, self._nobody()
        self.barriers: list[dict[int, Barrier]] = [{} for _ in range(kernel.cluster)]
        self.instructions = Instructions(self.agents)
        self.meetings: dict[tuple[object, ...], Meeting] = {}
        self.under_way: list[Callable[[], None]] = []
        self.filled: dict[Place, tuple[Barrier, bool]] = {}  # for whom; whether it is under way
        self.steps = 0
        self._schedule()
        self._end()

    def _nobody(self) -> Clock:
        """The clock of who knows of nobody."""
        return np.zeros(len(self.agents), np.int64)

    # ------------------------------------------------------------------ schedule

    def _schedule(self) -> None:
        order = self.agents if self.eager else self.agents[::-1]
        ways = {a.number: self._body(a, self.body) for a in order}
        while True:
            agent = next((a for a in order if not a.over and a.ready()), None)
            if agent is None:
                if not self.under_way:
                    break
                self.under_way.pop(0)()
                continue
            try:
                agent.ready = next(ways[agent.number])
            except StopIteration:
                agent.over = True
            if self.steps > MOST_STEPS:
                self._fault("the kernel takes too many steps to be followed")
                break
        for agent in order:
            if not agent.over and agent.waits is not None:
                self._fault(f"waits forever: {line(agent.waits)}{self._why(agent)}")

    def _why(self, agent: Agent) -> str:
        match agent.waits:
            case Await(_, barrier, phase):
                b = self.barriers[agent.block].get(self._value(agent, barrier))
                if b is None:
                    return ""
                left = f"{b.arrivals - b.pending} of {b.arrivals} have arrived"
                return f" ({self._value(agent, phase)}): {left} in phase {b.done}"
            case _:
                return ""

    def _end(self) -> None:
        """What is left of barriers when all threads are over."""
        if self.faults:
            return
        for barriers in self.barriers:
            for b in barriers.values():
                if b.bytes:
                    self._fault(f"{abs(b.bytes)} bytes too {'few' if b.bytes > 0 else 'many'}")
                elif b.pending != b.arrivals:
                    arrived = b.arrivals - b.pending
                    self._fault(f"at the end {arrived} of {b.arrivals} arrivals of a phase")

    def _fault(self, text: str) -> None:
        self.faults.setdefault(text)

    # ------------------------------------------------------------------ control

    def _value(self, agent: Agent, e: Expr) -> int:
        return value_of(e)(agent.values)

    def _holds(self, agent: Agent, condition: Expr) -> bool:
        """For all threads of the agent alike."""
        test = value_of(condition)
        first = bool(test(agent.values))
        if agent.first != agent.last:
            with agent.as_last():
                if bool(test(agent.values)) != first:
                    self._fault(f"threads {agent.first} to {agent.last} part: {condition}")
        return first

    def _body(self, agent: Agent, body: Body) -> Way:
        outer = [(name, agent.values.get(name)) for name in declared(body)]
        left = ""
        for node in body:
            left = yield from self._node(agent, node)
            if left:
                break
        for name, value in outer:
            if value is None:
                agent.values.pop(name, None)
            else:
                agent.values[name] = value
        return left

    def _node(self, agent: Agent, node: Node) -> Way:
        self.steps += 1
        match node:
            case Under("", body) | Fused(body):
                return (yield from self._body(agent, body))
            case If(condition, then, otherwise):
                way = then if self._holds(agent, condition) else otherwise
                return (yield from self._body(agent, way))
            case For():
                return (yield from self._loop(agent, node))
            case Leave(what):
                return what
            case Await():
                yield from self._await(agent, node)
            case Sync():
                yield from self._sync(agent, node)
            case Pin(name):
                if self.instructions.have(agent, name):
                    self._fault(f"`{name}` is touched while instructions have it")
            case Drain("matrix", pending):
                agent.waits = node
                yield from self.instructions.drain(agent, len(agent.matrix.clocks) - pending)
                agent.waits = None
            case _:
                self._step(agent, node)
        return ""

    def _loop(self, agent: Agent, node: For) -> Way:
        v, outer = agent.values, agent.values.get(node.var)
        if node.start is not None:
            v[node.var] = self._value(agent, node.start)
        left = ""
        also = node.also
        while (not also or self._holds(agent, also)) and v[node.var] < self._value(
            agent, node.stop
        ):
            left = yield from self._body(agent, node.body)
            if left:
                break
            v[node.var] += 1 if node.step is None else self._value(agent, node.step)
        if node.start is not None:
            v.pop(node.var)
            if outer is not None:
                v[node.var] = outer
        return "" if left == "loop" else left

    def _step(self, agent: Agent, node: Node) -> None:
        """One that nobody waits at."""
        if assign(agent, node):
            return
        match node:
            case Init(barrier, arrivals):
                self._init(agent, self._value(agent, barrier), self._value(agent, arrivals))
            case Fence("barriers"):
                for b in self.barriers[agent.block].values():
                    b.announced |= b.maker == agent.number
            case Busy():
                self.instructions.issue(agent, node)
            case Commit("matrix"):
                self.instructions.commit(agent)
            case Retire():
                self._retire(agent, node)
            case Arrive():
                self._arrive(agent, node)
            case EngineCopy():
                self._copy(agent, node)
            case _:
                pass

    # ------------------------------------------------------------------ barriers

    def _init(self, agent: Agent, at: int, arrivals: int) -> None:
        if arrivals < 1:
            self._fault(f"a barrier of {arrivals} arrivals")
        agent.clock[agent.number] += 1
        made = int(agent.clock[agent.number])
        clocks = (self._nobody(), self._nobody(), self._nobody())
        b = Barrier(arrivals, agent.number, made, arrivals, *clocks)
        if at in self.barriers[agent.block]:
            self._fault("a barrier is made where there is one")
        self.barriers[agent.block][at] = b

    def _at(
        self, agent: Agent, node: Node, barrier: Expr, block: int | None = None
    ) -> Barrier | None:
        """The barrier that a thread means, if it is there and the thread can know that."""
        block = agent.block if block is None else block
        b = self.barriers[block].get(self._value(agent, barrier))
        if b is None:
            self._fault(f"no barrier is there: {line(node)}")
        elif agent.clock[b.maker] < b.made:
            self._fault(f"nobody told this thread that the barrier is made: {line(node)}")
        else:
            agent.clock[agent.number] += 1
            b.users[agent.number] = int(agent.clock[agent.number])
        return b

    def _see(self, clock: Clock, b: Barrier, node: Node) -> None:
        """Whether those of that clock know that all who wait have seen the phase before."""
        if (clock < b.waited).any():
            self._fault(f"others may not have seen the phase before: {line(node)}")

    def _retire(self, agent: Agent, node: Retire) -> None:
        b = self._at(agent, node, node.barrier)
        if b is None:
            return
        if any(agent.clock[number] < time for number, time in b.users.items()):
            self._fault(f"others may still use the barrier: {line(node)}")
        del self.barriers[agent.block][self._value(agent, node.barrier)]
        self.filled = {place: x for place, x in self.filled.items() if x[0] is not b}

    def _arrive(self, agent: Agent, node: Arrive) -> None:
        if node.block is None:
            self._arrive_at(agent, node, None)
            return
        for _ in agent.each():
            self._arrive_at(agent, node, self._value(agent, node.block))

    def _arrive_at(self, agent: Agent, node: Arrive, block: int | None) -> None:
        if block is not None and block not in range(self.kernel.cluster):
            self._fault(f"the cluster has no block {block}: {line(node)}")
            return
        if block is not None and all(a.over for a in self.agents if a.block == block):
            self._fault(f"the other block may have ended: {line(node)}")
        b = self._at(agent, node, node.barrier, block)
        if b is None:
            return
        threads = agent.threads if node.block is None else 1
        if node.bytes is not None:
            b.bytes += threads * self._value(agent, node.bytes)
        clock = agent.clock.copy()
        self._come(b, threads, clock, node)
        if node.after:
            self._later(partial(self._come, b, threads, clock, node))

    def _come(self, b: Barrier, arrivals: int, clock: Clock, node: Node) -> None:
        b.coming = np.maximum(b.coming, clock)
        if arrivals > b.pending:
            self._fault(f"more arrive than the {b.arrivals} of a phase: {line(node)}")
        b.pending = max(0, b.pending - arrivals)
        self._complete(b, node)

    def _complete(self, b: Barrier, node: Node) -> None:
        if b.pending or b.bytes:
            return
        if b.done and b.seen < b.done - 1:
            self._fault(f"a phase ends and nobody waited for the one before: {line(node)}")
        self._see(b.coming, b, node)
        b.done, b.pending = b.done + 1, b.arrivals
        b.passed, b.coming = np.maximum(b.passed, b.coming), self._nobody()

    def _later(self, event: Callable[[], None]) -> None:
        if self.eager:
            event()
        else:
            self.under_way.append(event)

    def _copy(self, agent: Agent, node: EngineCopy) -> None:
        blocks = [n for n in range(self.kernel.cluster) if node.blocks >> n & 1] or [agent.block]
        for block in blocks:
            b = self._at(agent, node, node.barrier, block)
            if b is None:
                continue
            self._see(agent.clock, b, node)
            if not b.announced:
                self._fault(f"the copy engine does not know the barrier: {line(node)}")
            start = start_of(node.to, agent)
            place = block, start, start + node.bytes
            for (n, first, end), (other, under_way) in self.filled.items():
                meets = n == block and first < place[2] and start < end
                if meets and (under_way or other is not b):
                    self._fault(f"another copy goes to the same place: {line(node)}")
            if self.instructions.overwritten(place, agent.clock):
                self._fault(f"instructions may still read what is there: {line(node)}")
            self.filled[place] = b, True
            self._later(partial(self._land, b, agent.clock.copy(), node, place))

    def _land(self, b: Barrier, clock: Clock, node: EngineCopy, place: Place) -> None:
        self.filled[place] = b, False
        b.coming, b.bytes = np.maximum(b.coming, clock), b.bytes - node.bytes
        self._complete(b, node)

    # ------------------------------------------------------------------ waits

    def _await(self, agent: Agent, node: Await) -> Way:
        b = self._at(agent, node, node.barrier)
        if b is None:
            return ""
        phase = self._value(agent, node.phase)
        agent.waits = node
        while (b.done - 1) & 1 != phase & 1:
            yield lambda: (b.done - 1) & 1 == phase & 1
        agent.waits = None
        if b.done != phase + 1:
            over = f"{b.done} are over"
            self._fault(f"phase {phase} is taken for another, {over}: {line(node)}")
        b.seen = max(b.seen, phase)
        agent.clock = np.maximum(agent.clock, b.passed)
        agent.clock[agent.number] += 1
        b.waited[agent.number] = agent.clock[agent.number]
        return ""

    def _sync(self, agent: Agent, node: Sync) -> Way:
        key, threads = place_of(agent, node, self.kernel.threads, self.kernel.cluster)
        meeting = self.meetings.setdefault(key, Meeting())
        meeting.members.append(agent)
        meeting.threads += agent.threads
        if meeting.threads > threads:
            self._fault(f"more than {threads} threads meet: {line(node)}")
        if meeting.threads >= threads:
            del self.meetings[key]
            meeting.over = True
            common = meeting.members[0].clock
            for other in meeting.members[1:]:
                common = np.maximum(common, other.clock)
            for other in meeting.members:
                other.clock = common.copy()
                other.clock[other.number] += 1
            return ""
        agent.waits = node
        yield lambda: meeting.over
        agent.waits = None
        return ""
