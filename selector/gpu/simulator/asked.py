"""A kernel's control without what nobody asks for: variables, memory, and loops and conditions that
nothing is left in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from selector.gpu.ir.memory import EngineCopy, EngineStore
from selector.gpu.ir.nodes import (
    Advance,
    Assign,
    Body,
    For,
    If,
    Leave,
    Let,
    Memory,
    Node,
    Number,
    State,
    Under,
    expressions,
    walk,
)
from selector.gpu.ir.products import Descriptor, Pin
from selector.gpu.ir.tensor import TensorTile
from selector.gpu.ir.touched import Read
from selector.ir.traverse import free_vars


def asked_only(body: Body, declarations: Body) -> tuple[Body, tuple[Number, ...]]:
    """What is left of a body, and the numbers that it mentions."""
    declared = {node.name: node for node in declarations if isinstance(node, Number)}
    names = _mentioned(body, declared)
    while (left := _body(body, names)) != body:
        body, names = left, _mentioned(left, declared)
    return body, tuple(number for name, number in declared.items() if name in names)


def _mentioned(body: Body, numbers: Mapping[str, Number]) -> set[str]:
    """The names that the nodes of a body ask for, and their numbers."""
    found: set[str] = set()
    for node in walk(body):
        for e in expressions(node):
            for name in free_vars(e):
                found.add(name)
                if name in numbers:
                    found |= free_vars(numbers[name].value)
        match node:
            case EngineCopy(to=view) | EngineStore(source=view) | Descriptor(view=view):
                found.add(view.memory)
            case Read(name) | Pin(name):
                found.add(name)
            case TensorTile(base=name):
                found.add(name)
            case Memory(unit=unit):
                found.add(unit)
            case Advance(phase=name):
                found |= {"slot", name}
            case Assign(name) | For(var=name, start=None):
                found.add(name)
            case _:
                pass
    return found


def _body(body: Body, names: set[str]) -> Body:
    return tuple(kept for node in body for kept in _node(node, names))


def _node(node: Node, names: set[str]) -> Body:
    match node:
        case Under("", inner):
            left = _body(inner, names)
            return () if _idle(left) else (Under("", left),)
        case For(body=inner):
            left = _body(inner, names)
            return () if _idle(left, in_loop=True) else (replace(node, body=left),)
        case If(condition, then, otherwise):
            left, other = _body(then, names), _body(otherwise, names)
            return () if _idle(left) and _idle(other) else (If(condition, left, other),)
        case Let(names=own) | State(names=own):
            return (node,) if names & set(own) else ()
        case Memory(name):
            return (node,) if name in names else ()
        case _:
            return (node,)


def _idle(body: Body, *, in_loop: bool = False) -> bool:
    """Whether nothing of a body is seen outside of it."""
    own = {name for x in walk(body) if isinstance(x, Let | State) for name in x.names}

    def quiet(node: Node) -> bool:
        match node:
            case Assign(name):
                return name in own
            case Leave(what):
                return in_loop and what != "kernel"
            case _:
                return isinstance(node, Let | State | Memory | Under | If | For)

    return all(map(quiet, walk(body)))
