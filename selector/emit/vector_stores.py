"""Copies out of shared memory: 16 bytes at a time where the rows of both sides are aligned.

The counterpart of ``copies``. A store of two or four bytes from each lane's place in an accumulator
fills no sector of the L2 cache, which then has to merge them; rows that are laid out in shared
memory first leave in whole sectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from selector.emit.chunks import spread
from selector.emit.context import KernelContext
from selector.emit.copies import CHUNK_BYTES
from selector.emit.nests import Digit, Nest, merge_digits
from selector.emit.scalar import Space, c_type
from selector.gpu.ir.expressions import mixed_radix, pointer, times
from selector.gpu.ir.memory import Point, StoreChunk
from selector.gpu.ir.nodes import Let
from selector.ir.affine import to_affine
from selector.ir.nodes import Expr, Load


@dataclass(frozen=True, slots=True)
class VectorStore:
    """A nest that stores elements of shared memory as they are; ``per`` of them along ``x`` are 16
    bytes. ``aligned``: the uniform condition under which both sides of every chunk are aligned.
    """

    nest: Nest
    x: Digit
    per: int
    aligned: Expr


def as_vector_store(nest: Nest, context: KernelContext) -> VectorStore | None:
    """The copy that a nest is; None if it is none, or if some chunk may be cut or not aligned."""
    load, to = nest.store.value, context.storages.get(nest.store.buffer)
    if not isinstance(load, Load) or load.predicate or nest.store.predicate or nest.condition:
        return None
    source = context.storages.get(load.buffer)
    if to is None or source is None or to.type != source.type or source.panels:
        return None
    if source.space is not Space.SHARED or to.space is not Space.GLOBAL:
        return None
    nest = merge_digits(nest, [to_affine(nest.store.index), to_affine(load.index)])
    load = nest.store.value
    assert isinstance(load, Load)
    if any(d.count is None for d in nest.digits):
        return None
    per, buffer = CHUNK_BYTES // to.type.bytes, nest.store.buffer
    index, place = to_affine(nest.store.index), to_affine(load.index)
    for x in nest.digits:
        steps = index.coefficient(x.var).constant, place.coefficient(x.var).constant
        if steps == (1, 1) and (x.count or 0) % per == 0:
            rest = context.is_multiple(index.rest(x.var), per, buffer)
            if rest and context.is_multiple(place.rest(x.var), per):
                return VectorStore(nest, x, per, context.aligned_flag(buffer, per))
    return None


def emit_vector_store(copy: VectorStore, context: KernelContext, thread: Expr, size: int) -> None:
    """Write the copy for aligned sides, spread over ``size`` threads; ``thread``: the number of
    this one.
    """
    w, scalar, store = context.writer, context.scalar, copy.nest.store
    assert isinstance(store.value, Load)
    total = prod(d.count or 1 for d in copy.nest.digits) // copy.per
    with spread(context, thread, size, total, unroll=True):
        _digits(copy, context)
        kind = c_type(store.value.type)
        to, source = context.storages[store.buffer], context.storages[store.value.buffer]
        w.add(Point("to", kind, to.at(scalar.number(store.index))))
        w.add(Point("from", f"const {kind}", source.at(scalar.number(store.value.index))))
        w.add(StoreChunk(pointer("to"), pointer("from")))


def _digits(copy: VectorStore, context: KernelContext) -> None:
    """Declare the digits of chunk ``i``."""
    rows = [d for d in copy.nest.digits if d is not copy.x]
    counts = [(copy.x.count or 1) // copy.per, *(d.count or 1 for d in rows)]
    for digit, value in zip((copy.x, *rows), mixed_radix("i", counts[:-1]), strict=True):
        value = times(value, copy.per) if digit is copy.x else value
        context.writer.add(Let("int", (context.names.get(digit.var.name),), (value,)))
