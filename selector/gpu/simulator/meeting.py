"""A kernel without what its threads do alone: what is left is how they meet."""

from __future__ import annotations

from dataclasses import replace

from selector.gpu.ir.nodes import (
    Body,
    Commit,
    Dependents,
    Drain,
    EngineStore,
    Fence,
    For,
    Fused,
    If,
    Kernel,
    Memory,
    Node,
    Number,
    Raw,
    Registers,
    Under,
)


def meeting_only(kernel: Kernel) -> Kernel:
    """The kernel without text and name, with the numbers that its control may mention."""
    numbers = tuple(n for n in kernel.declarations if isinstance(n, Number))
    body = _body(kernel.body)
    return replace(kernel, name="", bounds="", parameters=(), declarations=numbers, body=body)


def _body(body: Body) -> Body:
    return tuple(kept for node in body for kept in _node(node))


def _node(node: Node) -> Body:
    """What is left of a node."""
    match node:
        case Under("", inner) | Fused(inner):
            left = _body(inner)
            return (Under("", left),) if left else ()
        case For(body=inner):
            left = _body(inner)
            return (replace(node, body=left),) if left else ()
        case If(condition, then, otherwise):
            left, other = _body(then), _body(otherwise)
            return (If(condition, left, other),) if left or other else ()
        case Commit(queue) | Drain(queue) if queue != "matrix":
            return ()
        case Fence(what) if what != "barriers":
            return ()
        case Raw() | Under() | Memory() | EngineStore() | Registers() | Dependents():
            return ()
        case _:
            return (node,)
