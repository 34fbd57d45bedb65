"""Nests that fill shared memory from rows of an array, by vectors.

    for y < 64: for x < 64: tile[x + 66*y] = a[x + s*y ...]

goes by eight elements at a time: each is loaded at once where all of it is inside, several of a
thread before the first is waited for, and stored by as many bytes as rows of the tile begin at
multiples of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from math import prod

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.storage import Space, c_type
from selector.gpu.codegen.threads.lanes import LANE
from selector.gpu.codegen.threads.needs import Needs, Unknown
from selector.gpu.codegen.threads.nests import Nest
from selector.gpu.codegen.threads.vector_code import condition_of
from selector.gpu.codegen.threads.windows import VECTOR_BYTES, Windows
from selector.gpu.ir.expressions import behind, element, mixed_radix, number, plus, pointer, times
from selector.gpu.ir.memory import Array, LoadVector, StoreVector
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Expr, Load
from selector.ir.simplify import add
from selector.ir.traverse import substitute

WORD = 4  # bytes: what is stored by less is not worth it
FLIGHT = 4  # vectors of a thread that are on their way at once, at most

Digits = Callable[[Nest, Iterable[Expr]], None]


@dataclass(frozen=True, slots=True)
class Rows:
    """Vectors of ``lanes`` along the first digit: an element of one, where vectors begin in the
    array and in shared memory, what has to hold for one to be inside, and bytes that are stored at
    once.
    """

    nest: Nest
    one: Load
    lanes: int
    source: Affine
    to: Affine
    needs: Needs
    stored: int


def rows_of(nest: Nest, size: int, context: KernelContext) -> Rows | None:
    """None where a nest is another one, or its vectors are not as many for each of ``size``
    threads.
    """
    load, store, storages = nest.store.value, nest.store, context.storages
    if nest.condition is not None or store.predicate is not None or not isinstance(load, Load):
        return None
    known = storages.get(load.buffer)
    if (
        known is None
        or known.space is not Space.GLOBAL
        or known.param is None
        or known.type.is_bool
    ):
        return None
    counts = [d.count or 0 for d in nest.digits]
    lanes = VECTOR_BYTES // known.type.bytes
    if load.predicate is not None or not counts or prod(counts) % (lanes * size) or lanes < 2:
        return None
    if counts[0] % lanes or not 0 < prod(counts) // (lanes * size) <= FLIGHT:
        return None
    x, needs = nest.digits[0].var, Needs(lanes)
    one = substitute(load, {x.name: add(x, LANE)})
    assert isinstance(one, Load)
    try:
        source = to_affine(Windows(context, needs).inside(one, needs))
    except Unknown:
        return None
    to = to_affine(store.index)
    if source.coefficient(LANE).constant != 1 or to.coefficient(x).constant != 1:
        return None
    shared = storages[store.buffer]
    stored = at_once(to.rest(x), lanes, known.type.bytes)
    if shared.type != known.type or shared.panels is not None or stored < WORD:
        return None
    return Rows(nest, one, lanes, source.rest(LANE), to, needs, stored)


def at_once(rest: Affine, lanes: int, size: int) -> int:
    """Bytes that may be stored at once where rows begin at ``rest``."""
    while lanes > 1 and not all(factor % lanes == 0 for _, factor in rest):
        lanes //= 2
    return lanes * size


def bring_rows(
    found: Rows,
    thread: Expr,
    size: int,
    context: KernelContext,
    digits: Digits,
) -> None:
    """All vectors of a nest: those of each thread are loaded before the first is stored."""
    nest, lanes, w = found.nest, found.lanes, context.writer
    counts = [d.count or 0 for d in nest.digits]
    turns, kind = prod(counts) // (lanes * size), found.one.type
    own = context.names.fresh("held")
    with w.block():
        w.add(Array(own, c_type(kind), turns * lanes, VECTOR_BYTES))
        for step in (_load, _store):
            for turn in range(turns):
                with w.block():
                    digits(nest, _values(counts, lanes, plus(thread, turn * size)))
                    step(found, own, turn * lanes, context)


def _values(counts: Sequence[int], lanes: int, number_: Expr) -> list[Expr]:
    """The digits of a vector by its number: the first one counts vectors."""
    first, *others = mixed_radix(number_, [counts[0] // lanes, *counts[1:-1]])
    return [times(first, lanes), *others]


def _load(found: Rows, own: str, first: int, context: KernelContext) -> None:
    w, scalar, buffer = context.writer, context.scalar, found.one.buffer
    storage, bytes_ = context.storages[buffer], VECTOR_BYTES
    condition = condition_of(found.needs, (), context)
    at = scalar.number(found.source.to_expr())
    source = behind(pointer(storage.base), storage.start, at)
    name = context.names.get(LANE.name)
    with nullcontext() if condition is None else w.when(condition):
        x = found.nest.digits[0].var  # a multiple
        if context.is_multiple(found.source.rest(x), found.lanes, buffer):
            with w.when(context.aligned_flag(buffer, found.lanes)):
                w.add(LoadVector(pointer(own), number(first), source, bytes_))
            with w.otherwise():
                w.add(LoadVector(pointer(own), number(first), source, bytes_, "anywhere"))
        else:
            w.add(LoadVector(pointer(own), number(first), source, bytes_, "anywhere"))
    if condition is not None:
        with w.otherwise(), w.loop(name, number(0), number(found.lanes), "unrolled"):
            to = element(storage.type, pointer(own), plus(name, first))
            w.store(to, scalar.legal(found.one))


def _store(found: Rows, own: str, first: int, context: KernelContext) -> None:
    storage = context.storages[found.nest.store.buffer]
    at, size = context.scalar.number(found.to.to_expr()), storage.type.bytes
    for k in range(0, found.lanes, found.stored // size):
        to = behind(pointer(storage.base), storage.start, storage.place(plus(at, k)))
        context.writer.add(StoreVector(to, pointer(own), first + k, found.stored))
