"""Which names a body mentions, whoever declares them: what is still text mentions all its words."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any

from selector.gpu.ir.memory import StoreRows
from selector.gpu.ir.nodes import Body, Number, walk
from selector.gpu.ir.products import ADDS, MatrixRows, Mma
from selector.gpu.ir.views import View
from selector.ir.traverse import free_vars

_TEXTS = ("lines", "head", "elements")  # fields of C
_NAMES = ("base", "map", "memory", "pointer", "to", "unit")  # fields that are the name of something
_BY_LANE = (StoreRows, MatrixRows)  # where a lane's part is follows from its number


def mentioned(body: Body) -> set[str]:
    """The names, those of numbers (``Number``) that the body begins with as what these mention."""
    found: set[str] = set()
    texts: list[str] = []
    numbers: dict[str, str] = {}
    for node in walk(body):
        if isinstance(node, Number):
            numbers[node.name] = node.text
            continue
        for name, collect in _fields(type(node)):
            if value := getattr(node, name):
                collect(value, found, texts)
        if isinstance(node, _BY_LANE):
            found.add("lane")
        if isinstance(node, Mma) and node.how not in ADDS:
            found.add(node.how)
    texts += (numbers[name] for name in numbers.keys() & found)
    return found | words(" ".join(texts))


Collect = Callable[[Any, set[str], list[str]], object]
"""Adds names and texts that stand in a field to those that were found."""


def _of_view(view: View, found: set[str], _: list[str]) -> None:
    found.add(view.memory)
    for e in (view.start, view.at, view.index):
        if e is not None:
            found |= free_vars(e)


_COLLECT: dict[str, Collect] = {
    "Expr": lambda e, found, _: found.update(free_vars(e)),
    "tuple[Expr, ...]": lambda values, found, _: found.update(*map(free_vars, values)),
    "View": _of_view,
}
_OF_TEXT: dict[str, Collect] = {
    "str": lambda text, _, texts: texts.append(text),
    "tuple[str, ...]": lambda lines, _, texts: texts.extend(lines),
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
            found.append((field.name, lambda name, names, _: names.add(name)))
        elif kind in _OF_TEXT and field.name in _TEXTS:
            found.append((field.name, _OF_TEXT[kind]))
    return tuple(found)


class _Apart(dict[int, str]):
    """For ``str.translate``: characters that are in no word become spaces."""

    def __missing__(self, character: int) -> str:
        letter = chr(character)
        self[character] = letter if letter.isalnum() or letter == "_" else " "
        return self[character]


_APART = _Apart()


def words(text: str) -> set[str]:
    """The names in a text of C, and whatever else is written together: numbers, too."""
    return set(text.translate(_APART).split())
