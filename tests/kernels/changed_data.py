"""Kernels with one mistake in what lies where: of layouts, lanes, padding, accumulators, fences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from changed import Path, further_on, laid_otherwise, other_row, places, replaced

from selector.gpu.ir.expressions import negated, number, plus
from selector.gpu.ir.memory import (
    CopyAsync,
    CopyElement,
    CopyRun,
    EngineCopy,
    EngineStore,
    LoadShifted,
    Point,
    Store,
    StoreEight,
    StorePair,
    StoreQuad,
    StoreRows,
    StoreRun,
    StoreThere,
    StoreWords,
)
from selector.gpu.ir.nodes import Fence, Kernel, Node
from selector.gpu.ir.products import (
    BYTE_PAIRS,
    Descriptor,
    InMemory,
    InRegisters,
    LoadFragment,
    MatrixRows,
    Mma,
    Operand,
    SetTile,
)


def _mistakes(node: Node) -> Iterator[tuple[str, Node | None]]:
    match node:
        case SetTile() | StoreWords() | StoreRows() | LoadShifted():
            yield "missing", None
        case CopyElement(index=index, inside=inside):
            yield "missing", None
            yield "an element further", replace(node, index=plus(index, 1))
            yield "zeros inside, what is not there outside", replace(node, inside=negated(inside))
        case StoreThere():
            yield "missing", None
            yield "in one block alone", replace(node, block=number(0))
        case CopyAsync(to=to):
            yield "missing", None
            yield "16 bytes further", replace(node, to=plus(to, 16))
        case CopyRun(to=to, source=source):
            yield "16 bytes further", replace(node, to=plus(to, 16))
            yield "of a row 16 elements further", replace(node, source=plus(source, 16))
        case Point("to", of=view) if view.index is not None:
            further = replace(view, index=plus(view.index, 8))
            yield "8 elements further", replace(node, of=further)
            yield from ((what, replace(node, of=other)) for what, other in laid_otherwise(view))
        case EngineCopy() | EngineStore():
            yield from _boxes(node)
        case _:
            yield from _products(node)


def _boxes(node: EngineCopy | EngineStore) -> Iterator[tuple[str, Node | None]]:
    first, *rest = node.at
    yield "a column further", replace(node, at=(plus(first, 1), *rest))
    *rest, last = node.at
    yield "a row further", replace(node, at=(*rest, plus(last, 1)))
    match node:
        case EngineCopy(to=view):
            yield "1024 bytes further", replace(node, to=further_on(view, 1024))
        case EngineStore(source=view):
            yield "missing", None
            yield "1024 bytes further", replace(node, source=further_on(view, 1024))


def _products(node: Node) -> Iterator[tuple[str, Node | None]]:
    match node:
        case Store(to, value) if value.type == to.type:
            yield "missing", None
        case StorePair(values=(a, b)):
            yield "the other lane's", replace(node, values=(b, a))
        case StoreQuad(values=(a, b, c, d)):
            yield "the other lane's", replace(node, values=(c, d, a, b))
        case StoreEight(values=(a, b, c, d)):
            yield "the rows below", replace(node, values=(c, d, a, b))
        case StoreRun(values=values):
            yield "another piece's", replace(node, values=values[::-1])
        case MatrixRows(first=first, step=step, apart=apart):
            yield "rows further apart", replace(node, step=plus(step, 8))
            yield "8 elements further", replace(node, first=plus(first, 8))
            if len(apart) > 1 and apart[0] != apart[1]:
                yield "matrices in another order", replace(node, apart=apart[::-1])
        case LoadFragment(names, how) if how.startswith("ldmatrix"):
            way = "ldmatrix" if how.endswith("trans") else "ldmatrix_trans"
            yield "the other way", replace(node, how=way)
            yield "16 bytes further", replace(node, at=node.at + 16)
            if len(names) > 1:
                yield "registers in another order", replace(node, registers=names[::-1])
        case LoadFragment(how="word"):
            yield "a word further", replace(node, at=node.at + 1)
        case LoadFragment(how=how) if how in (*BYTE_PAIRS, "byte_word"):
            yield "two bytes further", replace(node, at=node.at + 2)
        case _:
            yield from _instructions(node)


def _instructions(node: Node) -> Iterator[tuple[str, Node | None]]:
    match node:
        case Descriptor(swizzle=swizzle, stride=stride):
            yield "rows further apart", replace(node, stride=stride + 128)
            if swizzle:
                yield "another swizzle", replace(node, swizzle=other_row(swizzle))
        case Mma(how, a=a, b=b):
            if how == "fresh":
                yield "not fresh", replace(node, how="add")
            yield from ((f"left {what}", replace(node, a=x)) for what, x in _operands(a))
            yield from ((f"right {what}", replace(node, b=x)) for what, x in _operands(b))
        case _:
            pass


def _operands(x: Operand) -> Iterator[tuple[str, Operand]]:
    match x:
        case InRegisters(names) if len(set(names)) > 1:
            yield "registers in another order", InRegisters(names[::-1])
        case InMemory(at=at):
            yield "16 bytes further", replace(x, at=at + 16)
        case _:
            pass


def data_mutants(kernel: Kernel) -> Iterator[tuple[Node, str, Kernel]]:
    """Every one of a kernel: the node that is wrong, what is wrong with it. What changes no number
    is left out: a product that is the first of a tile of zeros forgets nothing (``_forgets``); each
    thread fences before every stage that it fills, so that one fence less is made good by the next
    one, and only the lack of all that say the same is a mistake.
    """
    found = list(places(kernel.body, ()))
    for path, node in found:
        mistakes = [*_mistakes(node)]
        if _forgets(found, path, node):
            assert isinstance(node, Mma)
            mistakes.append(("forgets what was there", replace(node, how="fresh")))
        for what, other in mistakes:
            by = () if other is None else (other,)
            yield node, what, replace(kernel, body=replaced(kernel.body, path, by))
    fences = [(p, n) for p, n in found if isinstance(n, Fence) and n.what == "proxy"]
    for note in dict.fromkeys(n.note for _, n in fences):
        own = [(p, n) for p, n in fences if n.note == note]
        body = kernel.body
        for path, _ in reversed(own):
            body = replaced(body, path, ())
        yield own[0][1], "all like it are missing", replace(kernel, body=body)


def _forgets(around: list[tuple[Path, Node]], path: Path, node: Node) -> bool:
    """Whether another product stands before one in its body, of the same tile."""
    if not isinstance(node, Mma) or node.how == "fresh":
        return False
    same = (
        p for p, n in around
        if p[:-1] == path[:-1] and isinstance(n, Mma) and (n.to, n.piece) == (node.to, node.piece)
    )  # fmt: skip
    return next(same) != path
