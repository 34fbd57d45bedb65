"""A kernel without what its threads do alone: what is left is how they meet."""

from __future__ import annotations

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
from selector.ir.nodes import Var
from selector.ir.traverse import walk_expr


def meeting_only(kernel: Kernel) -> Kernel:
    """The kernel without text and name, with the memory that the copy engine fills and the numbers
    that its control mentions.
    """
    filled = {node.to.memory for node in walk(kernel.body) if isinstance(node, EngineCopy)}
    body = _body(kernel.body, filled)
    mentioned = {
        x.name
        for node in walk(body)
        for e in expressions(node)
        for x in walk_expr(e)
        if isinstance(x, Var)
    }
    numbers = (n for n in kernel.declarations if isinstance(n, Number) and n.name in mentioned)
    return replace(
        kernel, name="", bounds="", parameters=(), declarations=tuple(numbers), body=body
    )


def _body(body: Body, filled: set[str]) -> Body:
    return tuple(kept for node in body for kept in _node(node, filled))


def _node(node: Node, filled: set[str]) -> Body:
    """What is left of a node."""
    match node:
        case Under("", inner) | Fused(inner):
            left = _body(inner, filled)
            return () if _idle(left) else (Under("", left),)
        case For(body=inner):
            left = _body(inner, filled)
            return () if _idle(left, in_loop=True) else (replace(node, body=left),)
        case If(condition, then, otherwise):
            left, other = _body(then, filled), _body(otherwise, filled)
            return () if _idle(left) and _idle(other) else (If(condition, left, other),)
        case Commit(queue) | Drain(queue) if queue != "matrix":
            return ()
        case Fence(what) if what != "barriers":
            return ()
        case EngineCopy():
            return (replace(node, map="", at=()),)
        case Memory(name):
            return (node,) if name in filled else ()
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
