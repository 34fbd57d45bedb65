"""Kernels with one mistake: in how their threads meet, or in what is copied where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from selector.gpu.ir.expressions import negated, number, plus
from selector.gpu.ir.memory import CopyAsync, EngineCopy, EngineStore, Map, Point
from selector.gpu.ir.nodes import (
    Advance,
    Arrive,
    Await,
    Body,
    Commit,
    Drain,
    Fence,
    For,
    Fused,
    If,
    Init,
    Kernel,
    Node,
    Retire,
    Under,
    walk,
)
from selector.gpu.ir.views import View

Mistake = Callable[[Node], Node | None]


def _mistakes(node: Node) -> Iterator[tuple[str, Node | None]]:
    """What may be wrong in place of a node; None: it is missing."""
    match node:
        case Init(barrier, arrivals):
            yield "one arrival more", Init(barrier, plus(arrivals, 1))
            yield "one arrival less", Init(barrier, plus(arrivals, -1))
            yield "not made", None
        case Await(how, barrier, phase):
            yield "no wait", None
            yield "the phase after", Await(how, barrier, plus(phase, 1))
        case Arrive(_, bytes_, after, block):
            yield "no arrival", None
            if bytes_ is not None:
                yield "more bytes", replace(node, bytes=plus(bytes_, 16))
                yield "no bytes", replace(node, bytes=None)
            if after:
                yield "not after the copies", replace(node, after="")
            if block is not None:
                yield "at its own block", replace(node, block=None)
        case EngineCopy():
            yield "no copy", None
            yield from _copied_elsewhere(node)
        case Advance():
            yield "no advance", None
            yield "one stage more", replace(node, stages=node.stages + 1)
        case Retire():
            yield "missing", None
        case If(condition, then, ()) if _meets(then):
            yield "the other way", If(negated(condition), then)
        case _:
            yield from _early_mistakes(node)


def _early_mistakes(node: Node) -> Iterator[tuple[str, Node | None]]:
    """Those after which nobody knows when instructions are complete."""
    match node:
        case Drain("matrix", pending):
            yield "no drain", None
            yield "one group less", Drain("matrix", pending + 1)
        case Commit("matrix"):
            yield "no commit", None
        case _:
            pass


def _copied_elsewhere(node: EngineCopy) -> Iterator[tuple[str, Node]]:
    if node.to.start is not None:
        yield "always to the first stage", replace(node, to=replace(node.to, start=None))
    if node.blocks:
        yield "for itself only", replace(node, blocks=0)


def _meets(body: Body) -> bool:
    return any(isinstance(node, Await | Arrive | Init) for node in walk(body))


def _misplaced(node: Node) -> Iterator[tuple[str, Node]]:
    """What may be wrong with a box or a chunk."""
    match node:
        case EngineCopy(to=view):
            yield "16 bytes further", replace(node, to=_further(view, 16))
            yield "a group of rows past the end", replace(node, to=_further(view, 1 << 18))
            yield "half of it awaited", replace(node, bytes=node.bytes // 2)
            yield "a coordinate less", replace(node, at=node.at[1:])
        case CopyAsync(to=to):
            yield "8 bytes further", replace(node, to=plus(to, 8))
        case Point("to", of=view) if view.index is not None:
            further = replace(view, index=plus(view.index, 1))
            yield "an element further", replace(node, of=further)
        case EngineStore(view, at=at):
            yield "16 bytes further", replace(node, source=_further(view, 16))
            yield "a coordinate more", replace(node, at=(*at, number(0)))
        case _:
            pass


def _further(view: View, bytes_: int) -> View:
    return replace(view, at=number(bytes_) if view.at is None else plus(view.at, bytes_))


def _wrong_maps(m: Map) -> Iterator[tuple[str, Map]]:
    yield "half the columns", replace(m, box=(m.box[0] // 2, *m.box[1:]))
    yield "twice the columns", replace(m, box=(2 * m.box[0], *m.box[1:]))
    yield "of another rank", replace(m, box=(*m.box, 1))


def misplaced(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """Every one of a kernel whose boxes are not those of its maps, or go elsewhere, as chunks."""
    for path, node in _places(kernel.body, ()):
        for what, other in _misplaced(node):
            yield f"{what}: {node}", replace(kernel, body=_replaced(kernel.body, path, (other,)))
    for path, node in _places(kernel.declarations, ()):
        for what, wrong in _wrong_maps(node) if isinstance(node, Map) else ():
            declarations = _replaced(kernel.declarations, path, (wrong,))
            yield f"{what}: {node}", replace(kernel, declarations=declarations)


def mutants(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """Every one of a kernel, with what is wrong."""
    places = list(_places(kernel.body, ()))
    engine = any(isinstance(node, EngineCopy) for _, node in places)
    for path, node in places:
        mistakes = [*_mistakes(node)]
        if engine and node == Fence("barriers"):
            mistakes.append(("missing", None))
        for what, other in mistakes:
            body = _replaced(kernel.body, path, () if other is None else (other,))
            yield f"{what}: {node}", replace(kernel, body=body)


Path = tuple[tuple[int, str], ...]


def _fields(node: Node) -> tuple[str, ...]:
    match node:
        case Under() | For() | Fused():
            return ("body",)
        case If():
            return ("then", "otherwise")
        case _:
            return ()


def _places(body: Body, outer: Path) -> Iterator[tuple[Path, Node]]:
    for i, node in enumerate(body):
        here = (*outer, (i, ""))
        yield here, node
        for name in _fields(node):
            yield from _places(getattr(node, name), (*outer, (i, name)))


def _replaced(body: Body, path: Path, by: Body) -> Body:
    (i, name), *rest = path
    if rest:
        node = body[i]
        by = (replace(node, **{name: _replaced(getattr(node, name), tuple(rest), by)}),)
    return (*body[:i], *by, *body[i + 1 :])
