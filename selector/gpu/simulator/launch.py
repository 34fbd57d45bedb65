"""One launch of a kernel in one world: what all that follow it share, and what the variables,
memories and descriptors of a thread are as it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field

from selector.dataclass import dataclass
from selector.gpu.ir.nodes import (
    Advance,
    Assign,
    Body,
    For,
    Init,
    Kernel,
    Let,
    Memory,
    Node,
    State,
    children,
)
from selector.gpu.ir.products import Descriptor
from selector.gpu.ir.tensor import TensorMemory, TensorTile
from selector.gpu.ir.values import value_of
from selector.gpu.ir.views import View
from selector.gpu.simulator.threads import Agent, agents_of
from selector.gpu.simulator.worlds import World
from selector.ir.nodes import Expr, IntImm


@dataclass(slots=True)
class Launch:
    """``eager``: the first threads first, and copies at once; else the last threads first, and
    copies (``under_way``) when nothing else can go on.
    """

    kernel: Kernel
    world: World
    eager: bool
    agents: list[Agent] = field(init=False)
    barriers: int = field(init=False)  # at most, of all blocks
    faults: dict[str, None] = field(default_factory=dict[str, None])
    under_way: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    def __post_init__(self) -> None:
        self.barriers = self.kernel.cluster * sum(_made(self.kernel.body, 1))
        self.agents = agents_of(self.kernel, self.world, self.barriers)

    def fault(self, text: str) -> None:
        self.faults.setdefault(text)

    def later(self, event: Callable[[], None]) -> None:
        if self.eager:
            event()
        else:
            self.under_way.append(event)


MOST_TIMES = 64  # that a loop whose end is unknown makes barriers


def _made(body: Body, times: int) -> Iterator[int]:
    """How often each node makes a barrier, at most."""
    for node in body:
        match node:
            case Init():
                yield times
            case For(start=IntImm(start), stop=IntImm(stop), body=inner):
                yield from _made(inner, times * max(0, stop - start))
            case For(body=inner):
                yield from _made(inner, times * MOST_TIMES)
            case _:
                yield from _made(children(node), times)


def value(agent: Agent, e: Expr) -> int:
    return value_of(e)(agent.values)


def assign(agent: Agent, node: Node) -> bool:
    """Follow a node that sets or declares some; whether it is one."""
    v = agent.values
    match node:
        case Let(_, names, values) | State(_, names, values):
            for name, e in zip(names, values, strict=True):
                try:
                    v[name] = value_of(e)(v)
                except KeyError:  # of a size: the same is assumed of all numbers that mention it
                    v.pop(name, None)
        case Assign(name, value):
            v[name] = value_of(value)(v)
        case Advance(_, phase, stages, by):
            slot = v["slot"] + (1 if by is None else value_of(by)(v))
            v["slot"] = slot % stages
            if phase:
                v[phase] += slot // stages
        case Memory():
            v[node.name] = node.offset + (
                0 if node.unit is None else value_of(node.unit)(v) * node.apart
            )
            agent.places.memories[node.name] = node
        case TensorMemory(name):
            v[name] = 0
        case TensorTile(name, of, start):
            v[name] = v[of] + value_of(start)(v)
        case Descriptor(name, view):
            agent.places.descriptors[name] = start_of(view, agent)
        case _:
            return False
    return True


def start_of(view: View, agent: Agent) -> int:
    """The byte of shared memory that a part of a memory begins at."""
    v = agent.values
    parts = (view.start, view.index, view.at)
    start, index, at = (0 if e is None else value_of(e)(v) for e in parts)
    return v[view.memory] + (start + index) * agent.places.memories[view.memory].element_bytes + at


def declared(body: Body) -> Iterator[str]:
    """The names of variables and memories that end with a body."""
    for node in body:
        match node:
            case Let(names=names) | State(names=names):
                yield from names
            case Memory(name):
                yield name
            case _:
                pass
