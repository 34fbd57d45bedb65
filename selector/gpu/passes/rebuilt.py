"""Kernels made anew, body by body."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from selector.gpu.ir.nodes import Body, For, Fused, If, Local, Node


def rebuilt(body: Body, change: Callable[[Node], Body]) -> Body:
    """The body with nodes in the place of each, which hold what became of those inside."""
    return rebuilt_bodies(body, lambda inner: tuple(x for node in inner for x in change(node)))


def rebuilt_bodies(body: Body, change: Callable[[Body], Body]) -> Body:
    """What becomes of a body whose nodes hold what became of the bodies inside."""
    return change(tuple(_inside(node, change) for node in body))


def _inside(node: Node, change: Callable[[Body], Body]) -> Node:
    match node:
        case Local(body) | For(body=body) | Fused(body):
            return replace(node, body=rebuilt_bodies(body, change))
        case If(_, then, otherwise):
            new, other = rebuilt_bodies(then, change), rebuilt_bodies(otherwise, change)
            return replace(node, then=new, otherwise=other)
        case _:
            return node
