"""The code of nests whose iterations are independent: all threads of a unit share them.

A nest that copies into shared memory goes by ``copies.forms``, every other one element by element,
but for copies out of it whose rows are aligned on both sides: 16 bytes at a time. A store of two or
four bytes from each lane's place in an accumulator fills no sector of the L2 cache, which then has
to merge them; rows that are laid out in shared memory first leave in whole sectors.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.copies.chunks import spread
from selector.gpu.codegen.copies.costs import note, of_copy, of_nest, of_threads
from selector.gpu.codegen.copies.forms import write_copy
from selector.gpu.codegen.copies.pixels import as_pixel_copy, emit_pixel_copy
from selector.gpu.codegen.copies.recognise import CHUNK_BYTES, as_copy
from selector.gpu.codegen.scalars.storage import Space, c_type
from selector.gpu.codegen.threads.made_fills import bring_made, made_rows_of
from selector.gpu.codegen.threads.nests import Digit, Nest, as_nest, independent, merge_digits
from selector.gpu.codegen.threads.plain import UNROLLED_STEPS, ThreadCode
from selector.gpu.codegen.units import Unit
from selector.gpu.ir.expressions import all_of, element, mixed_radix, number, pointer, times
from selector.gpu.ir.memory import Array, Point, StoreChunk
from selector.gpu.ir.nodes import Let
from selector.ir.affine import to_affine
from selector.ir.nodes import Expr, Load, Stmt
from selector.lowering.normalize import holds_tensor
from selector.lowering.predicates import TRUE, every, holds_everywhere
from selector.runtime.plan import CopyLimit


class NestCode:
    """Finds nests in a kernel and writes them."""

    def __init__(self, context: KernelContext, threads: ThreadCode) -> None:
        self.context, self.threads = context, threads

    def find(self, s: Stmt) -> Nest | None:
        """The nest that a statement is, if its iterations may run in any order."""
        nest = None if holds_tensor(s) else as_nest(s)
        storage = None if nest is None else self.context.storages.get(nest.store.buffer)
        if nest is None or storage is None:
            return None
        return nest if independent(nest, storage.param, storage.pitches) else None

    def find_fill(self, s: Stmt, total: int, unit: Unit) -> Nest | None:
        """The nest that fills shared memory by ``total`` threads, fewer than the unit has: what
        each of them does in turn, all can do together.
        """
        nest = self.find(s) if total < unit.size else None
        if nest is None or self.context.storages[nest.store.buffer].space is not Space.SHARED:
            return None
        return nest if prod(d.count or 1 for d in nest.digits) > total else None

    def write(self, nest: Nest, unit: Unit) -> None:
        """A copy, or spread over the unit's threads."""
        unit.panels |= nest.store.buffer in self.context.shared.layouts.group_operands
        copy = as_copy(nest, self.context) if self.context.target.has("cp.async") else None
        if copy is None:
            self._copied_or_spread(nest, unit)
            return
        note(nest.store, of_copy(copy, unit.size), self.context)
        write_copy(copy, self.context, unit.thread, unit.size)
        unit.copying = True
        unit.copied.add(nest.store.buffer)

    def note_threads(self, s: Stmt, body: Stmt, total: int, unit: Unit) -> None:
        """Remember that ``total`` threads each execute the ``body`` of the thread loops ``s``."""
        nest = self.find(s)
        copied = nest is not None and as_copy(nest, self.context) is not None
        filled = of_threads(body, total, unit.size, copied, self.context)
        if filled is not None:
            note(*filled, self.context)

    def _copied_or_spread(self, nest: Nest, unit: Unit) -> None:
        """Pixels to planes as vectors, where these are whole."""
        pixels = as_pixel_copy(nest, self.context)
        taking = of_nest(nest, self.context, unit.size)
        made = None if pixels is not None else made_rows_of(nest, unit.size, self.context)
        if (pixels or made) and taking is not None:
            taking = replace(taking, width=CHUNK_BYTES, conflicts=1, limit=CopyLimit.NONE)
        note(nest.store, taking, self.context)
        if made is not None:
            bring_made(made, unit.thread, unit.size, self.threads)
            return
        if pixels is None:
            self._spread(nest, unit)
            return
        w, one = self.context.writer, self.threads.statement
        with w.block() if pixels.whole is None else w.when(pixels.whole):
            emit_pixel_copy(pixels, self.context, unit.thread, unit.size, one)
        if pixels.whole is not None:
            with w.otherwise():
                self._spread(nest, unit)

    def _spread(self, nest: Nest, unit: Unit) -> None:
        """16 bytes at a time where it is a copy out of shared memory that allows it."""
        w, copy = self.context.writer, as_vector_store(nest, self.context)
        if copy is None:
            self.threads.spread(nest, unit.thread, unit.size)
            return
        if copy.whole is None:
            with w.block():
                emit_vector_store(copy, self.context, unit.thread, unit.size)
            return
        with w.when(copy.whole):
            emit_vector_store(copy, self.context, unit.thread, unit.size)
        with w.otherwise():
            self.threads.spread(nest, unit.thread, unit.size)


@dataclass(frozen=True, slots=True)
class VectorStore:
    """A nest that stores elements of shared memory as they are; ``per`` of them along ``x`` are 16
    bytes, and lie ``step`` elements apart there. ``whole``: the uniform condition under which all
    of them are stored and both sides of every chunk are aligned; None if they always are.
    """

    nest: Nest
    x: Digit
    per: int
    step: int
    whole: Expr | None


def as_vector_store(nest: Nest, context: KernelContext) -> VectorStore | None:
    """The copy that a nest is; None if it is none, or if some chunk may be cut or not aligned."""
    load, to = nest.store.value, context.storages.get(nest.store.buffer)
    if not isinstance(load, Load) or load.predicate:
        return None
    source = context.storages.get(load.buffer)
    if to is None or source is None or to.type != source.type or source.panels:
        return None
    if source.space is not Space.SHARED or to.space is not Space.GLOBAL:
        return None
    wanted = [e for e in (nest.condition, nest.store.predicate) if e is not None]
    if not wanted:
        nest = merge_digits(nest, [to_affine(nest.store.index), to_affine(load.index)])
    load = nest.store.value
    assert isinstance(load, Load)
    counts = {d.var: d.count for d in nest.digits if d.count is not None}
    inside = holds_everywhere(every(wanted), counts) if wanted else TRUE
    if len(counts) < len(nest.digits) or inside is None:
        return None
    per, buffer = CHUNK_BYTES // to.type.bytes, nest.store.buffer
    index, place = to_affine(nest.store.index), to_affine(load.index)
    for x in nest.digits:
        step = place.coefficient(x.var).constant
        if index.coefficient(x.var).constant != 1 or not step or (x.count or 0) % per:
            continue
        even = step > 1 or context.is_multiple(place.rest(x.var), per)
        if step > 0 and even and context.is_multiple(index.rest(x.var), per, buffer):
            tests: list[Expr] = []
            if buffer in context.host.params:  # memory of our own starts aligned
                tests.append(context.aligned_flag(buffer, per))
            if inside != TRUE:
                tests.append(context.condition(inside))
            return VectorStore(nest, x, per, step, all_of(tests))
    return None


def emit_vector_store(copy: VectorStore, context: KernelContext, thread: Expr, size: int) -> None:
    """Write the copy where its chunks are whole, spread over ``size`` threads; ``thread``: the
    number of this one.
    """
    w, scalar, store = context.writer, context.scalar, copy.nest.store
    assert isinstance(store.value, Load)
    total = prod(d.count or 1 for d in copy.nest.digits) // copy.per
    with spread(context, thread, size, total, unroll=total // size <= UNROLLED_STEPS):
        _digits(copy, context)
        kind = c_type(store.value.type)
        to, source = context.storages[store.buffer], context.storages[store.value.buffer]
        w.add(Point("to", kind, to.at(scalar.number(store.index))))
        w.add(Point("from", f"const {kind}", source.at(scalar.number(store.value.index))))
        if copy.step > 1:
            w.add(Array("run", kind, copy.per, CHUNK_BYTES))
            with w.loop("e", number(0), number(copy.per), "unrolled"):
                found = element(store.value.type, pointer("from"), times("e", copy.step))
                w.store(element(store.value.type, pointer("run"), "e"), found)
        w.add(StoreChunk(pointer("to"), pointer("run" if copy.step > 1 else "from")))


def _digits(copy: VectorStore, context: KernelContext) -> None:
    """Declare the digits of chunk ``i``."""
    rows = [d for d in copy.nest.digits if d is not copy.x]
    counts = [(copy.x.count or 1) // copy.per, *(d.count or 1 for d in rows)]
    for digit, value in zip((copy.x, *rows), mixed_radix("i", counts[:-1]), strict=True):
        value = times(value, copy.per) if digit is copy.x else value
        context.writer.add(Let("int", (context.names.get(digit.var.name),), (value,)))
