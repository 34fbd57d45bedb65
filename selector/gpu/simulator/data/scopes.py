"""What a body declares and sets, and whether all of it is nodes."""

from __future__ import annotations

from collections.abc import Iterator

from selector.gpu.ir.memory import Array, LoadShifted, Point, Store
from selector.gpu.ir.nodes import (
    Advance,
    Assign,
    Body,
    For,
    Kernel,
    Let,
    Memory,
    Node,
    Raw,
    State,
    Under,
    children,
    walk,
)
from selector.gpu.ir.products import Descriptor, Fragment, LoadFragment, MatrixRows, Mma, SetTile
from selector.ir.nodes import Call, Expr, Var


def declared_in(body: Body) -> Iterator[str]:
    """Names that end with a body."""
    for node in body:
        match node:
            case Let(names=names) | State(names=names) | LoadFragment(registers=names):
                yield from (name for name in names if "[" not in name)
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
        case Store(to):
            yield from _root(to)
        case LoadFragment(registers=names):
            yield from (name.partition("[")[0] for name in names)
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
        case Under(body=body):
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


def text_in(kernel: Kernel) -> int:
    """How many lines of a kernel's body are text that does something."""
    count = 0
    for node in walk(kernel.body):
        match node:
            case Raw(lines):
                count += sum(bool(x.strip()) and not x.strip().startswith("//") for x in lines)
            case Under(head) if head:
                count += 1
            case _:
                pass
    return count
