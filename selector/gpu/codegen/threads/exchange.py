"""Vectors of a row, several of each lane of a warp, which exchanges them in shared memory:

    lane 0 has vectors 0, 1, 2, lane 1 has 3, 4, 5, ...   and stores 0, 32, 64; 1, 33, 65; ...

Stored as they are had, vectors of neighbouring lanes would lie apart, and L2 would get each sector
of 32 bytes in two parts. Those of three elements a pixel are three: as any odd number of them, they
are in different banks.
"""

from __future__ import annotations

from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.storage import Storage, c_type
from selector.gpu.codegen.threads.windows import VECTOR_BYTES
from selector.gpu.ir.expressions import (
    THREAD,
    behind,
    number,
    plus,
    pointer,
    shifted,
    times,
)
from selector.gpu.ir.layouts import in_bytes
from selector.gpu.ir.memory import LoadVector, StoreVector
from selector.gpu.ir.nodes import Memory, Sync
from selector.ir.affine import Affine
from selector.ir.nodes import Var
from selector.lowering.row_folds import WARP


def store_exchanged(
    run: str, lane: Var, first: Affine, elements: int, storage: Storage, context: KernelContext
) -> None:
    """Store so many ``elements`` of each lane's array ``run``, which lie behind those of the lane
    before; ``first``: where lane 0's do. All lanes of the warp are there.
    """
    w, size = context.writer, storage.type.bytes
    per, vectors = VECTOR_BYTES // size, elements * size // VECTOR_BYTES
    room, own = _room(WARP * elements, storage, context), context.scalar.legal(lane)
    w.add(Sync("warp"))
    for k in range(vectors):
        to = behind(pointer(room), times(plus(times(own, vectors), k), per))
        w.add(StoreVector(to, pointer(run), k * per, VECTOR_BYTES))
    w.add(Sync("warp"))
    for k in range(vectors):
        source = behind(pointer(room), times(plus(own, WARP * k), per))
        w.add(LoadVector(pointer(run), number(k * per), source, VECTOR_BYTES))
    for k in range(vectors):
        index = first + (Affine.of(lane) + WARP * k) * per
        at = storage.place(context.scalar.number(index.to_expr()))
        to = behind(pointer(storage.base), storage.start, at)
        w.add(StoreVector(to, pointer(run), k * per, VECTOR_BYTES))


def _room(elements: int, storage: Storage, context: KernelContext) -> str:
    """Shared memory of the warp's own."""
    bytes_, kind = elements * storage.type.bytes, c_type(storage.type)
    offset = context.shared.exchange(bytes_, context.block.threads // WARP)
    name, warp = context.names.fresh("exchanged"), shifted(THREAD, WARP.bit_length() - 1)
    layout = in_bytes((storage.type.bytes,))
    context.writer.add(Memory(name, kind, offset, 1, bytes_, (elements,), layout, warp, bytes_))
    return name
