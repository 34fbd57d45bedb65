"""The code of nests whose iterations are independent: all threads of a unit share them.

A nest that copies into shared memory goes by ``copy_code``, one that copies out of it by
``vector_stores``; every other one element by element.
"""

from __future__ import annotations

from math import prod

from selector.emit.context import KernelContext
from selector.emit.copies import as_copy
from selector.emit.copy_code import emit_copy
from selector.emit.copy_costs import note, of_copy, of_nest, of_threads
from selector.emit.nests import Nest, as_nest, independent
from selector.emit.scalar import Space
from selector.emit.threads import ThreadCode
from selector.emit.units import Unit
from selector.emit.vector_stores import as_vector_store, emit_vector_store
from selector.ir.nodes import Stmt
from selector.lowering.normalize import holds_tensor


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
        unit.panels |= nest.store.buffer in self.context.layouts.group_operands
        copy = as_copy(nest, self.context) if self.context.target.has("cp.async") else None
        if copy is None:
            note(nest.store, of_nest(nest, self.context, unit.size), self.context)
            self._spread(nest, unit)
            return
        note(nest.store, of_copy(copy, self.context, unit.size), self.context)
        emit_copy(copy, self.context, unit.thread, unit.size)
        unit.copying = True
        unit.copied.add(nest.store.buffer)

    def note_threads(self, s: Stmt, body: Stmt, total: int, unit: Unit) -> None:
        """Remember that ``total`` threads each execute the ``body`` of the thread loops ``s``."""
        nest = self.find(s)
        copied = nest is not None and as_copy(nest, self.context) is not None
        filled = of_threads(body, total, unit.size, copied, self.context)
        if filled is not None:
            note(*filled, self.context)

    def _spread(self, nest: Nest, unit: Unit) -> None:
        """16 bytes at a time where it is a copy out of shared memory that allows it."""
        w, copy = self.context.writer, as_vector_store(nest, self.context)
        if copy is None:
            self.threads.spread(nest, unit.thread, unit.size)
            return
        if nest.store.buffer not in self.context.params:  # memory of our own starts aligned
            with w.block():
                emit_vector_store(copy, self.context, unit.thread, unit.size)
            return
        with w.when(copy.aligned):
            emit_vector_store(copy, self.context, unit.thread, unit.size)
        with w.otherwise():
            self.threads.spread(nest, unit.thread, unit.size)
