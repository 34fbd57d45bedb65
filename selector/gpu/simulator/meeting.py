"""A kernel without what its threads do alone: what is left is how they meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from selector.gpu.ir.memory import (
    CopyAsync,
    CopyElement,
    CopyRun,
    EngineCopy,
    EngineStore,
    LoadShifted,
    Map,
    Point,
    Prefetch,
)
from selector.gpu.ir.nodes import (
    Advance,
    Assign,
    Body,
    Commit,
    Dependents,
    Drain,
    Fence,
    For,
    Fused,
    If,
    Kernel,
    Leave,
    Let,
    Memory,
    Node,
    Number,
    Raw,
    Registers,
    State,
    Under,
    expressions,
    walk,
)
from selector.ir.traverse import free_vars


def meeting_only(kernel: Kernel) -> Kernel:
    """The kernel without text and name, with the memory that the copy engine fills and the numbers
    that its control mentions.
    """
    body = _body(kernel.body, None)
    declared = {node.name: node for node in kernel.declarations if isinstance(node, Number)}
    while (left := _body(body, _mentioned(body, declared))) != body:
        body = left
    names = _mentioned(body, declared)
    numbers = tuple(number for name, number in declared.items() if name in names)
    return replace(kernel, name="", bounds="", parameters=(), declarations=numbers, body=body)


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
            case EngineCopy(to=view):
                found.add(view.memory)
            case Advance(phase=name):
                found |= {"slot", name}
            case Assign(name) | For(var=name, start=None):
                found.add(name)
            case _:
                pass
    return found


def _body(body: Body, names: set[str] | None) -> Body:
    """What is left of a body; ``names``: that are asked for, if that is known."""
    return tuple(kept for node in body for kept in _node(node, names))


def _node(node: Node, names: set[str] | None) -> Body:
    """What is left of a node."""
    match node:
        case Under("", inner) | Fused(inner):
            left = _body(inner, names)
            return () if _idle(left) else (Under("", left),)
        case For(body=inner):
            left = _body(inner, names)
            return () if _idle(left, in_loop=True) else (replace(node, body=left),)
        case If(condition, then, otherwise):
            left, other = _body(then, names), _body(otherwise, names)
            return () if _idle(left) and _idle(other) else (If(condition, left, other),)
        case Commit(queue) | Drain(queue) if queue != "matrix":
            return ()
        case Fence(what) if what != "barriers":
            return ()
        case EngineCopy():
            return (replace(node, map="", at=()),)
        case Let(names=own) | State(names=own) if names is not None:
            return (node,) if names & set(own) else ()
        case Memory(name) if names is not None:
            return (node,) if name in names else ()
        case EngineStore() | Map() | Prefetch() | Point() | CopyAsync() | CopyElement():
            return ()
        case Raw() | Under() | CopyRun() | LoadShifted() | Registers() | Dependents():
            return ()
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
