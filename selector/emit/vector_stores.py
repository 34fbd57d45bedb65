"""Copies out of shared memory: 16 bytes at a time where the rows of both sides are aligned.

The counterpart of ``copies``. A store of two or four bytes from each lane's place in an accumulator
fills no sector of the L2 cache, which then has to merge them; rows that are laid out in shared
memory first leave in whole sectors.
"""

from __future__ import annotations

from dataclasses import dataclass

from selector.emit.context import KernelContext
from selector.emit.nests import Digit, Nest, merge_digits
from selector.emit.scalar import Space, c_type
from selector.ir.affine import to_affine
from selector.ir.nodes import Load

CHUNK_BYTES = 16


@dataclass(frozen=True, slots=True)
class VectorStore:
    """A nest that stores elements of shared memory as they are; ``per`` of them along ``x`` are 16
    bytes. ``aligned``: the uniform condition under which both sides of every chunk are aligned.
    """

    nest: Nest
    x: Digit
    per: int
    aligned: str


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


def emit_vector_store(copy: VectorStore, context: KernelContext, rank: str, size: int) -> None:
    """Write the copy, spread over ``size`` threads numbered ``rank``, for aligned sides."""
    w, scalar, names, store = context.writer, context.scalar, context.names, copy.nest.store
    assert isinstance(store.value, Load)
    total = 1
    for digit in copy.nest.digits:
        total *= digit.count or 1
    total //= copy.per
    w.line("#pragma unroll")
    with w.block(f"for (int step = 0; step < {-(-total // size)}; ++step)"):
        w.line(f"const int i = {rank} + step * {size};")
        if total % size:
            w.line(f"if (i >= {total}) break;")
        rest = "i"
        ordered = (copy.x, *(d for d in copy.nest.digits if d is not copy.x))
        for digit in ordered:
            first = digit is copy.x
            count = (digit.count or 1) // (copy.per if first else 1)
            place = rest if digit is ordered[-1] else f"{rest} % {count}"
            name = names.get(digit.var.name)
            w.line(f"const int {name} = {place}{f' * {copy.per}' if first else ''};")
            rest += f" / {count}"
        kind = c_type(store.value.type)
        to, source = context.storages[store.buffer], context.storages[store.value.buffer]
        w.line(f"{kind}* const to = {to.pointer} + {scalar.index(store.index)};")
        w.line(f"const {kind}* const from = {source.pointer} + {scalar.index(store.value.index)};")
        w.line("*(uint4*)to = *(const uint4*)from;")
