"""A kernel without what its threads do alone: what is left is how they meet, and what asynchronous
instructions have meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from selector.gpu.cuda.preamble import words
from selector.gpu.ir.descriptors import span
from selector.gpu.ir.memory import (
    Array,
    CopyAsync,
    CopyElement,
    CopyRun,
    EngineCopy,
    EngineStore,
    Evaluate,
    LoadShifted,
    Map,
    Point,
    Prefetch,
    Store,
    StoreChunk,
    StoreRows,
    StoreWords,
)
from selector.gpu.ir.nodes import (
    Body,
    Comment,
    Commit,
    Dependents,
    Drain,
    Fence,
    For,
    Fused,
    If,
    Kernel,
    Let,
    Node,
    Raw,
    Registers,
    State,
    Under,
    expressions,
    walk,
)
from selector.gpu.ir.products import (
    Busy,
    Descriptor,
    Fragment,
    InMemory,
    InRegisters,
    LoadFragment,
    MatrixRows,
    Mma,
    Operand,
    Pin,
)
from selector.gpu.simulator.asked import asked_only
from selector.ir.traverse import free_vars

Span = tuple[str, int, int]  # a descriptor, bytes behind its start


def meeting_only(kernel: Kernel) -> Kernel:
    """The kernel without text and name, with the memory that the copy engine fills or wgmma reads,
    and the numbers that its control mentions.
    """
    body, numbers = asked_only(_Reduction(kernel).body(kernel.body), kernel.declarations)
    return replace(kernel, name="", bounds="", parameters=(), declarations=numbers, body=body)


class _Reduction:
    """Of one kernel: ``watched`` are the fragments of asynchronous instructions."""

    def __init__(self, kernel: Kernel) -> None:
        self.descriptors: dict[str, Descriptor] = {}  # the last of each name
        self.watched: dict[str, None] = {}
        for node in walk(kernel.body):
            match node:
                case Mma(record=record) if record.asynchronous:
                    self.watched |= dict.fromkeys(_fragments(node))
                case Busy(fragments):  # of a kernel that is reduced already
                    self.watched |= dict.fromkeys(fragments)
                case _:
                    pass

    def body(self, body: Body) -> Body:
        """What is left: instructions that follow each other as one, and no touch twice in a row."""
        found: list[Node] = []
        run: list[Mma] = []
        pinned: set[Node] = set()  # since something else happened
        for node in body:
            if isinstance(node, Mma) and node.record.asynchronous:
                run.append(node)
                continue
            kept = tuple(x for x in self.node(node) if x not in pinned)
            if run and kept:
                found.append(self.busy(run))
                run, pinned = [], set()
            found += kept
            pinned = pinned | {*kept} if all(isinstance(x, Pin) for x in kept) else set()
        return (*found, self.busy(run)) if run else tuple(found)

    def node(self, node: Node) -> Body:
        """What is left of a node."""
        match node:
            case Under("", inner) | Fused(inner):
                left = self.body(inner)
                return (Under("", left),) if left else ()
            case Under() | Raw() | Store() | Evaluate():
                return self.touches(node)
            case For(body=inner):
                left = self.body(inner)
                return (replace(node, body=left),) if left else ()
            case If(condition, then, otherwise):
                left, other = self.body(then), self.body(otherwise)
                return (If(condition, left, other),) if left or other else ()
            case EngineCopy():
                return (replace(node, map="", at=()),)
            case Descriptor(name):
                self.descriptors[name] = node
                return (node,)
            case Pin(name):
                return (node,) if name in self.watched else ()
            case _:
                return (node,) if _meets(node) else ()

    def touches(self, node: Node) -> Body:
        """Of the fragments that text mentions."""
        if not self.watched:
            return ()
        found: set[str] = set()
        for x in walk((node,)):
            match x:
                case Pin(name):
                    found.add(name)
                case Raw(lines):
                    found |= words(" ".join(text.partition("//")[0] for text in lines))
                case Under(head):
                    found |= words(head)
                case Store() | Evaluate() | Let() | State() | If():
                    found = found.union(*map(free_vars, expressions(x)))
                case _:
                    pass
        return tuple(Pin(name) for name in self.watched if name in found)

    def busy(self, run: list[Mma]) -> Busy:
        """What instructions have."""
        spans: dict[str, tuple[int, int]] = {}
        for name, first, last in (s for node in run for s in self.spans(node)):
            low, high = spans.get(name, (first, last))
            spans[name] = min(low, first), max(high, last)
        fragments = dict.fromkeys(name for node in run for name in _fragments(node))
        first, last = zip(*spans.values(), strict=True)
        return Busy(tuple(fragments), tuple(spans), first, last)

    def spans(self, node: Mma) -> Iterator[Span]:
        """The bytes that an instruction reads."""
        r = node.record
        for x, rows in ((node.a, r.m), (node.b, r.n)):
            if isinstance(x, InMemory):
                d = self.descriptors[x.descriptor]
                steps, depth = (d.leading, d.stride, d.swizzle), r.k
                rows, depth = (rows * r.bytes, depth) if x.across else (rows, depth * r.bytes)
                yield x.descriptor, *span(steps, rows, depth, x.at, across=x.across)


def _meets(node: Node) -> bool:
    """Whether a node without others is of any concern."""
    match node:
        case Commit(queue) | Drain(queue):
            return queue == "matrix"
        case Fence(what):
            return what == "barriers"
        case Map() | Prefetch() | EngineStore() | Registers() | Dependents():
            return False
        case Point() | CopyAsync() | CopyElement() | CopyRun() | LoadShifted():
            return False
        case Array() | Store() | StoreChunk() | StoreWords() | StoreRows():
            return False
        case Evaluate() | Comment():
            return False
        case Fragment() | MatrixRows() | LoadFragment() | Mma():
            return False
        case _:
            return True


def _fragments(node: Mma) -> Iterator[str]:
    """Those of an instruction."""
    yield node.to
    for x in (node.a, node.b):
        yield from _named(x)


def _named(x: Operand) -> Iterator[str]:
    match x:
        case InRegisters(names):
            yield from (name.partition("[")[0] for name in names)
        case InMemory():
            pass
