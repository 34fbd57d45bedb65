"""What nodes of single threads do to shared memory, and nothing else of them: the one place that
says what such a node reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from selector.dataclass import dataclass
from selector.gpu.ir.expressions import number
from selector.gpu.ir.layouts import CHUNK
from selector.gpu.ir.memory import (
    CopyAsync,
    CopyElement,
    CopyRun,
    EngineStore,
    LoadShifted,
    Point,
    Store,
    StoreNode,
    StoreWords,
)
from selector.gpu.ir.nodes import (
    Assign,
    Body,
    Comment,
    For,
    If,
    Kernel,
    Leave,
    Let,
    Local,
    Memory,
    Node,
    State,
    Touch,
    children,
    walk,
)
from selector.gpu.ir.products import SetTile
from selector.gpu.ir.views import BYTES, View
from selector.gpu.simulator.resolved import INSIDE, Names
from selector.ir.nodes import Call, Expr, IntImm, Select, Var
from selector.ir.traverse import replaced_all

Move = CopyAsync | CopyElement | CopyRun | LoadShifted | Touch
_MOVES = frozenset(get_args(Move))
_STORES = frozenset((*get_args(StoreNode), SetTile, Local))
_PLAIN = _STORES | {Comment, Point, For, If, Let, Leave}
_ALONE = _PLAIN | _MOVES | {State, Assign}
_MOVED = frozenset((For, If, Leave, Touch, CopyRun))


@dataclass(frozen=True, slots=True)
class _Contents:
    """Of a node and all inside: of which kinds they are; what is left from there on, that a thread
    goes on behind another node.
    """

    kinds: frozenset[type[Node]]
    leaves: frozenset[str]


class Alone:
    """What threads do each on its own in the nodes of a kernel, of which each is looked at once."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel  # whose nodes live as long as what is known of them
        self._shared = _pointers_to_shared(kernel)
        self._of: dict[int, _Contents] = {}
        for node in kernel.body:
            self._look(node)

    def _look(self, node: Node) -> _Contents:
        inner = [self._look(x) for x in children(node)]
        leaves = frozenset[str]().union(*(x.leaves for x in inner))
        match node:
            case Leave(what):
                leaves |= {what}
            case For():
                leaves &= {"kernel"}
            case _:
                pass
        own = (type(node), Touch) if _stored_to(node) in self._shared else (type(node),)
        kinds = frozenset(own).union(*(x.kinds for x in inner))
        self._of[id(node)] = found = _Contents(kinds, leaves)
        return found

    def moves_only(self, node: Node) -> bool:
        """Whether that is all of a node, and some of it in shared memory."""
        found = self._of[id(node)]
        some = bool(found.kinds & _MOVES) and not isinstance(node, Local)
        return some and found.kinds <= _ALONE and not found.leaves

    def stores_only(self, node: Node) -> bool:
        """Whether that is all of a node, and nothing here follows it."""
        found = self._of[id(node)]
        return bool(found.kinds & _STORES) and found.kinds <= _PLAIN and not found.leaves

    def is_moved(self, node: Node) -> bool:
        """Whether a node is what ``moved`` leaves of one, and no part of another."""
        return self.moves_only(node) and self._of[id(node)].kinds <= _MOVED


def _pointers_to_shared(kernel: Kernel) -> frozenset[str]:
    """Memory, and pointers into it; but not what the engine stores, of which results wait there."""
    found: set[str] = set()
    stored = {x.source.memory for x in walk(kernel.body) if isinstance(x, EngineStore)}
    for node in walk(kernel.body):
        match node:
            case Memory(name) if name not in stored:
                found.add(name)
            case Point(name, _, of) if of.memory in found:
                found.add(name)
            case _:
                pass
    return frozenset(found)


def _stored_to(node: Node) -> str | None:
    """The pointer behind which a thread stores by itself."""
    match node:
        case Store(Call(_, "element", (Var(name), *_))) | StoreWords(View(name)):
            return name
        case _:
            return None


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
        case Local(body):
            return _body(body, names)
        case For():
            return _loop(node, names)
        case If(condition, then, otherwise):
            parts = _body(then, names), _body(otherwise, names)
            return (If(names.condition(condition), *parts),) if any(parts) else ()
        case Leave():
            return (node,)
        case (
            CopyAsync() | CopyElement() | LoadShifted() | CopyRun() | Touch()
            | Store() | StoreWords()
        ):  # fmt: skip
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


def _move(node: Move | Store | StoreWords, names: Names) -> Iterator[Node]:
    match node:
        case Store(Call(t, "element", (Var(name), *parts))) if name in names.bytes:
            yield from _touch("stored", names.address(name, *parts), t.bytes, None, names)
        case StoreWords(view, words, wanted):
            yield from _touch("stored", names.byte_of(view), 4 * len(words), wanted, names)
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
            return replaced_all(names.condition(condition), {INSIDE: IntImm(1, INSIDE.type)})
        case _:
            return None
