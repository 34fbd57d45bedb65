"""Follows a kernel's threads through their nodes."""

from __future__ import annotations

from collections.abc import Callable, Generator

import numpy as np

from selector.gpu.ir.memory import EngineCopy, EngineStore
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
    Local,
    Node,
    Read,
    Retire,
    Sync,
    walk,
)
from selector.gpu.ir.products import Busy, Pin
from selector.gpu.ir.text import line
from selector.gpu.ir.values import value_of
from selector.gpu.simulator.lanes import Lanes
from selector.gpu.simulator.launch import Launch, assign, declared, value
from selector.gpu.simulator.matrix import Instructions
from selector.gpu.simulator.memories import Memories
from selector.gpu.simulator.moved import Alone
from selector.gpu.simulator.phases import Phases
from selector.gpu.simulator.tensor import Tensors
from selector.gpu.simulator.threads import FENCED, KNOWN, Agent
from selector.gpu.simulator.worlds import World
from selector.ir.nodes import Expr

Way = Generator[Callable[[], bool], None, str]  # yields what it waits for; returns what it leaves

MOST_STEPS = 1_000_000


class Followed:
    """What is the same in every world: the kernel, the nodes that ``move`` what single threads do,
    and what these do.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.lanes = kernel, Lanes()
        self.body = (*kernel.declarations, *kernel.body)
        alone = Alone(kernel)
        self.moving = {id(node) for node in walk(kernel.body) if alone.is_moved(node)}


class Run:
    """One kernel in one world. ``eager``: the first threads first, and copies at once; else the
    last threads first, and copies when nothing else can go on.
    """

    def __init__(self, followed: Followed, world: World, eager: bool) -> None:
        self.moving = followed.moving
        self.launch = Launch(followed.kernel, world, eager)
        self.phases = Phases(self.launch)
        self.instructions = Instructions(self.launch.agents)
        self.memories = Memories(self.launch, self.phases, followed.lanes)
        self.tensors = Tensors(self.launch, self.memories)
        self.steps = 0
        self._schedule(followed.body)
        if not self.launch.faults:
            self.phases.end()
            self.tensors.end()

    # ------------------------------------------------------------------ schedule

    def _schedule(self, body: Body) -> None:
        launch = self.launch
        order = launch.agents if launch.eager else launch.agents[::-1]
        ways = {a.number: self._body(a, body) for a in order}
        while True:
            agent = next((a for a in order if a.ready is not None and a.ready()), None)
            if agent is None:
                if not launch.under_way:
                    break
                launch.under_way.pop(0)()
                continue
            try:
                agent.ready = next(ways[agent.number])
            except StopIteration:
                agent.ready = None
                self.memories.end(agent)
            if self.steps > MOST_STEPS:
                launch.fault("the kernel takes too many steps to be followed")
                break
        for agent in order:
            if not agent.over and agent.waits is not None:
                launch.fault(f"waits forever: {line(agent.waits)}{self.phases.why(agent)}")

    # ------------------------------------------------------------------ control

    def _holds(self, agent: Agent, condition: Expr) -> bool:
        """For all threads of the agent alike."""
        test = value_of(condition)
        first = bool(test(agent.values))
        if agent.first != agent.last:
            with agent.as_last():
                if bool(test(agent.values)) != first:
                    threads = f"threads {agent.first} to {agent.last}"
                    self.launch.fault(f"{threads} part: {condition}")
        return first

    def _body(self, agent: Agent, body: Body) -> Way:
        outer = [(name, agent.values.get(name)) for name in declared(body)]
        left = ""
        for node in body:
            left = yield from self._node(agent, node)
            if left:
                break
        for name, old in outer:
            if old is None:
                agent.values.pop(name, None)
            else:
                agent.values[name] = old
        return left

    def _node(self, agent: Agent, node: Node) -> Way:
        self.steps += 1
        if id(node) in self.moving:
            self.memories.move(agent, node)
            return ""
        match node:
            case Local(body) | Fused(body):
                return (yield from self._body(agent, body))
            case If(condition, then, otherwise):
                way = then if self._holds(agent, condition) else otherwise
                return (yield from self._body(agent, way))
            case For():
                return (yield from self._loop(agent, node))
            case Leave(what):
                return what
            case Await():
                yield from self.phases.wait(agent, node)
            case Sync():
                yield from self.phases.meet(agent, node)
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
            v[node.var] = value(agent, node.start)
        left, also = "", node.also
        while (also is None or self._holds(agent, also)) and v[node.var] < value(agent, node.stop):
            left = yield from self._body(agent, node.body)
            if left in ("loop", "kernel"):
                break
            v[node.var] += 1 if node.step is None else value(agent, node.step)
        if node.start is not None:
            v.pop(node.var)
            if outer is not None:
                v[node.var] = outer
        return "kernel" if left == "kernel" else ""

    # ------------------------------------------------------------------ steps

    def _step(self, agent: Agent, node: Node) -> None:
        """One that nobody waits at."""
        if assign(agent, node) or self.tensors.follow(agent, node):
            return
        match node:
            case Init():
                self.phases.init(agent, node)
            case Arrive(after="matrix"):
                self.phases.commit(agent, node, self.tensors.complete(agent))
            case Arrive():
                self.phases.arrive(agent, node)
            case Retire():
                barrier = self.phases.retire(agent, node)
                if barrier is not None:
                    self.memories.forget(barrier)
            case Fence("barriers"):
                self.phases.announce(agent)
            case Fence("proxy"):
                agent.clock[FENCED] = np.maximum(agent.clock[FENCED], agent.clock[KNOWN])
                agent.tick()
            case Commit() | Drain():
                self._queue(agent, node)
            case _:
                self._memory(agent, node)

    def _queue(self, agent: Agent, node: Commit | Drain) -> None:
        """Asynchronous work of a thread is a group, or complete."""
        if node.queue == "matrix":
            self.instructions.commit(agent)
            return
        queue = agent.queues.copies if node.queue == "copies" else agent.queues.stores
        match node:
            case Commit():
                queue.commit()
            case Drain(_, pending):
                done = queue.complete(pending)
                agent.clock[KNOWN, queue.component] = max(agent.clock[KNOWN, queue.component], done)

    def _memory(self, agent: Agent, node: Node) -> None:
        match node:
            case Pin(name) if name in agent.places.memories:
                self.memories.text(agent, name)
            case Pin(name):
                if self.instructions.have(agent, name) or self.tensors.have(agent, name):
                    self.launch.fault(f"`{name}` is touched while instructions have it")
            case Busy():
                access = self.instructions.issue(agent, node)
                self.memories.multiply(agent, node, access)
            case Read():
                self.memories.read(agent, node)
            case EngineCopy():
                self.memories.copy(agent, node)
            case EngineStore():
                self.memories.store(agent, node)
            case _:
                pass
