"""Kernels made anew, node by node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from selector.gpu.ir.nodes import Body, For, Fused, If, Node, Under


def rebuilt(body: Body, change: Callable[[Node], Body]) -> Body:
    """The body with nodes in the place of each, which hold what became of those inside. Bodies that
    stay the same are the same ones.
    """
    found: list[Node] = []
    for node in body:
        found += change(_inside(node, change))
    same = len(found) == len(body) and all(a is b for a, b in zip(found, body, strict=True))
    return body if same else tuple(found)


def _inside(node: Node, change: Callable[[Node], Body]) -> Node:
    match node:
        case Under(body=body) | For(body=body) | Fused(body):
            new = rebuilt(body, change)
            return node if new is body else replace(node, body=new)
        case If(_, then, otherwise):
            new, other = rebuilt(then, change), rebuilt(otherwise, change)
            same = new is then and other is otherwise
            return node if same else replace(node, then=new, otherwise=other)
        case _:
            return node
