"""Which names a body mentions, whoever declares them: what is still text mentions all its words."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

from selector.gpu.ir.memory import StoreRows
from selector.gpu.ir.nodes import Body, Node, Number, walk
from selector.gpu.ir.products import MatrixRows
from selector.gpu.ir.views import View
from selector.ir.nodes import Expr
from selector.ir.traverse import free_vars

_TEXTS = ("lines", "head", "elements")  # fields of C
_NAMES = ("base", "map", "pointer", "to", "unit")  # fields that are the name of something
_BY_LANE = (StoreRows, MatrixRows)  # where a lane's part is follows from its number


def mentioned(body: Body) -> set[str]:
    """The names, those of numbers (``Number``) that the body begins with as what these mention."""
    found: set[str] = set()
    texts: list[str] = []
    numbers: dict[str, str] = {}
    for node in walk(body):
        if isinstance(node, Number):
            numbers[node.name] = node.text
        else:
            _collect(node, found, texts)
    texts += (numbers[name] for name in numbers.keys() & found)
    return found | words(" ".join(texts))


def _collect(node: Node, found: set[str], texts: list[str]) -> None:
    """Add the names and texts that stand in a node itself."""
    if isinstance(node, _BY_LANE):
        found.add("lane")
    for name, kind in _fields(type(node)):
        value: Any = getattr(node, name)
        if not value:
            continue
        match kind:
            case "Expr":
                found |= free_vars(value)
            case "View":
                found.add(value.memory)
                found.update(*(free_vars(e) for e in _parts(value)))
            case "tuple[Expr, ...]":
                found.update(*map(free_vars, value))
            case "str" if name in _NAMES:
                found.add(value)
            case "str":
                texts.append(value)
            case _:
                texts += value


def _parts(view: View) -> list[Expr]:
    return [e for e in (view.start, view.at, view.index) if e is not None]


@cache
def _fields(node: type) -> tuple[tuple[str, str], ...]:
    """The fields that names stand in, and of what kind they are."""
    found: list[tuple[str, str]] = []
    for field in dataclasses.fields(node):
        kind = str(field.type).removesuffix(" | None")
        text = kind in ("str", "tuple[str, ...]") and field.name in (*_TEXTS, *_NAMES)
        if text or kind in ("Expr", "View", "tuple[Expr, ...]"):
            found.append((field.name, kind))
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
