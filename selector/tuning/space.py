"""Spaces: which configurations are tried, and in which order.

A space is a mapping of names to choices, whose product is taken, or any iterable of
configurations. The order is the one in which they are written (of a product, the last name varies
fastest), the same in every run.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from selector.dataclass import dataclass
from selector.diagnostics import UserError

Settings = dict[str, Any]
MOST_POINTS = 100_000


@dataclass(frozen=True, slots=True)
class Point:
    """A configuration: ``value`` as the user gave it, ``settings`` as JSON data."""

    index: int
    value: Any
    settings: Settings

    def call(self, function: Callable[..., Any]) -> Any:
        """``function(**value)`` for a mapping, ``function(value)`` for anything else."""
        if isinstance(self.value, Mapping):
            return function(**self.value)
        return function(self.value)

    def __str__(self) -> str:
        return describe(self.settings)


def describe(settings: Mapping[str, Any]) -> str:
    """Settings as a user reads them: ``n=256, stages=4``."""
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def points_of(
    space: Mapping[str, Iterable[Any]] | Iterable[Any],
    where: Callable[..., bool] | None = None,
    shuffle: int | None = None,
) -> tuple[Point, ...]:
    """The points of a space, without those that ``where`` refuses and without repetitions.

    ``where`` is called as the schedule is. ``shuffle``: a seed; the same seed, the same order.
    ``UserError`` for a space with nothing in it, or with more than ``MOST_POINTS``.
    """
    values: Iterable[Any] = _product(space) if isinstance(space, Mapping) else space
    found: dict[str, Point] = {}
    for value in values:
        settings = _settings(value)
        point = Point(len(found), value, settings)
        if repr(settings) in found or (where is not None and not point.call(where)):
            continue
        found[repr(settings)] = point
        if len(found) > MOST_POINTS:
            raise UserError(
                f"the space has more than {MOST_POINTS} configurations",
                hint="tune() tries every one: leave choices out, or give where=",
            )
    if not found:
        raise UserError(
            "the space has no configuration",
            why="a name has no choices, or where= refused all of them",
        )
    points = list(found.values())
    if shuffle is not None:
        random.Random(shuffle).shuffle(points)
    return tuple(dataclasses.replace(p, index=i) for i, p in enumerate(points))


def _product(space: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    choices: list[tuple[Any, ...]] = []
    for name, values in space.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise UserError(
                f"the choices of {name!r} are {values!r}",
                hint=f"give a sequence: {name}=[{values!r}]",
            )
        choices.append(tuple(values))
    return (dict(zip(space, chosen, strict=True)) for chosen in itertools.product(*choices))


def _settings(value: Any) -> Settings:
    if isinstance(value, Mapping):
        return {str(name): _plain(v) for name, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return {"configuration": _plain(value)}


def _plain(value: Any) -> Any:
    """A value as JSON has it; the text of what JSON has not."""
    match value:
        case bool() | int() | float() | str() | None:
            return value
        case tuple() | list():
            return [_plain(v) for v in value]
        case Mapping():
            return {str(k): _plain(v) for k, v in value.items()}
        case _:
            return repr(value)
