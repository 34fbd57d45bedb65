"""What is wrong with what a kernel does to tensor memory, seen without running it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from selector.gpu.ir.lane_maps import ACCUMULATOR
from selector.gpu.ir.nodes import Node
from selector.gpu.ir.products import Descriptor, Fragment, InMemory, LoadFragment, Mma
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
