"""What a thread's variables, memories and descriptors are as it goes on."""

from __future__ import annotations

from collections.abc import Iterator

from selector.gpu.ir.nodes import Advance, Assign, Body, Let, Memory, Node, State
from selector.gpu.ir.products import Descriptor
from selector.gpu.ir.tensor import TensorMemory, TensorTile
from selector.gpu.ir.values import value_of
from selector.gpu.ir.views import View
from selector.gpu.simulator.threads import Agent


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
