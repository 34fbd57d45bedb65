"""What copies into shared memory cost a block, beside its tensor instructions: for the report.

The prediction is simple on purpose, in cycles of a multiprocessor for all that a block does:

* a tensor instruction: its multiply-adds, 1024 a cycle;
* a copy: the most of 16 cycles for each access of a thread one after the other, 16 issue slots for
  each access of a warp at 4 a cycle, and its bytes at 64 a cycle. Two accesses that meet in a bank
  hide behind that; more take their time.

A loop of unknown extent counts as 16 iterations, for copies and instructions alike.
"""

from __future__ import annotations

from math import gcd, prod

from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.copies.recognise import Copy
from selector.gpu.codegen.scalars.storage import Space
from selector.gpu.codegen.shared_memory import Taking
from selector.gpu.codegen.threads.nests import Nest
from selector.gpu.codegen.threads.vectors import as_vectors
from selector.intrinsics import records
from selector.intrinsics.calls import constants
from selector.ir.affine import to_affine
from selector.ir.contents import loaded
from selector.ir.nodes import Call, Expr, For, IntImm, Load, Stmt, Store
from selector.ir.traverse import stmt_children, walk_stmt
from selector.lowering.structure import loaded_names
from selector.runtime.plan import CopyCost, CopyLimit

_UNKNOWN_LOOP = 16
_MACS, _ISSUE, _SCHEDULERS, _BYTES, _BANKS = 1024, 16, 4, 64, 32


def note(s: Store, taking: Taking | None, context: KernelContext) -> None:
    """Remember how a statement is written, if it fills shared memory from elsewhere."""
    if taking is not None:
        context.shared.copies.setdefault(s.buffer, taking)


def of_nest(nest: Nest, context: KernelContext, size: int) -> Taking | None:
    """A nest that is stored element by element; all of ``size`` threads that it has work for take
    part."""
    source = _source(nest.store, context)
    if source is None:
        return None
    total = prod(d.count or size for d in nest.digits)
    width = context.storages[nest.store.buffer].type.bytes
    step = to_affine(nest.store.index).coefficient(nest.digits[0].var) if nest.digits else None
    conflicts = 1 if step is None else _conflicts((step.constant or 1) * width)
    return Taking(source, min(size, total), size, width, conflicts, _limit(nest))


def _limit(nest: Nest) -> CopyLimit:
    """What keeps the elements of a nest from being copied 16 bytes at a time."""
    load = nest.store.value
    if not isinstance(load, Load):
        return CopyLimit.COMPUTED
    to, source = to_affine(nest.store.index), to_affine(load.index)
    own = {d.var for d in nest.digits if to.coefficient(d.var).constant == 1}
    neighbours = {d.var for d in nest.digits if source.coefficient(d.var).constant == 1}
    if own & neighbours:
        return CopyLimit.START
    return CopyLimit.TURNED if neighbours else CopyLimit.APART


def of_copy(copy: Copy, size: int) -> Taking:
    """A copy in chunks of 16 bytes, unless no chunk can start at a multiple of that."""
    total = copy.chunks * copy.count
    start = to_affine(copy.coordinates[0]).rest(copy.x.var)
    moving = gcd(copy.per, *(c for term, c in start if term))
    threads = min(size, total)
    if start.offset % moving:
        width = 16 // copy.per
        return Taking(copy.source.buffer, threads, size, width, limit=CopyLimit.START)
    return Taking(copy.source.buffer, threads, size, 16)


def of_threads(
    s: Stmt, threads: int, size: int, copied: bool, context: KernelContext
) -> tuple[Store, Taking] | None:
    """The statement in gpu_thread loops that fills shared memory from what they read of global
    memory, each thread its own; the last one, if there are several. ``copied``: all threads
    together could copy it.
    """
    known = context.storages
    read = {n for n in loaded_names(s) if n in known and known[n].space is Space.GLOBAL}
    filled = [x for x in walk_stmt(s) if isinstance(x, Store) and _is_shared(x.buffer, context)]
    if not read or not filled:
        return None
    width = known[filled[-1].buffer].type.bytes
    if known[filled[-1].buffer].strips is not None:
        vectors = as_vectors(filled[-1], context)
        width *= 1 if vectors is None else vectors.per
    limit = CopyLimit.THREADS if copied else CopyLimit.COMPUTED
    return filled[-1], Taking(min(read), min(size, threads), size, width, limit=limit)


def copy_costs(body: Stmt, name: str, context: KernelContext) -> tuple[CopyCost, ...]:
    """What each copy of a kernel costs, as a share of the kernel's predicted time."""
    if not context.shared.copies:
        return ()
    elements: dict[str, int] = {}
    macs = _count(body, 1, context, elements)
    cycles = {to: _cycles(context, to, elements.get(to, 0)) for to in context.shared.copies}
    total = sum(cycles.values()) + macs / _MACS
    return tuple(
        CopyCost(
            name, to, t.source, t.threads, t.of, t.width, t.conflicts, cycles[to] / total, t.limit
        )
        for to, t in context.shared.copies.items()
        if macs and cycles[to]
    )


def _cycles(context: KernelContext, to: str, elements: int) -> float:
    taking = context.shared.copies[to]
    bytes_ = elements * context.storages[to].type.bytes
    accesses = bytes_ / taking.width
    issued = max(accesses / taking.threads, accesses / 32 / _SCHEDULERS) * _ISSUE
    return max(issued * max(1, taking.conflicts / 2), bytes_ / _BYTES)


def _count(s: Stmt, times: int, context: KernelContext, elements: dict[str, int]) -> int:
    """Multiply-adds of tensor instructions that a block issues; elements stored are noted."""
    match s:
        case For(extent=extent, body=body):
            count = extent.value if isinstance(extent, IntImm) else _UNKNOWN_LOOP
            return _count(body, times * count, context, elements)
        case Store(buffer, _, value, _):
            if buffer in context.shared.copies:
                elements[buffer] = elements.get(buffer, 0) + times * value.type.lanes
            return times * _macs(value)
        case _:
            return sum(_count(x, times, context, elements) for x in stmt_children(s))


def _macs(value: Expr) -> int:
    """Of a stored value: an instruction stands alone in its statement."""
    if not isinstance(value, Call) or records.find(value.name) is None:
        return 0
    return prod(constants(value, 3))


def _source(s: Store, context: KernelContext) -> str | None:
    """The global memory that a statement fills shared memory from."""
    if not _is_shared(s.buffer, context):
        return None
    known = context.storages
    sources = (n for n in sorted(loaded(s.value)) if n in known and known[n].space is Space.GLOBAL)
    return next(sources, None)


def _is_shared(name: str, context: KernelContext) -> bool:
    known = context.storages.get(name)
    return known is not None and known.space is Space.SHARED


def _conflicts(step: int) -> int:
    """Accesses of a warp that meet in one bank of 4 bytes, ``step`` bytes apart from lane to
    lane."""
    words = {abs(lane * step) // 4 for lane in range(32)}
    banks = [sum(w % _BANKS == bank for w in words) for bank in range(_BANKS)]
    return max(banks)
