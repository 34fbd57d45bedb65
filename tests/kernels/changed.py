"""Kernels with one mistake: in how their threads meet, or in what is copied where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise, takewhile

from selector.gpu.ir.expressions import negated, number, plus
from selector.gpu.ir.layouts import Composed, Swizzle
from selector.gpu.ir.memory import CopyAsync, CopyRun, EngineCopy, EngineStore, Map, Point
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
    Leave,
    Local,
    Memory,
    Node,
    Read,
    Retire,
    Sync,
    Touch,
    walk,
)
from selector.gpu.ir.products import Busy, Descriptor, Pin
from selector.gpu.ir.views import View
from selector.ir.nodes import Call, IntImm

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
        case Advance(phase=phase) if phase:  # else it says which data is used
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
        case Drain(queue, pending, half):
            yield "no drain", None
            yield "one group less", Drain(queue, pending + 1, half)
        case Commit() | Sync() | Fence("proxy"):
            yield "missing", None
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
            yield "16 bytes further", replace(node, to=further_on(view, 16))
            yield "a group of rows past the end", replace(node, to=further_on(view, 1 << 18))
            yield "half of it awaited", replace(node, bytes=node.bytes // 2)
            yield "a coordinate less", replace(node, at=node.at[1:])
        case CopyAsync(to=to):
            yield "8 bytes further", replace(node, to=plus(to, 8))
        case Point("to", of=view) if view.index is not None:
            further = replace(view, index=plus(view.index, 1))
            yield "an element further", replace(node, of=further)
            yield from ((what, replace(node, of=other)) for what, other in laid_otherwise(view))
        case Memory(layout=Composed(Swizzle(row), inner)):
            yield "another swizzle", replace(node, layout=Composed(Swizzle(other_row(row)), inner))
            yield "no swizzle", replace(node, layout=inner)
        case Descriptor(stride=stride, swizzle=swizzle) if swizzle:
            yield "rows further apart", replace(node, stride=stride + swizzle)
            yield "another swizzle", replace(node, swizzle=other_row(swizzle))
        case EngineStore(view, at=at):
            yield "16 bytes further", replace(node, source=further_on(view, 16))
            yield "a coordinate more", replace(node, at=(*at, number(0)))
        case _:
            pass


def laid_otherwise(view: View) -> Iterator[tuple[str, View]]:
    """Into panels, as if these lay otherwise."""
    match view.index:
        case Call(t, "panel_index", (pitch, rows, size, IntImm(row), index)):
            sizes = pitch, rows, size, IntImm(other_row(row)), index
            yield "another swizzle", replace(view, index=Call(t, "panel_index", sizes))
            yield "no swizzle", replace(view, index=index)
        case _:
            pass


def other_row(row: int) -> int:
    """Another size of swizzled rows."""
    return {32: 64, 64: 128, 128: 64}[row]


def further_on(view: View, bytes_: int) -> View:
    return replace(view, at=number(bytes_) if view.at is None else plus(view.at, bytes_))


def _wrong_maps(m: Map) -> Iterator[tuple[str, Map]]:
    yield "half the columns", replace(m, box=(m.box[0] // 2, *m.box[1:]))
    yield "twice the columns", replace(m, box=(2 * m.box[0], *m.box[1:]))
    yield "of another rank", replace(m, box=(*m.box, 1))


def misplaced(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """Every one of a kernel whose boxes are not those of its maps, or go elsewhere, as chunks."""
    for path, node in places(kernel.body, ()):
        for what, other in _misplaced(node):
            yield f"{what}: {node}", replace(kernel, body=replaced(kernel.body, path, (other,)))
    for path, node in places(kernel.declarations, ()):
        for what, wrong in _wrong_maps(node) if isinstance(node, Map) else ():
            declarations = replaced(kernel.declarations, path, (wrong,))
            yield f"{what}: {node}", replace(kernel, declarations=declarations)


def mutants(kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """Every one of a kernel, with what is wrong. What is left out changes nothing that anybody can
    see: where nothing that touches memory or waits follows (``_over``), a group that the next one
    takes in or that is empty, a barrier of threads who have touched nothing since they last met or
    arrived (``_since``), or touch nothing until they meet again (``_until``), or whose
    instructions are complete for all once they are for one (``_one_group``).
    """
    found = list(places(kernel.body, ()))
    nodes = [node for _, node in found]
    engine = any(isinstance(node, EngineCopy) for _, node in found)
    yield from _early_releases(kernel, found)
    for i, (path, node) in enumerate(found):
        mistakes = [] if _unseen(nodes, i) or _unread(nodes, i) else [*_mistakes(node)]
        if engine and node == Fence("barriers"):
            mistakes.append(("missing", None))
        for what, other in mistakes:
            body = replaced(kernel.body, path, () if other is None else (other,))
            yield f"{what}: {node}", replace(kernel, body=body)


Path = tuple[tuple[int, str], ...]
_SEEN = Read | Busy | Pin | Touch | EngineCopy | EngineStore | CopyRun | Await | Arrive | Leave


def _unseen(nodes: list[Node], i: int) -> bool:
    """Whether nobody can see that a node is missing, or another group is waited for."""
    match nodes[i]:
        case Sync():
            told = _since(nodes, i, _meets_others, copies=False) or _around(nodes, i)
            told = told and _until(nodes[i + 1 :])
            return not told or _over(nodes, i) or _one_group(nodes, i)
        case Drain("copies"):
            return _over(nodes, i) or not _since(nodes, i, _ends_copies, copies=True)
        case Commit(queue):
            follows = (n for n in nodes[i + 1 :] if isinstance(n, Commit | Drain))
            joined = isinstance(next((n for n in follows if n.queue == queue), None), Commit)
            return joined or (queue == "copies" and not _since(nodes, i, _ends_copies, copies=True))
        case _:
            return False


def _since(nodes: list[Node], i: int, ends: Callable[[Node], bool], *, copies: bool) -> bool:
    """Whether memory is touched, or copied to by threads, behind the last node that ``ends`` it."""
    before = takewhile(lambda n: not ends(n), reversed(nodes[:i]))
    return any(map(_copies if copies else _touches, before))


def _around(nodes: list[Node], i: int) -> bool:
    """Whether memory is touched in a loop around a node behind the last one there that meets."""
    for loop in (n for n in nodes[:i] if isinstance(n, For)):
        inside = list(walk(loop.body))
        at = next((at for at, n in enumerate(inside) if n is nodes[i]), None)
        if at is not None:
            before = takewhile(lambda n: not _meets_others(n), reversed(inside[at + 1 :]))
            if any(map(_touches, before)):
                return True
    return False


def _copies(node: Node) -> bool:
    return isinstance(node, Touch) and node.how == "copied"


def _touches(node: Node) -> bool:
    return isinstance(node, _SEEN | Init | Drain)


def _until(later: list[Node]) -> bool:
    """Whether memory is touched before threads meet again."""
    upto = takewhile(lambda n: not isinstance(n, Sync), later)
    return any(isinstance(n, _SEEN) for n in upto)


def _meets_others(node: Node) -> bool:
    return isinstance(node, Sync | Arrive | Await)


def _ends_copies(node: Node) -> bool:
    match node:
        case Drain(queue):
            return queue == "copies"
        case Arrive(after=after):
            return bool(after)
        case _:
            return False


def _unread(nodes: list[Node], i: int) -> bool:
    """Whether a fence stands where no asynchronous work reads what was stored: stores beside runs
    of the copy engine are of other launches here, in which none of the array is inside.
    """
    fence = isinstance(nodes[i], Fence)
    return fence and not any(isinstance(n, Busy | EngineStore) for n in nodes)


def _over(nodes: list[Node], i: int) -> bool:
    """Whether no node follows that touches memory or waits, in a loop around or behind it."""
    around = (n for n in nodes[:i] if isinstance(n, For) and any(nodes[i] is x for x in walk((n,))))
    later = [*nodes[i + 1 :], *(x for n in around for x in walk(n.body))]
    return not any(isinstance(n, _SEEN) for n in later)


def _one_group(nodes: list[Node], i: int) -> bool:
    """Whether 128 threads meet that have done nothing since they drained their instructions."""
    node = nodes[i]
    before = (n for n in reversed(nodes[:i]) if isinstance(n, _SEEN | Drain))
    last = next((n for n in before if not isinstance(n, Pin)), None)
    return isinstance(node, Sync) and node.threads == 128 and last == Drain("matrix", 0)


def _early_releases(kernel: Kernel, found: list[tuple[Path, Node]]) -> Iterator[tuple[str, Kernel]]:
    """Who arrives before what it has waited for is complete."""
    for (path, node), (after, release) in pairwise(found):
        tells = any(isinstance(n, Arrive) for n in walk((release,)))
        if tells and isinstance(node, Drain) and path[:-1] == after[:-1]:
            kept = replaced(kernel.body, after, (node,))
            yield f"before: {node}", replace(kernel, body=replaced(kept, path, (release,)))


def _fields(node: Node) -> tuple[str, ...]:
    match node:
        case Local() | For() | Fused():
            return ("body",)
        case If():
            return ("then", "otherwise")
        case _:
            return ()


def places(body: Body, outer: Path) -> Iterator[tuple[Path, Node]]:
    for i, node in enumerate(body):
        here = (*outer, (i, ""))
        yield here, node
        for name in _fields(node):
            yield from places(getattr(node, name), (*outer, (i, name)))


def replaced(body: Body, path: Path, by: Body) -> Body:
    (i, name), *rest = path
    if rest:
        node = body[i]
        by = (replace(node, **{name: replaced(getattr(node, name), tuple(rest), by)}),)
    return (*body[:i], *by, *body[i + 1 :])
