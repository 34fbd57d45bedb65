"""Kernels made anew, body by body."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import cache
from operator import is_
from typing import Any

from selector.gpu.ir.nodes import Body, For, Fused, If, Local, Node
from selector.ir.nodes import Expr

_HOLDERS = (Local, For, Fused, If)  # of bodies; most nodes are none


def rebuilt(body: Body, change: Callable[[Node], Body]) -> Body:
    """The body with nodes in the place of each, which hold what became of those inside; the same
    object if nothing changed."""
    return rebuilt_bodies(body, lambda inner: tuple([x for node in inner for x in change(node)]))


def rebuilt_bodies(body: Body, change: Callable[[Body], Body]) -> Body:
    """What becomes of a body whose nodes hold what became of the bodies inside; the same object if
    nothing changed."""
    return _same(body, change(_same(body, tuple([_inside(node, change) for node in body]))))


def _same(old: Body, new: Body) -> Body:
    """The old body where the new one has the same nodes."""
    return old if len(old) == len(new) and all(map(is_, old, new)) else new


def _inside(node: Node, change: Callable[[Body], Body]) -> Node:
    if not isinstance(node, _HOLDERS):
        return node
    match node:
        case Local(body) | For(body=body) | Fused(body):
            new = rebuilt_bodies(body, change)
            return node if new is body else replace(node, body=new)
        case If(_, then, otherwise):
            new, other = rebuilt_bodies(then, change), rebuilt_bodies(otherwise, change)
            same = new is then and other is otherwise
            return node if same else replace(node, then=new, otherwise=other)


def values_of(node: Node) -> Iterator[Expr]:
    """The expressions of a node."""
    for name in _values(type(node)):
        value = getattr(node, name)
        if value is not None:
            yield from value if isinstance(value, tuple) else (value,)


def with_values(node: Node, change: Callable[[Expr], Expr]) -> Node:
    """The node with what becomes of each of its expressions; the same object if nothing changed."""
    new: dict[str, Any] = {}
    for name in _values(type(node)):
        value = getattr(node, name)
        if value is not None:
            made = tuple(map(change, value)) if isinstance(value, tuple) else change(value)
            if made != value:
                new[name] = made
    return replace(node, **new) if new else node  # type: ignore[return-value]


@cache
def _values(node: type) -> tuple[str, ...]:
    """The names of fields that have expressions."""
    kinds = ("Expr", "tuple[Expr, ...]")
    return tuple(f.name for f in fields(node) if str(f.type).removesuffix(" | None") in kinds)
