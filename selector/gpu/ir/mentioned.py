"""Which names a body mentions, whoever declares them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any

from selector.gpu.ir.memory import StoreRows
from selector.gpu.ir.nodes import Body, walk
from selector.gpu.ir.products import ADDS, MatrixRows, Mma
from selector.gpu.ir.views import View
from selector.ir.traverse import free_vars

_NAMES = ("base", "map", "memory", "pointer", "to")  # fields that are the name of something
_BY_LANE = (StoreRows, MatrixRows)  # where a lane's part is follows from its number


def mentioned(body: Body) -> set[str]:
    """The names."""
    found: set[str] = set()
    for node in walk(body):
        for name, collect in _fields(type(node)):
            if value := getattr(node, name):
                collect(value, found)
        if isinstance(node, _BY_LANE):
            found.add("lane")
        if isinstance(node, Mma) and node.how not in ADDS:
            found.add(node.how)
    return found


Collect = Callable[[Any, set[str]], object]
"""Adds names that stand in a field to those that were found."""


def _of_view(view: View, found: set[str]) -> None:
    found.add(view.memory)
    for e in (view.start, view.at, view.index):
        if e is not None:
            found |= free_vars(e)


_COLLECT: dict[str, Collect] = {
    "Expr": lambda e, found: found.update(free_vars(e)),
    "tuple[Expr, ...]": lambda values, found: found.update(*map(free_vars, values)),
    "View": _of_view,
}


@cache
def _fields(node: type) -> tuple[tuple[str, Collect], ...]:
    """The fields that names stand in, and how they come out of each."""
    found: list[tuple[str, Collect]] = []
    for field in dataclasses.fields(node):
        kind = str(field.type).removesuffix(" | None")
        if kind in _COLLECT:
            found.append((field.name, _COLLECT[kind]))
        elif kind == "str" and field.name in _NAMES:
            found.append((field.name, lambda name, names: names.add(name)))
    return tuple(found)
