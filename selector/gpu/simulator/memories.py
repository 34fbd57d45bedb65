"""What threads, and what works for them, do to shared memory."""

from __future__ import annotations

from functools import partial

from selector.gpu.ir.memory import EngineCopy, EngineStore
from selector.gpu.ir.nodes import Node, Read
from selector.gpu.ir.products import Busy, Pin
from selector.gpu.ir.text import line
from selector.gpu.simulator.lanes import Lanes, Moves, of_range, of_read
from selector.gpu.simulator.launch import Launch, start_of, value
from selector.gpu.simulator.phases import Barrier, Phases
from selector.gpu.simulator.races import Races, Who
from selector.gpu.simulator.threads import KNOWN, Agent, Clock

Place = tuple[int, int, int]  # a block, and bytes of its shared memory


class Memories:
    """Of all blocks of a cluster."""

    def __init__(self, launch: Launch, phases: Phases, lanes: Lanes) -> None:
        self.launch, self.phases, self.lanes = launch, phases, lanes
        self.blocks = [Races() for _ in range(launch.kernel.cluster)]
        self.filled: dict[Place, tuple[Barrier, bool]] = {}  # for whom; whether it is under way

    def touch(
        self, block: int, access: tuple[Who, int], chunks: int, clock: Clock, node: Node
    ) -> None:
        """Somebody does that; what is wrong with it is a fault."""
        fault = self.blocks[block].touch(*access, chunks, clock)
        if fault:
            self.launch.fault(f"{_NAMES.get(fault, fault)}: {line(node)}")

    # ------------------------------------------------------------------ by threads

    def move(self, agent: Agent, node: Node) -> None:
        """Stores and copies of single threads."""
        moves = self.lanes.moves(agent, node)
        if moves.stored:
            stored = Who(agent.number, writes=True), agent.time
            self.touch(agent.block, stored, moves.stored, agent.clock, node)
        if moves.parts:  # other threads may store beside them
            parts = Who(agent.number, writes=True, part=True), agent.time
            self.touch(agent.block, parts, moves.parts, agent.clock, node)
        if moves.copied:
            copied = Who(agent.queues.copies.component, writes=True), agent.queues.copies.ask()
            self.touch(agent.block, copied, moves.copied, agent.clock, node)
        if moves.runs:
            self._run(agent, node, moves)

    def text(self, agent: Agent, name: str) -> None:
        """Text writes some of a memory, or reads it."""
        start, memory = agent.values[name], agent.places.memories[name]
        access = Who(agent.number, writes=True, part=True), agent.time
        chunks = of_range(start, start + memory.bytes)
        self.touch(agent.block, access, chunks, agent.clock, Pin(name))

    def read(self, agent: Agent, node: Read) -> None:
        """Loads of a warp, of what all its threads have seen."""
        chunks = of_read(node, agent.values[node.rows])
        access = Who(agent.number, writes=False), agent.time
        self.touch(agent.block, access, chunks, agent.met, node)

    def multiply(self, agent: Agent, node: Busy, access: tuple[Who, int]) -> None:
        """Instructions that read memory until they are complete."""
        chunks = 0
        for name, first, last in zip(node.descriptors, node.first, node.last, strict=True):
            start = agent.places.descriptors[name]
            chunks |= of_range(start + first, start + last)
        self.touch(agent.block, access, chunks, agent.met, node)

    # ------------------------------------------------------------------ by the copy engine

    def _run(self, agent: Agent, node: Node, moves: Moves) -> None:
        for place, (count, chunks) in moves.runs.items():
            b = self.phases.at(agent, node, place)
            if b is None:
                continue
            b.bytes += count
            self._under_way(agent, node, b, agent.block, chunks)
            clock = agent.clock.copy()
            self.launch.later(partial(self.phases.land, b, clock, node, count))

    def _under_way(self, agent: Agent, node: Node, b: Barrier, block: int, chunks: int) -> None:
        """Whether the engine may write there, for a phase of a barrier."""
        self.phases.see(agent.clock, b, node)
        if not b.announced:
            self.launch.fault(f"the copy engine does not know the barrier: {line(node)}")
        access = Who(b.component, writes=True, engine=True), b.done + 1
        self.touch(block, access, chunks, agent.clock, node)

    def copy(self, agent: Agent, node: EngineCopy) -> None:
        """A box, to each of the blocks that it is for."""
        place = value(agent, node.barrier)
        for block in _blocks(node, agent, self.launch.kernel.cluster):
            b = self.phases.at(agent, node, place, block)
            if b is None:
                continue
            start = start_of(node.to, agent)
            to = block, start, start + node.bytes
            for (n, first, end), (other, under_way) in self.filled.items():
                meets = n == block and first < to[2] and start < end
                if meets and (under_way or other is not b):
                    self.launch.fault(f"another copy goes to the same place: {line(node)}")
            self._under_way(agent, node, b, block, of_range(*to[1:]))
            self.filled[to] = b, True
            self.launch.later(partial(self._land, b, agent.clock.copy(), node, to))

    def _land(self, b: Barrier, clock: Clock, node: EngineCopy, place: Place) -> None:
        self.filled[place] = b, False
        self.phases.land(b, clock, node, node.bytes)

    def forget(self, barrier: Barrier) -> None:
        """What was filled for a barrier that is no more."""
        self.filled = {place: x for place, x in self.filled.items() if x[0] is not barrier}

    def store(self, agent: Agent, node: EngineStore) -> None:
        """The engine reads a box until it is drained."""
        start = start_of(node.source, agent)
        chunks = of_range(start, start + agent.places.memories[node.source.memory].bytes)
        stores = agent.queues.stores
        access = Who(stores.component, writes=False, engine=True), stores.ask()
        self.touch(agent.block, access, chunks, agent.clock, node)

    def end(self, agent: Agent) -> None:
        """A thread is over."""
        if agent.clock[KNOWN, agent.queues.stores.component] < agent.queues.stores.asked:
            self.launch.fault("the engine may still read what is stored at the end")


_NAMES = {"may still be read": "instructions may still read what is there"}


def _blocks(node: EngineCopy, agent: Agent, cluster: int) -> list[int]:
    return [n for n in range(cluster) if node.blocks >> n & 1] or [agent.block]
