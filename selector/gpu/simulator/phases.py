"""Where threads meet, barriers in shared memory and those of the hardware: how they arrive and wait
there, and what they know of each other then.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import field
from functools import partial

import numpy as np

from selector.dataclass import dataclass
from selector.gpu.ir.nodes import Arrive, Await, Init, Node, Retire, Sync
from selector.gpu.ir.text import line
from selector.gpu.ir.values import value_of
from selector.gpu.simulator.launch import Launch, value
from selector.gpu.simulator.threads import KNOWN, ROWS, WARP, Agent, Clock
from selector.ir.nodes import Expr


@dataclass(slots=True)
class Barrier:
    """A barrier in shared memory: what its phase still waits for, and how many phases are over."""

    arrivals: int
    made: tuple[int, int]  # by whom, and when by that clock
    component: int  # of the clocks: how many of its phases are over
    pending: int
    coming: Clock  # what those know who have arrived
    passed: Clock
    waited: Clock  # when each thread last saw a phase end
    bytes: int = 0
    done: int = 0
    seen: int = -1  # the last phase that somebody waited for
    announced: bool = False  # to the copy engine
    users: dict[int, int] = field(default_factory=dict[int, int])


@dataclass(slots=True)
class Meeting:
    """Threads at a barrier of the block, of a warp, or of the cluster."""

    members: list[Agent] = field(default_factory=list[Agent])
    threads: int = 0
    over: bool = False


def place_of(
    agent: Agent, node: Sync, threads: int, cluster: int
) -> tuple[tuple[object, ...], int]:
    """Where threads of a block of so many meet, and how many have to come."""
    match node.scope:
        case "warp":
            warp = agent.first // WARP
            return ("warp", agent.block, warp), min(WARP, threads - WARP * warp)
        case "block":
            return ("block", agent.block), threads
        case "cluster" | "cluster_data":
            return ("cluster",), threads * cluster
        case _:
            assert node.barrier is not None
            named = value_of(node.barrier)(agent.values)
            return ("named", agent.block, named), node.threads


Waiting = Generator[Callable[[], bool]]


class Phases:
    """The barriers of all blocks, by their addresses."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.barriers: list[dict[int, Barrier]] = [{} for _ in range(launch.kernel.cluster)]
        self.meetings: dict[tuple[object, ...], Meeting] = {}
        self.size = launch.agents[0].clock.shape[1]
        self.next = self.size - launch.barriers  # component of the clocks

    def _nobody(self) -> Clock:
        """The clock of who knows of nobody."""
        return np.zeros((ROWS, self.size), np.int64)

    # ------------------------------------------------------------------ barriers

    def init(self, agent: Agent, node: Init) -> None:
        at, arrivals = value(agent, node.barrier), value(agent, node.arrivals)
        if arrivals < 1:
            self.launch.fault(f"a barrier of {arrivals} arrivals")
        agent.tick()
        clocks = (self._nobody(), self._nobody(), np.zeros(self.size, np.int64))
        b = Barrier(arrivals, (agent.number, agent.time), self.next, arrivals, *clocks)
        self.next = min(self.next + 1, self.size - 1)  # more are a fault
        if at in self.barriers[agent.block]:
            self.launch.fault("a barrier is made where there is one")
        self.barriers[agent.block][at] = b

    def announce(self, agent: Agent) -> None:
        """Those that a thread has made are there for the copy engine, too."""
        for b in self.barriers[agent.block].values():
            b.announced |= b.made[0] == agent.number

    def at(self, agent: Agent, node: Node, place: int, block: int | None = None) -> Barrier | None:
        """The barrier that a thread means, if it is there and the thread can know that."""
        block = agent.block if block is None else block
        b = self.barriers[block].get(place)
        if b is None:
            self.launch.fault(f"no barrier is there: {line(node)}")
        elif agent.clock[KNOWN, b.made[0]] < b.made[1]:
            self.launch.fault(f"nobody told this thread that the barrier is made: {line(node)}")
        else:
            agent.tick()
            b.users[agent.number] = agent.time
        return b

    def see(self, clock: Clock, b: Barrier, node: Node) -> None:
        """Whether those of that clock know that all who wait have seen the phase before."""
        if (clock[KNOWN] < b.waited).any():
            self.launch.fault(f"others may not have seen the phase before: {line(node)}")

    def retire(self, agent: Agent, node: Retire) -> Barrier | None:
        """One is no more."""
        place = value(agent, node.barrier)
        b = self.at(agent, node, place)
        if b is not None:
            if any(agent.clock[KNOWN, number] < time for number, time in b.users.items()):
                self.launch.fault(f"others may still use the barrier: {line(node)}")
            del self.barriers[agent.block][place]
        return b

    # ------------------------------------------------------------------ arrivals

    def arrive(self, agent: Agent, node: Arrive) -> None:
        if node.block is None:
            self._arrive_at(agent, node, None)
            return
        for _ in agent.each():
            self._arrive_at(agent, node, value(agent, node.block))

    def commit(self, agent: Agent, node: Arrive, clock: Clock) -> None:
        """An arrival of what works for a thread, of which that clock knows then."""
        block = None if node.block is None else value(agent, node.block)
        b = self.at(agent, node, value(agent, node.barrier), block)
        if b is not None:
            self.launch.later(partial(self._come, b, agent.threads, clock, node))

    def _arrive_at(self, agent: Agent, node: Arrive, block: int | None) -> None:
        launch = self.launch
        if block is not None and block not in range(launch.kernel.cluster):
            launch.fault(f"the cluster has no block {block}: {line(node)}")
            return
        if block is not None and all(a.over for a in launch.agents if a.block == block):
            launch.fault(f"the other block may have ended: {line(node)}")
        b = self.at(agent, node, value(agent, node.barrier), block)
        if b is None:
            return
        threads = agent.threads if node.block is None else 1
        if node.bytes is not None:
            b.bytes += threads * value(agent, node.bytes)
        clock = agent.clock.copy()
        agent.tick()
        self._come(b, threads, clock, node)
        if node.after:
            clock = clock.copy()
            clock[KNOWN, agent.queues.copies.component] = agent.queues.copies.asked
            launch.later(partial(self._come, b, threads, clock, node))

    def _come(self, b: Barrier, arrivals: int, clock: Clock, node: Node) -> None:
        b.coming = np.maximum(b.coming, clock)
        if arrivals > b.pending:
            self.launch.fault(f"more arrive than the {b.arrivals} of a phase: {line(node)}")
        b.pending = max(0, b.pending - arrivals)
        self._complete(b, node)

    def land(self, b: Barrier, clock: Clock, node: Node, bytes_: int) -> None:
        """Bytes of a copy whose thread knew that when it asked for it."""
        b.coming, b.bytes = np.maximum(b.coming, clock), b.bytes - bytes_
        self._complete(b, node)

    def _complete(self, b: Barrier, node: Node) -> None:
        if b.pending or b.bytes:
            return
        if b.done and b.seen < b.done - 1:
            self.launch.fault(f"a phase ends and nobody waited for the one before: {line(node)}")
        self.see(b.coming, b, node)
        b.done, b.pending = b.done + 1, b.arrivals
        b.passed, b.coming = np.maximum(b.passed, b.coming), self._nobody()
        b.passed[:, b.component] = b.done

    # ------------------------------------------------------------------ waits

    def wait(self, agent: Agent, node: Await) -> Waiting:
        b = self.at(agent, node, value(agent, node.barrier))
        if b is None:
            return
        phase = value(agent, node.phase)
        agent.waits = node
        while (b.done - 1) & 1 != phase & 1:
            yield lambda: (b.done - 1) & 1 == phase & 1
        agent.waits = None
        if b.done != phase + 1:
            over = f"{b.done} are over"
            self.launch.fault(f"phase {phase} is taken for another, {over}: {line(node)}")
        b.seen = max(b.seen, phase)
        agent.learn(b.passed)
        agent.met = np.maximum(agent.met, b.passed)
        agent.tick()
        b.waited[agent.number] = agent.time

    def meet(self, agent: Agent, node: Sync) -> Waiting:
        kernel = self.launch.kernel
        key, threads = place_of(agent, node, kernel.threads, kernel.cluster)
        meeting = self.meetings.setdefault(key, Meeting())
        meeting.members.append(agent)
        meeting.threads += agent.threads
        if meeting.threads > threads:
            self.launch.fault(f"more than {threads} threads meet: {line(node)}")
        if meeting.threads >= threads:
            del self.meetings[key]
            meeting.over = True
            common = meeting.members[0].clock
            for other in meeting.members[1:]:
                common = np.maximum(common, other.clock)
            for other in meeting.members:
                other.clock, other.met = common.copy(), common
                other.tick()
            return
        agent.waits = node
        yield lambda: meeting.over
        agent.waits = None

    # ------------------------------------------------------------------ the end

    def why(self, agent: Agent) -> str:
        """What somebody who waits forever waits for."""
        match agent.waits:
            case Await(_, barrier, phase):
                return self._missing(agent, barrier, phase)
            case _:
                return ""

    def _missing(self, agent: Agent, barrier: Expr, phase: Expr) -> str:
        b = self.barriers[agent.block].get(value(agent, barrier))
        if b is None:
            return ""
        left = f"{b.arrivals - b.pending} of {b.arrivals} have arrived"
        return f" ({value(agent, phase)}): {left} in phase {b.done}"

    def end(self) -> None:
        """What is left of barriers when all threads are over."""
        for barriers in self.barriers:
            for b in barriers.values():
                if b.bytes:
                    few = "few" if b.bytes > 0 else "many"
                    self.launch.fault(f"{abs(b.bytes)} bytes too {few}")
                elif b.pending != b.arrivals:
                    arrived = b.arrivals - b.pending
                    self.launch.fault(f"at the end {arrived} of {b.arrivals} arrivals of a phase")
