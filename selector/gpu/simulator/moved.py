"""What nodes of single threads do to shared memory, and nothing else of them: the one place that
says what such a node reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterator

from selector.gpu.ir.expressions import number
from selector.gpu.ir.layouts import CHUNK
from selector.gpu.ir.memory import (
    Array,
    CopyAsync,
    CopyElement,
    CopyRun,
    Evaluate,
    LoadShifted,
    Point,
    Store,
    StoreChunk,
    StorePair,
    StoreQuad,
    StoreRows,
    StoreWords,
)
from selector.gpu.ir.nodes import (
    Assign,
    Body,
    Comment,
    For,
    If,
    Leave,
    Let,
    Node,
    Raw,
    State,
    Under,
    children,
    walk,
)
from selector.gpu.ir.products import SetTile
from selector.gpu.ir.touched import Touch
from selector.gpu.ir.views import BYTES
from selector.gpu.simulator.resolved import INSIDE, Names
from selector.ir.nodes import Expr, IntImm, Select, Var
from selector.ir.traverse import map_expr

Move = CopyAsync | CopyElement | CopyRun | LoadShifted | Touch
_STORES = (
    Array | Store | StoreChunk | StorePair | StoreQuad | StoreWords | StoreRows | SetTile
    | Evaluate | Raw | Under
)  # fmt: skip
_ALONE = Move | _STORES | Comment | Point | For | If | Leave | Let | State | Assign


def moves_only(node: Node) -> bool:
    """Whether threads do each its own in a node, and some of it in shared memory."""
    inside = tuple(walk((node,)))
    if isinstance(node, Under) or not any(isinstance(x, Move) for x in inside):
        return False
    return all(isinstance(x, _ALONE) for x in inside) and not _leaves(node, in_loop=False)


def stores_only(node: Node) -> bool:
    """Whether threads do each its own in a node, which nothing here follows."""
    inside = tuple(walk((node,)))
    known = _STORES | Comment | Point | For | If | Let
    loops = tuple(x for x in inside if isinstance(x, For))
    own = {
        id(y) for x in loops for y in walk(x.body) if isinstance(y, Leave) and y.what != "kernel"
    }
    return any(isinstance(x, _STORES) for x in inside) and all(
        isinstance(x, known) or id(x) in own for x in inside
    )


def is_moved(node: Node) -> bool:
    """Whether a node is what ``moved`` leaves of one, and no part of another."""
    kinds = For | If | Leave | Touch | CopyRun
    return moves_only(node) and all(isinstance(x, kinds) for x in walk((node,)))


def _leaves(node: Node, *, in_loop: bool) -> bool:
    """Whether one goes on elsewhere from it than behind it."""
    match node:
        case Leave(what):
            return not in_loop or what == "kernel"
        case For(body=body):
            return any(_leaves(x, in_loop=True) for x in body)
        case _:
            return any(_leaves(x, in_loop=in_loop) for x in children(node))


def moved(node: Node, names: Names) -> Body:
    """What a node does to shared memory, in expressions of what has a value."""
    found = _node(node, names)
    return found if any(isinstance(x, Touch | CopyRun) for x in walk(found)) else ()


def _body(body: Body, names: Names) -> Body:
    inner = names.inner()
    return tuple(x for node in body for x in _node(node, inner))


def _node(node: Node, names: Names) -> Body:
    match node:
        case Let(_, own, values):
            for name, value in zip(own, values, strict=True):
                names.replace(name, value)
        case State(_, own):
            for name in own:
                names.replace(name, None)
        case Assign(name) | Store(Var(name)):
            names.replace(name, None)
        case Point():
            names.declare(node)
        case Under("", body):
            return _body(body, names)
        case For():
            return _loop(node, names)
        case If(condition, then, otherwise):
            parts = _body(then, names), _body(otherwise, names)
            return (If(names.condition(condition), *parts),) if any(parts) else ()
        case Leave():
            return (node,)
        case CopyAsync() | CopyElement() | LoadShifted() | CopyRun() | Touch():
            return tuple(_move(node, names))
        case _:
            pass
    return ()


def _loop(node: For, names: Names) -> Body:
    inner = names.inner()
    inner.known.add(node.var)
    inner.values.pop(node.var, None)
    start, stop, step = (
        None if e is None else names.resolved(e) for e in (node.start, node.stop, node.step)
    )
    if start is None or stop is None or (step is None) != (node.step is None):
        return ()
    if any(isinstance(x, Store) and x.to == Var(node.var) for x in walk(node.body)):
        return ()  # it goes over what nothing here knows
    body = _body(node.body, inner)
    return (For("plain", node.var, start, stop, step, body),) if body else ()


def _move(node: Move, names: Names) -> Iterator[Node]:
    match node:
        case CopyAsync(to, _, _, wanted):
            yield from _touch("copied", names.resolved(to), CHUNK, wanted, names)
        case CopyElement(to, kind, index, wanted=wanted) if to in names.bytes:
            yield from _touch("stored", names.address(to, index), BYTES[kind], wanted, names)
        case LoadShifted(_, valid) if "to" in names.bytes:
            at = names.address("to")
            if at is not None:
                yield Touch("stored", at, CHUNK, _there(valid, names))
        case CopyRun(to, _, bytes_, barrier):
            at, length, of = names.resolved(to), names.resolved(bytes_), names.resolved(barrier)
            if at is not None and length is not None and of is not None:
                yield CopyRun(at, number(0), length, of)
        case Touch(how, at, bytes_, wanted):
            yield from _touch(how, names.resolved(at), bytes_, wanted, names)
        case _:
            pass


def _touch(
    how: str, at: Expr | None, bytes_: int, wanted: Expr | None, names: Names
) -> Iterator[Touch]:
    if at is not None:
        yield Touch(how, at, bytes_, None if wanted is None else names.condition(wanted))


def _there(valid: Expr, names: Names) -> Expr | None:
    """Whether there is such a chunk; what lies outside of the array is zeros."""
    match valid:
        case Select(condition):
            return _all_inside(names.condition(condition))
        case _:
            return None


def _all_inside(e: Expr) -> Expr:
    return IntImm(1, e.type) if e == INSIDE else map_expr(e, _all_inside)
