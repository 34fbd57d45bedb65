"""What a launch gives a kernel."""

from __future__ import annotations

from selector.dataclass import dataclass
from selector.diagnostics import InternalError
from selector.ir.types import Type

WAYS = ("read", "write", "pass", "value", "map")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel. ``way``: a pointer to elements of ``type``, of an array that the
    kernel may only ``read``, that it may ``write``, or that launches ``pass`` to each other; a
    ``value`` of that type; a tensor ``map`` of such elements.
    """

    way: str
    type: Type
    name: str

    def __str__(self) -> str:
        return f"{self.way} {self.type} {self.name}"


def parse_parameter(text: str) -> Parameter:
    """The parameter that prints so."""
    way, type_, name = text.split(" ")
    if way not in WAYS:
        raise InternalError(f"`{text}` is no parameter")
    return Parameter(way, Type.parse(type_), name)
