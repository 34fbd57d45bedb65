"""A kernel without what its threads do alone: what is left is how they meet, and what asynchronous
instructions have meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeGuard

from selector.gpu.ir.descriptors import span
from selector.gpu.ir.expressions import number, plus, times
from selector.gpu.ir.memory import EngineCopy, EngineStore, Map, Point, Prefetch, StoreNode
from selector.gpu.ir.nodes import (
    Body,
    Comment,
    Dependents,
    Drain,
    Fence,
    For,
    Fused,
    If,
    Kernel,
    Let,
    Local,
    Memory,
    Node,
    Read,
    Registers,
    State,
    expressions,
    memories,
    walk,
)
from selector.gpu.ir.products import (
    ADDS,
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
    SetTile,
)
from selector.gpu.ir.tensor import LOADS, TensorBusy, TensorLoad
from selector.gpu.ir.values import value_of
from selector.gpu.simulator.asked import asked_only
from selector.gpu.simulator.moved import Alone, moved
from selector.gpu.simulator.resolved import INSIDE_NAME, OF_LANES, Names
from selector.ir.traverse import free_vars

_DECLARED = Descriptor | Let | Memory
_NOTHING = (
    Map, Prefetch, Registers, Dependents, Point, Comment, SetTile, Fragment, LoadFragment, Mma,
    StoreNode,
)  # fmt: skip
Span = tuple[str, int, int]  # a descriptor, bytes behind its start


def meeting_only(kernel: Kernel) -> Kernel:
    """The kernel without its name and what its control does not ask for, with the memory that the
    copy engine fills or wgmma reads.
    """
    body = asked_only(_Reduction(kernel).body(kernel.body, Names()))
    return replace(kernel, name="", parameters=(), declarations=(), body=body)


class _Reduction:
    """Of one kernel: ``watched`` are the fragments of asynchronous instructions, and the memories
    that the copy engine stores, which text has written.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.alone = Alone(kernel)
        self.descriptors: dict[str, Descriptor] = {}  # the last of each name
        # The same: bytes from a row to the next, from matrix to matrix; None: where is unknown.
        self.rows: dict[str, tuple[int, ...] | None] = {}
        self.watched: dict[str, None] = {}
        for node in walk(kernel.body):
            match node:
                case Mma(record=record) if record.asynchronous:
                    self.watched |= dict.fromkeys(_fragments(node))
                case LoadFragment(registers=registers, how=how) if how in LOADS:
                    self.watched[registers[0].name] = None
                case TensorLoad(fragment):  # of a kernel that is reduced already
                    self.watched[fragment] = None
                case EngineStore(source=view):
                    self.watched[view.memory] = None
                case Busy(fragments):  # of a kernel that is reduced already
                    self.watched |= dict.fromkeys(fragments)
                case _:
                    pass

    def body(self, body: Body, names: Names) -> Body:
        """What is left: instructions and loads that follow each other as one, and no touch twice in
        a row.
        """
        found: list[Node] = []
        run: list[Mma | LoadFragment] = []
        pinned: set[Node] = set()  # since something else happened
        names = names.inner()
        for node in body:
            if self.joins(node):
                run.append(node)
                continue
            kept = tuple(x for x in self.node(node, names) if x not in pinned)
            if run and any(not isinstance(x, _DECLARED) for x in kept):
                found += self.joined(run)
                run, pinned = [], set()
            found += kept
            pinned = pinned | {*kept} if all(isinstance(x, Pin) for x in kept) else set()
        return (*found, *self.joined(run))

    def joins(self, node: Node) -> TypeGuard[Mma | LoadFragment]:
        """Whether one is told together with those that follow."""
        match node:
            case Mma(record=record):
                return record.asynchronous
            case LoadFragment(base=base):
                return self.rows.get(base) is not None
            case _:
                return False

    def joined(self, run: list[Mma | LoadFragment]) -> Iterator[Node]:
        """What loads and instructions that follow each other touch."""
        loads: dict[str, set[int]] = {}
        for node in run:
            if isinstance(node, LoadFragment):
                loads.setdefault(node.base, set()).update(self.matrices(node))
        for name, matrices in loads.items():
            rows = self.rows[name]
            assert rows is not None
            yield Read(name, rows[0], tuple(sorted(matrices)))
        products = [node for node in run if isinstance(node, Mma)]
        if products:
            yield self.busy(products)

    def matrices(self, node: LoadFragment) -> Iterator[int]:
        """Where those of a load begin."""
        rows = self.rows[node.base]
        assert rows is not None
        _, second, third = (*rows, 0, 0)[:3]
        for i in range(len(node.registers)):
            yield node.at + i % 2 * second + i // 2 * third

    def node(self, node: Node, names: Names) -> Body:
        """What is left of a node."""
        match node:
            case Local(inner) | Fused(inner):
                left = self.body(inner, names)
                return (Local(left),) if left else ()
            case _ if self.alone.moves_only(node):
                return (*self.touches(node), *moved(node, names))
            case _ if isinstance(node, StoreNode | SetTile):
                return self.touches(node)
            case For() | If() if self.alone.stores_only(node) and not self.decided(node, names):
                return self.touches(node)
            case For(var=var, body=inner):
                names = names.inner()
                names.variable(var)
                left = self.body(inner, names)
                return (replace(node, body=left),) if left else ()
            case If(condition, then, otherwise):
                left, other = self.body(then, names), self.body(otherwise, names)
                return (If(condition, left, other),) if left or other else ()
            case EngineCopy() | EngineStore():
                return (replace(node, map="", at=()),)
            case MatrixRows():
                return self.matrix_rows(node, names)
            case Descriptor(name):
                self.descriptors[name] = node
                return (node,)
            case Pin(name):
                return (node,) if name in self.watched else ()
            case Mma() | LoadFragment():
                return self.tensor(node)
            case _:
                declare(node, names)
                return (*self.touches(node), node) if _meets(node) else ()

    def decided(self, node: For | If, names: Names) -> bool:
        """Whether it matters who comes to what stands in a node, and is known: memory of which the
        engine takes what is there, not results on their way to others.
        """
        match node:
            case If(condition) if self.watched.keys() & {
                m for x in walk((node,)) for m in memories(x)
            }:
                found = names.resolved(condition)
                return found is not None and INSIDE_NAME not in free_vars(found)
            case _:
                return False

    def matrix_rows(self, node: MatrixRows, names: Names) -> Body:
        """Where they begin, in bytes, if that and how far they are apart is known."""
        self.rows[node.name] = None
        start, first, step = names.byte_of(node.view), *map(names.resolved, (node.first, node.step))
        if start is None or first is None or step is None or free_vars(step):
            return ()
        size = names.bytes[node.view.memory]
        start = plus(start, times(first, size))
        if free_vars(start) & OF_LANES:
            return ()
        self.rows[node.name] = tuple(n * size for n in (value_of(step)({}), *node.apart))
        return (Let("u32", (node.name,), (start,)),)

    def touches(self, node: Node) -> Body:
        """Of the fragments that threads mention."""
        if not self.watched:
            return ()
        found: set[str] = set()
        for x in walk((node,)):
            match x:
                case Pin(name):
                    found.add(name)
                case SetTile(name, _, values):
                    found = found.union((name,), *map(free_vars, values))
                case _ if isinstance(x, StoreNode | Let | State | If):
                    found = found.union(*map(free_vars, expressions(x)), memories(x))
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

    def tensor(self, node: Mma | LoadFragment) -> Body:
        """Of a product or load of tensor memory."""
        match node:
            case Mma(record=record) if record.tensor:
                return (self.product(node),)
            case LoadFragment(how=how) if how in LOADS:
                fragment = node.registers[0].name
                load = TensorLoad(fragment, node.base, node.at, len(node.registers))
                return (load,) if how == "tensor" else (load, Drain("tensor", 0), Pin(fragment))
            case _:
                return ()

    def product(self, node: Mma) -> TensorBusy:
        """What one has."""
        add = number(ADDS.get(node.how, node.how))
        names, start, end = zip(*self.spans(node), strict=True)
        return TensorBusy(node.to, node.piece, node.record.n // 8, add, names, start, end)

    def spans(self, node: Mma) -> Iterator[Span]:
        """The bytes that an instruction reads."""
        r = node.record
        for x, rows in ((node.a, r.m), (node.b, r.n)):
            if isinstance(x, InMemory):
                d = self.descriptors[x.descriptor]
                steps, depth = (d.leading, d.stride, d.swizzle), r.k
                rows, depth = (rows * r.bytes, depth) if x.across else (rows, depth * r.bytes)
                yield x.descriptor, *span(steps, rows, depth, x.at, across=x.across)


def declare(node: Node, names: Names) -> None:
    """What a node says of names."""
    match node:
        case Let(_, own, values):
            for name, value in zip(own, values, strict=True):
                names.let(name, value)
        case State(_, own):
            for name in own:
                names.variable(name)
        case Memory() | Point():
            names.declare(node)
        case _:
            pass


def _meets(node: Node) -> bool:
    """Whether a node without others is of any concern."""
    match node:
        case Fence(what):
            return what != "matrix"
        case _:
            return not isinstance(node, _NOTHING)


def _fragments(node: Mma) -> Iterator[str]:
    """Those of an instruction."""
    yield node.to
    for x in (node.a, node.b):
        yield from _named(x)


def _named(x: Operand) -> Iterator[str]:
    match x:
        case InRegisters(registers):
            yield from (r.name for r in registers)
        case InMemory():
            pass
