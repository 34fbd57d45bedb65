"""What is wrong with the products of a kernel, seen without running it: fragments that no
instruction takes so, operands in memory that lie otherwise than it reads them; and with what it
does to tensor memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np

from selector.gpu.ir.descriptors import byte_read, span
from selector.gpu.ir.expressions import PLACES, bare
from selector.gpu.ir.lane_maps import ACCUMULATOR, BLOCK
from selector.gpu.ir.layouts import BYTE, CHUNK, Composed, Layout, Strided, Swizzle, places
from selector.gpu.ir.nodes import Body, Kernel, Memory, Node, children
from selector.gpu.ir.products import (
    Descriptor,
    Fragment,
    InMemory,
    InRegisters,
    LoadFragment,
    MatrixRows,
    Mma,
    Operand,
    Record,
    Register,
)
from selector.gpu.ir.tensor import (
    COLUMNS,
    LANE,
    LOADED_LANES,
    LOADS,
    MOST_PIECES,
    PIECE,
    TensorAlloc,
    TensorFree,
    TensorMemory,
    TensorTile,
)
from selector.gpu.ir.text import line
from selector.gpu.ir.views import BYTES, View
from selector.ir.affine import to_affine
from selector.ir.nodes import Call, Expr

KINDS = {"f32": ("float", 4), "f16": ("u32", 2), "s32": ("int", 4)}  # of an accumulator's tile


def product_faults(kernel: Kernel) -> tuple[str, ...]:
    """Accumulators and blocks that are not declared, of another lane map or number than their
    instruction has; rows for ``ldmatrix`` at no multiple of 16 bytes; descriptors by which an
    instruction reads other bytes than those of its operand's elements, or bytes past the memory.
    """
    return tuple(dict.fromkeys(_Scope({}).faults(kernel.body)))


class _Scope:
    """What is ``declared`` so far, by name: blocks of their own as the load that declares them."""

    def __init__(self, declared: dict[str, Node]) -> None:
        self.declared = declared

    def faults(self, body: Body) -> Iterator[str]:
        for node in body:
            match node:
                case Fragment() | Memory() | Descriptor() | MatrixRows():
                    self.declared[node.name] = node
                case TensorMemory() | TensorTile():
                    self.declared[node.name] = node
                case LoadFragment(registers, how) if how not in LOADS:
                    self.declared |= {r.name: node for r in registers}
                case _:
                    pass
            faults = *self._own(node), *tensor_faults(node, self.declared)
            yield from (f"{fault}: {line(node)}" for fault in faults)
            inner = children(node)
            if inner:
                yield from _Scope(dict(self.declared)).faults(inner)

    def _own(self, node: Node) -> Iterator[str]:
        match node:
            case Mma():
                if not node.record.tensor:
                    yield from self._accumulators(node)
                for x, rows in ((node.a, node.record.m), (node.b, node.record.n)):
                    yield from self._operand(x, node.record, rows)
            case MatrixRows(_, view, first, step, apart):
                size = self._size(view)
                parts = (first, step, view.start, *apart)
                if size is None:
                    yield f"`{view.memory}` is no memory"
                elif not all(self._whole(x, size) for x in parts):
                    yield "rows do not start at multiples of 16 bytes"
            case LoadFragment(how=how, at=at, base=base) if how.startswith("ldmatrix"):
                if at % CHUNK or not isinstance(self.declared.get(base), MatrixRows):
                    yield "rows do not start at multiples of 16 bytes"
            case _:
                pass

    def _size(self, view: View) -> int | None:
        """Bytes of an element."""
        memory = self.declared.get(view.memory)
        return BYTES[memory.kind] if isinstance(memory, Memory) else None

    def _whole(self, x: Expr | int | None, size: int) -> bool:
        """Whether so many elements are a multiple of 16 bytes."""
        if x is None or isinstance(x, int):
            return (x or 0) * size % CHUNK == 0
        match x:
            case Call(_, name, (*_, index)) if name in PLACES:  # which leave chunks whole
                return self._whole(index, size)
            case _:
                return all(c * size % CHUNK == 0 for _, c in to_affine(bare(x)))

    def _accumulators(self, node: Mma) -> Iterator[str]:
        match self.declared.get(node.to):
            case Fragment(_, kind, (pieces, each), layout) if layout == ACCUMULATOR:
                if (kind, each) != KINDS[node.record.c]:
                    yield f"`{node.to}` does not hold {node.record.c}"
                if node.piece + node.record.n // 8 > pieces:
                    yield f"`{node.to}` has {pieces} tiles"
            case _:
                yield f"`{node.to}` is no accumulator"

    def _operand(self, x: Operand, r: Record, rows: int) -> Iterator[str]:
        match x:
            case InRegisters(blocks):
                wanted = (min(rows, 16) // 8) * (r.k * r.bytes // CHUNK)
                if len(blocks) != wanted:
                    yield f"{len(blocks)} blocks where the instruction takes {wanted}"
                yield from (
                    f"`{block}` is no block" for block in blocks if not self._is_block(block)
                )
            case InMemory(name):
                d = self.declared.get(name)
                if isinstance(d, Descriptor):
                    yield from self._described(x, d, r, rows)
                else:
                    yield f"`{name}` is no descriptor"

    def _is_block(self, block: Register) -> bool:
        if block.index is None:
            return isinstance(self.declared.get(block.name), LoadFragment)
        match self.declared.get(block.name):
            case Fragment(_, "u32", (count,), layout):
                return layout == BLOCK and block.index < count
            case _:
                return False

    def _described(self, x: InMemory, d: Descriptor, r: Record, rows: int) -> Iterator[str]:
        memory = self.declared.get(d.view.memory)
        if not isinstance(memory, Memory):
            yield f"`{d.view.memory}` is no memory"
            return
        steps = (d.leading, d.stride, d.swizzle)
        if any(n % CHUNK for n in (x.at, *steps)) or not self._whole(d.view.at, 1):
            yield f"`{d.name}` is no multiple of 16 bytes"
        shape = (rows * r.bytes, r.k) if x.across else (rows, r.k * r.bytes)
        if span(steps, *shape, x.at, across=x.across)[1] > memory.bytes:
            yield f"`{d.view.memory}` is read past its {memory.bytes} bytes"
        elif d.swizzle and not _is_read(
            memory.layout, memory.extents, steps, x.at, rows, r.k, across=x.across
        ):
            yield f"`{d.view.memory}` lies otherwise: {memory.layout}"


@cache
def _is_read(
    layout: Layout,
    extents: tuple[int, ...],
    steps: tuple[int, int, int],
    at: int,
    rows: int,
    depth: int,
    *,
    across: bool,
) -> bool:
    """Whether an instruction finds ``rows`` x ``depth`` elements where the layout has them, the
    first of them ``at`` bytes from the begin but for the swizzle. They may lie behind the last
    column, in the same swizzled rows.
    """
    match layout:
        case Composed(Swizzle(row), Strided() as inner) if row == steps[2]:
            pass
        case _:
            return False
    size = inner(0, 1)[BYTE]
    columns = -(-extents[-1] * size // row) * row // size
    start = np.argwhere(places(inner, *extents[:-1], columns)[BYTE] == at)
    if not len(start):
        return False
    count, length = (depth, rows) if across else (rows, depth)
    row, column = np.indices((count, length))
    found = at + byte_read(steps, row, column * size)
    return bool((found == inner(start[0, 0] + row, start[0, 1] + column)[BYTE]).all())


_LEAST_COLUMNS = 32
_STEPS = {64: 8, 128: 16}  # of an instruction's columns, by its rows


def tensor_faults(node: Node, declared: Mapping[str, Node]) -> Iterator[str]:
    """Columns that nobody can allocate, or that a tile or memory reaches past; products of a shape
    that there is not, with an operand that is not described for them, or past their tile; loads of
    other lanes or columns than a warp has, or into what is no accumulator.
    """
    match node:
        case TensorAlloc(_, columns):
            if columns & (columns - 1) or not _LEAST_COLUMNS <= columns <= COLUMNS:
                yield f"{columns} columns of tensor memory cannot be allocated"
        case TensorTile(_, of, _, columns):
            yield from _columns(of, columns, declared)
        case TensorFree(of, columns):
            yield from _columns(of, columns, declared)
        case Mma(record=record) if record.tensor:
            yield from _product(node, declared)
        case LoadFragment(how=how) if how in LOADS:
            yield from _load(node, declared)
        case _:
            pass


def _columns(name: str, columns: int, declared: Mapping[str, Node]) -> Iterator[str]:
    match declared.get(name):
        case TensorMemory(columns=whole) | TensorTile(columns=whole):
            if columns > whole:
                yield f"`{name}` has {whole} columns"
        case _:
            yield f"`{name}` is no tensor memory"


def _product(node: Mma, declared: Mapping[str, Node]) -> Iterator[str]:
    r = node.record
    step = _STEPS.get(r.m, 0)
    if not step or r.n % step or not step <= r.n <= 256 or r.k * r.bytes != 32:
        yield "there is no such instruction"
    yield from _columns(node.to, PIECE * node.piece + r.n, declared)
    for x in (node.a, node.b):
        match x:
            case InMemory(name):
                d = declared.get(name)
                if isinstance(d, Descriptor) and d.version != 1:
                    yield f"`{name}` is described for another instruction"
            case _:
                yield "operands of products in tensor memory lie in shared memory"


def _load(node: LoadFragment, declared: Mapping[str, Node]) -> Iterator[str]:
    count, (lane, column) = len(node.registers), divmod(node.at, LANE)
    if count & (count - 1) or not 1 <= count <= MOST_PIECES:
        yield f"no load has {count} times {PIECE} columns"
    if lane not in (0, LOADED_LANES):
        yield f"a warp loads lanes 0 or {LOADED_LANES} of its own, not {lane}"
    yield from _columns(node.base, column + PIECE * count, declared)
    numbers = [r.index for r in node.registers if r.index is not None]
    match [declared.get(name) for name in {r.name for r in node.registers}]:
        case [Fragment(_, _, (pieces, 4), layout)] if layout == ACCUMULATOR:
            if len(set(numbers)) < count or max(numbers) >= pieces:
                yield f"these are not {count} of the {pieces} tiles"
        case _:
            yield "registers are no accumulator"
