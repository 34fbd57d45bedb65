"""What is found out about a node stays with it: nodes never change.

A class of nodes inherits from ``Known``, whose slots are empty until ``selector.ir.contents`` or a
first ``hash`` fills them. They are no fields: they do not count in comparisons, and are neither
printed nor pickled nor handed on by ``replace``.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, TypeVar, dataclass_transform

from selector.dataclass import unguarded


class Hashed:
    """A slot for the hash."""

    __slots__ = ("known_hash",)

    known_hash: int


class Known(Hashed):
    """Slots for the hash of a node, and for what is below it: the classes of its nodes, the buffers
    that it loads from and stores to, the variables that are free in it, its polynomial, the parts
    of a product.
    """

    __slots__ = (
        "known_affine",
        "known_free",
        "known_kinds",
        "known_loads",
        "known_parts",
        "known_stores",
    )

    known_affine: Any  # an Affine, which is made of nodes
    known_free: frozenset[str]
    known_kinds: int
    known_loads: frozenset[str]
    known_parts: Any  # an Accumulate, or None (selector.lowering.tiles)
    known_stores: frozenset[str]


T = TypeVar("T", bound=Hashed)

keep = object.__setattr__
"""Fills a slot of a frozen node."""


def hashed_once(cls: type[T]) -> type[T]:
    """The class with a hash that is taken of all fields once, and not at every level again."""
    of_fields = cls.__hash__

    def hash_once(self: T) -> int:
        value: int | None = getattr(self, "known_hash", None)
        if value is None:
            value = of_fields(self)
            self.known_hash = value
        return value

    setattr(cls, "__hash__", hash_once)  # noqa: B010 (a method of a class that is not known here)
    return cls


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def node(cls: type[T]) -> type[T]:
    """A frozen dataclass with slots, whose hash is taken once."""
    return hashed_once(unguarded(cls))
