"""What threads and tensor instructions do to tensor memory (PTX ISA, "tcgen05", "Memory Consistency
Model").

A cell is a piece of eight columns of a warp's lanes; a set of cells is an integer, bit by bit.
Clocks have a row of what has been told before a fence (``TOLD``); what a thread may rely on it
takes over at a fence of its own. Products of one thread come one after the other, and its commits
arrive when those before are complete.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np

from selector.dataclass import dataclass
from selector.gpu.ir.nodes import Drain, Fence, Node
from selector.gpu.ir.tensor import (
    LANE,
    PIECE,
    WARP_LANES,
    TensorAlloc,
    TensorBusy,
    TensorFree,
    TensorLoad,
)
from selector.gpu.ir.text import line
from selector.gpu.simulator.lanes import of_range
from selector.gpu.simulator.launch import Launch, value
from selector.gpu.simulator.memories import Memories
from selector.gpu.simulator.races import Races, Who
from selector.gpu.simulator.threads import KNOWN, TOLD, WARP, Agent, Clock

QUARTERS = 4


@dataclass(slots=True)
class _Block:
    """Of one: columns that are allocated, what somebody wrote, who touched what."""

    columns: int = 0
    written: int = 0
    races: Races = field(default_factory=Races)


class Tensors:
    """Of all blocks."""

    def __init__(self, launch: Launch, memories: Memories) -> None:
        self.launch, self.memories = launch, memories
        self.blocks = [_Block() for _ in range(launch.kernel.cluster)]
        self.seen: dict[int, Clock] = {}  # what each thread has been told and fenced
        self.loading: dict[int, set[str]] = {}  # fragments, of each thread

    def follow(self, agent: Agent, node: Node) -> bool:
        """A node of tensor memory; whether it is one."""
        match node:
            case TensorAlloc():
                self.alloc(agent, node)
            case TensorFree():
                self.free(agent, node)
            case TensorBusy():
                self.multiply(agent, node)
            case TensorLoad():
                self.load(agent, node)
            case Drain("tensor", pending):
                if not pending:
                    self.drain(agent)
            case Fence("tensor_before"):
                self.before(agent)
            case Fence("tensor_after"):
                self.after(agent)
            case _:
                return False
        return True

    # ------------------------------------------------------------------ allocation

    def alloc(self, agent: Agent, node: TensorAlloc) -> None:
        """By a warp; of its threads the first stand for all."""
        if agent.first % WARP == 0:
            block = self.blocks[agent.block]
            if block.columns:
                self.launch.fault(f"tensor memory is allocated already: {line(node)}")
            block.columns = node.columns

    def free(self, agent: Agent, node: TensorFree) -> None:
        """Everything in it is over and known to be."""
        if agent.first % WARP == 0:
            block = self.blocks[agent.block]
            if block.columns != node.columns:
                self.launch.fault(f"{block.columns} columns are allocated: {line(node)}")
            cells = (1 << node.columns // PIECE * QUARTERS) - 1
            self._touch(agent, Who(agent.number, writes=True), agent.time, cells, node)
            block.columns = block.written = 0

    def end(self) -> None:
        """When all threads are over."""
        if any(block.columns for block in self.blocks):
            self.launch.fault("tensor memory is still allocated at the end")

    # ------------------------------------------------------------------ products and loads

    def multiply(self, agent: Agent, node: TensorBusy) -> None:
        """A product reads shared memory and writes its pieces until it is complete."""
        chunks = 0
        for name, start, end in zip(node.descriptors, node.start, node.end, strict=True):
            first = agent.places.descriptors[name]
            chunks |= of_range(first + start, first + end)
        time = agent.queues.products.ask()
        reads = Who(agent.queues.products.component, writes=False, engine=True)
        self.memories.touch(agent.block, (reads, time), chunks, agent.clock, node)
        block = self.blocks[agent.block]
        piece = agent.values[node.to] % LANE // PIECE + node.first
        cells = ((1 << node.pieces * QUARTERS) - 1) << piece * QUARTERS
        if value(agent, node.add) and cells & ~block.written:
            self.launch.fault(f"nobody wrote what is added to: {line(node)}")
        block.written |= cells
        self._touch(agent, Who(agent.queues.products.component, writes=True), time, cells, node)

    def load(self, agent: Agent, node: TensorLoad) -> None:
        """A warp's loads are under way until it drains them."""
        lane, column = divmod(agent.values[node.base] + node.at, LANE)
        quarter = agent.first // WARP % QUARTERS
        if lane // WARP_LANES != quarter:
            self.launch.fault(f"lane {lane} is not of this warp: {line(node)}")
        cells = sum(1 << (column // PIECE + i) * QUARTERS + quarter for i in range(node.pieces))
        if cells & ~self.blocks[agent.block].written:
            self.launch.fault(f"nobody wrote what is loaded: {line(node)}")
        time = agent.queues.loads.ask()
        self._touch(agent, Who(agent.queues.loads.component, writes=False), time, cells, node)
        self.loading.setdefault(agent.number, set()).add(node.fragment)

    def drain(self, agent: Agent) -> None:
        """The loads of a thread are complete."""
        agent.clock[KNOWN, agent.queues.loads.component] = agent.queues.loads.asked
        self.loading.pop(agent.number, None)

    def have(self, agent: Agent, fragment: str) -> bool:
        """Whether loads that are not complete have a thread's fragment."""
        return fragment in self.loading.get(agent.number, ())

    def _touch(self, agent: Agent, who: Who, time: int, cells: int, node: Node) -> None:
        block = self.blocks[agent.block]
        if not block.columns or cells >> block.columns // PIECE * QUARTERS:
            self.launch.fault(f"no such tensor memory is allocated: {line(node)}")
        known = np.stack([self._own(agent)] * 2)
        products = agent.queues.products
        known[:, products.component] = products.asked  # one after the other
        if isinstance(node, TensorFree):
            known[:, products.component] = agent.clock[KNOWN, products.component]
        fault = block.races.touch(who, time, cells, known)
        if fault:
            self.launch.fault(f"tensor memory {fault}: {line(node)}")

    # ------------------------------------------------------------------ fences

    def _own(self, agent: Agent) -> Clock:
        """What a thread has done and what it has been told of, by component."""
        own = self.seen.get(agent.number)
        own = np.zeros_like(agent.clock[TOLD]) if own is None else own.copy()
        asked = agent.queues
        for component in (agent.number, asked.loads.component, asked.products.component):
            own[component] = agent.clock[KNOWN, component]
        return own

    def before(self, agent: Agent) -> None:
        """Who hears of this thread from here on may rely on what it has done."""
        agent.clock[TOLD] = np.maximum(agent.clock[TOLD], self._own(agent))
        agent.tick()

    def after(self, agent: Agent) -> None:
        """The thread may rely on what it has heard."""
        self.seen[agent.number] = np.maximum(self._own(agent), agent.clock[TOLD])

    def complete(self, agent: Agent) -> Clock:
        """What is known when all products that a thread has asked for are complete."""
        clock = agent.clock.copy()
        clock[TOLD] = np.maximum(clock[TOLD], self._own(agent))
        clock[:, agent.queues.products.component] = agent.queues.products.asked
        return clock
