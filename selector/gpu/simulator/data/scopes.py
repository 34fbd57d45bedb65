"""What a body declares and sets."""

from __future__ import annotations

from collections.abc import Iterator

from selector.gpu.ir.memory import Array, LoadShifted, LoadVector, Point, Store
from selector.gpu.ir.nodes import (
    Advance,
    Assign,
    Body,
    For,
    Let,
    Local,
    Memory,
    Node,
    State,
    children,
)
from selector.gpu.ir.products import Descriptor, Fragment, LoadFragment, MatrixRows, Mma, SetTile
from selector.ir.nodes import Call, Expr, Var


def declared_in(body: Body) -> Iterator[str]:
    """Names that end with a body."""
    for node in body:
        match node:
            case Let(names=names) | State(names=names):
                yield from names
            case LoadFragment(registers=registers):
                yield from (r.name for r in registers if r.index is None)
            case (
                Memory(name) | Point(name) | Array(name) | Fragment(name) | MatrixRows(name)
                | Descriptor(name)
            ):  # fmt: skip
                yield name
            case _:
                pass


def set_in(body: Body) -> frozenset[str]:
    """Names from outside of a body that it sets."""
    found: set[str] = set()
    for node in body:
        found |= set(_set_by(node))
    return frozenset(found - set(declared_in(body)))


def _set_by(node: Node) -> Iterator[str]:
    match node:
        case Assign(name) | Mma(to=name) | SetTile(to=name):
            yield name
        case Advance(phase=phase):
            yield from ("slot", phase) if phase else ("slot",)
        case LoadShifted():
            yield "parts"
        case Store(to) | LoadVector(to):
            yield from _root(to)
        case LoadFragment(registers=registers):
            yield from (r.name for r in registers)
        case For(var=name, start=None, body=body):
            yield name
            yield from set_in(body)
        case For(var=name, body=body):
            yield from set_in(body) - {name}
        case _:
            for inner in _bodies(node):
                yield from set_in(inner)


def _bodies(node: Node) -> Iterator[Body]:
    match node:
        case Local(body):
            yield body
        case _:
            yield from ((x,) for x in children(node))


def _root(e: Expr) -> Iterator[str]:
    """The variable that an element is of."""
    match e:
        case Var(name):
            yield name
        case Call(_, "element", (whole, *_)):
            yield from _root(whole)
        case _:
            pass
