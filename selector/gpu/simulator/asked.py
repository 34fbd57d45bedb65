"""A kernel's control without what nobody asks for: variables, memory, and loops and conditions that
nothing is left in.
"""

from __future__ import annotations

from dataclasses import replace

from selector.gpu.ir.mentioned import mentioned
from selector.gpu.ir.nodes import (
    Advance,
    Assign,
    Body,
    For,
    If,
    Leave,
    Let,
    Local,
    Memory,
    Node,
    Read,
    State,
    walk,
)
from selector.gpu.ir.products import Pin


def asked_only(body: Body) -> Body:
    """What is left of a body."""
    while (left := _body(body, _mentioned(body))) != body:
        body = left
    return body


def _mentioned(body: Body) -> set[str]:
    """The names that the nodes of a body ask for."""
    found = mentioned(body)
    for node in walk(body):
        match node:
            case Read(name) | Pin(name) | Assign(name) | For(var=name, start=None):
                found.add(name)
            case Advance(phase=name):
                found |= {"slot", name}
            case _:
                pass
    return found


def _body(body: Body, names: set[str]) -> Body:
    return tuple(kept for node in body for kept in _node(node, names))


def _node(node: Node, names: set[str]) -> Body:
    match node:
        case Local(inner):
            left = _body(inner, names)
            return () if _idle(left) else (Local(left),)
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
                return isinstance(node, Let | State | Memory | Local | If | For)

    return all(map(quiet, walk(body)))
