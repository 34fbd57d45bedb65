"""What is wrong with what becomes of accumulators' elements, seen without running it: registers
that a fragment does not have, neighbours that are no aligned ones in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from selector.gpu.ir.expressions import bare
from selector.gpu.ir.layouts import BYTE, Layout, places
from selector.gpu.ir.memory import (
    EngineStore,
    Point,
    StoreEight,
    StoreElements,
    StorePair,
    StoreQuad,
    StoreRun,
)
from selector.gpu.ir.nodes import Body, For, Kernel, Let, Memory, Node, State, children, expressions
from selector.gpu.ir.products import Fragment, SetTile
from selector.gpu.ir.text import line
from selector.gpu.ir.values import values_of
from selector.gpu.ir.views import BYTES
from selector.ir.affine import to_affine
from selector.ir.nodes import Call, Expr, IntImm, Var
from selector.ir.traverse import free_vars, walk_expr

LANES = {"lane": np.arange(32), "q": np.arange(32) % 4}
PAIR = 2


def element_faults(kernel: Kernel) -> tuple[str, ...]:
    """Registers behind a fragment's end, tiles of which some are not set; pairs and quads that may
    begin at an odd element of an array, or elsewhere in a box than two neighbours of a row; boxes
    that leave before all of them has been written.
    """
    declared = (n for n in kernel.declarations if isinstance(n, Let))
    scope = _Scope({}, {}, {name for node in declared for name in node.names})
    return tuple(dict.fromkeys(scope.faults(kernel.body)))


class _Scope:
    """What is ``declared`` so far by name, the bytes of boxes at which pairs were ``stored``, and
    the ``names`` of variables.
    """

    def __init__(
        self, declared: dict[str, Node], stored: dict[str, set[int]], names: set[str]
    ) -> None:
        self.declared, self.stored, self.names = declared, stored, names

    def faults(self, body: Body) -> Iterator[str]:
        for node in body:
            match node:
                case Fragment() | Point():
                    self.declared[node.name] = node
                case Memory():
                    self.declared[node.name], self.stored[node.name] = node, set()
                case Let(names=names) | State(names=names):
                    self.names |= set(names)
                case For(var=name):
                    self.names.add(name)
                case _:
                    pass
            yield from (f"{fault}: {line(node)}" for fault in self._own(node))
            inner = children(node)
            if inner:
                scope = _Scope(dict(self.declared), dict(self.stored), set(self.names))
                yield from scope.faults(inner)

    def _own(self, node: Node) -> Iterator[str]:
        for e in expressions(node):
            yield from self._registers(e)
        match node:
            case SetTile(name, piece, values):
                match self.declared.get(name):
                    case Fragment(registers=(pieces, each)):
                        if piece >= pieces or len(values) != each:
                            yield f"`{name}` has {pieces} tiles of {each} registers"
                    case _:
                        yield f"`{name}` has no tiles"
            case StorePair() | StoreQuad() | StoreEight() | StoreRun():
                yield from self._several(node)
            case EngineStore(source=view):
                memory, stored = self.declared.get(view.memory), self.stored.get(view.memory)
                if isinstance(memory, Memory) and stored:
                    left = len(_pairs(memory.layout, memory.extents) - stored)
                    if left:
                        yield f"{left} pairs of `{view.memory}` are not written"
            case _:
                pass

    def _several(self, node: StoreElements) -> Iterator[str]:
        match node:
            case StoreEight(to, below):
                for view in (to, below):
                    yield from self._neighbours(StorePair(view, ()))
            case StoreRun(to, _, lanes):
                if not isinstance(self.declared.get(to.memory), Point):
                    yield f"`{to.memory}` is no pointer"
                if lanes not in (4, 32):
                    yield f"{lanes} lanes have no row of a tile"
            case _:
                yield from self._neighbours(node)

    def _registers(self, e: Expr) -> Iterator[str]:
        """Of an expression, those that there are not."""
        for x in walk_expr(e):
            match x:
                case Call(_, "element", (Call(_, "element", (Var(name), IntImm(tile))), IntImm(n))):
                    index = (tile, n)
                case Call(_, "element", (Var(name), IntImm(n))):
                    index = (n,)
                case _:
                    continue
            match self.declared.get(name):
                case Fragment(registers=counts):
                    if any(i >= n for i, n in zip(index, counts, strict=False)):
                        yield f"`{name}` has {counts} registers"
                case _:
                    pass

    def _neighbours(self, node: StorePair | StoreQuad) -> Iterator[str]:
        to, index = self.declared.get(node.to.memory), node.to.index or IntImm(0)
        match to:
            case Point(of=view):
                parts = (x for x in (view.start, view.index, index) if x is not None)
                if not all(map(self._even, parts)):
                    yield "no multiple of two elements"
            case Memory(name) if isinstance(node, StorePair) and free_vars(index) <= LANES.keys():
                found = np.broadcast_to(values_of(index)(LANES), 32).tolist()
                known = _pairs(to.layout, to.extents)
                if BYTES[node.kind] != _size(to.layout, to.extents) or not known.issuperset(found):
                    yield f"no pairs of `{name}`"
                if len(self.stored[name] & {*found}) or len({*found}) < len(found):
                    yield f"pairs of `{name}` are written twice"
                self.stored[name].update(found)
            case _:
                yield f"`{node.to.memory}` is no pointer"

    def _even(self, index: Expr) -> bool:
        """Whether a number of elements is even: those of arrays that steps are of, which the kernel
        does not declare, are where neighbours are stored at once.
        """
        return all(
            c % PAIR == 0 or any(not free_vars(a) <= self.names | {"g", "q"} for a in monomial)
            for monomial, c in to_affine(bare(index))
        )


@cache
def _pairs(layout: Layout, extents: tuple[int, ...]) -> set[int]:
    """The bytes at which two neighbours of a row begin."""
    return {*places(layout, *extents)[BYTE][:, ::PAIR].ravel().tolist()}


def _size(layout: Layout, extents: tuple[int, ...]) -> int:
    """Bytes of an element."""
    row = places(layout, *extents)[BYTE][0]
    return int(row[1] - row[0])
