"""Writes the vectors of one thread (``threads.vectors``): when they are taken, and their loads and
stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace

from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.storage import c_type
from selector.gpu.codegen.threads.lanes import LANE
from selector.gpu.codegen.threads.needs import Needs
from selector.gpu.codegen.threads.vectors import SHIFT, Vectors, first_lane, is_ahead, is_kept
from selector.gpu.codegen.threads.windows import VECTOR_BYTES, Window
from selector.gpu.ir.expressions import (
    all_of,
    at_least,
    behind,
    both,
    element,
    equal,
    masked,
    minus,
    number,
    plus,
    pointer,
    shifted,
)
from selector.gpu.ir.memory import Array, LoadVector, StoreVector
from selector.ir.affine import to_affine
from selector.ir.nodes import Call, Cast, Expr, IntImm
from selector.ir.traverse import substitute
from selector.ir.types import INT32, UINT64

WORD = 4  # bytes


def vector_condition(v: Vectors, context: KernelContext) -> Expr | None:
    """When it goes as vectors; None if always."""
    return condition_of(v.needs, v.given, context)


def condition_of(needs: Needs, given: Sequence[Expr], context: KernelContext) -> Expr | None:
    """When all lanes are as they have to be; None if always."""
    scalar = context.scalar
    least = [r + n for r, n in needs.least.items() if not context.is_met(r + n)]
    rooms = [at_least(scalar.number(room.to_expr()), 0) for room in least]
    tests = [scalar.legal(t) for t in (*given, *needs.tests)]
    found = [*rooms, *tests]
    return both(*found) if found else None


def vector_flags(v: Vectors, context: KernelContext) -> Expr | None:
    """Whether rows of all arrays that it moves vectors of begin at multiples, and strides are as
    they have to be.
    """
    moved = {w.buffer: w.per for w in v.windows if any(n > 1 for _, n in pieces(w))}
    if v.per > 1 and context.storages[v.lane.buffer].strips is None:
        moved[v.lane.buffer] = v.per
    aligned = (context.aligned_flag(b, per) for b, per in moved.items())
    return all_of((*aligned, strides_flag(v, context)))


def strides_flag(v: Vectors, context: KernelContext) -> Expr | None:
    """Whether strides are as they have to be; None if any are right."""
    return all_of(context.scalar.legal(e) for e in v.given)


def _keep(v: Vectors, context: KernelContext) -> None:
    """Elements that stay in the thread's registers (``lowering.kept_rows``), from where all of them
    are inside. They stay by words: written one by one, two halves would take two registers.
    """
    (window,) = v.windows
    w, storage, first = context.writer, window.storage, to_affine(v.lane.index).rest(LANE)
    to, at = context.scalar.number(first.to_expr()), context.scalar.number(window.start.to_expr())
    source = behind(pointer(storage.base), storage.start, at)
    own, bytes_ = pointer(context.storages[v.lane.buffer].base), v.needs.lanes * storage.type.bytes
    with w.when(context.aligned_flag(window.buffer, window.per)):
        w.add(LoadVector(own, to, source, bytes_))
    with w.otherwise():
        w.add(LoadVector(own, to, source, bytes_, "anywhere"))


def _ask(v: Vectors, context: KernelContext) -> None:
    """Elements that are not read at once go from memory to where they stay: nobody waits here."""
    (window,) = v.windows
    shift = first_lane(v.lane.index) - first_lane(v.lane.value) - window.first
    load_to(window, context.storages[v.lane.buffer].base, shift, context)


def load_to(window: Window, array: str, shift: int, context: KernelContext) -> None:
    """What a window holds, to an array of the thread's own, at so many elements further."""
    w, name, storage = context.writer, context.names.get(LANE.name), window.storage
    with w.when(context.aligned_flag(window.buffer, window.per)):
        load_pieces(window, context, (array, shift))
    with w.otherwise(), w.loop(name, number(window.low), number(window.high), "unrolled"):
        to = element(storage.type, pointer(array), plus(name, shift))
        w.store(to, context.scalar.access(storage, (window.start + LANE).to_expr()))


def shift_of(v: Vectors, thread: str, context: KernelContext) -> Expr:
    """``SHIFT``: how far the first thread's lanes are from a multiple."""
    storage, nothing = context.storages[v.lane.buffer], IntImm(0)
    zeros: dict[str, Expr] = {thread: nothing, SHIFT.name: nothing, LANE.name: nothing}
    first = context.scalar.number(to_affine(substitute(v.lane.index, zeros)).to_expr())
    start = Cast(UINT64, behind(pointer(storage.base), storage.start, first))
    size = v.per * storage.type.bytes
    over = Call(UINT64, "bitwise_and", (start, IntImm(size - 1, UINT64)))
    elements = shifted(Cast(INT32, over), storage.type.bytes.bit_length() - 1)
    return masked(minus(v.per, elements), v.per - 1)


def emit_vectors(v: Vectors, context: KernelContext) -> None:
    """Write the statement for where it goes as vectors."""
    w, scalar, s = context.writer, context.scalar, v.lane
    if is_kept(v):
        _keep(v, context)
        return
    if is_ahead(v):
        _ask(v, context)
        return
    load_windows(v, context)
    storage, lanes = context.storages[s.buffer], v.needs.lanes
    kind, run = c_type(storage.type), context.names.fresh("run")
    if v.per > 1:
        w.add(Array(run, kind, lanes, v.per * storage.type.bytes))
    name = context.names.get(LANE.name)
    with w.loop(name, number(0), number(lanes), "unrolled"):
        own = element(storage.type, pointer(run), name)
        w.store(own if v.per > 1 else scalar.access(storage, s.index), scalar.legal(s.value))
    if v.per > 1 and (v.ahead or storage.strips is not None):
        _store(v, run, context)
    elif v.per > 1:
        with w.when(context.aligned_flag(s.buffer, v.per)):
            _store(v, run, context)
        with w.otherwise(), w.loop(name, number(0), number(lanes), "unrolled"):
            w.store(scalar.access(storage, s.index), element(storage.type, pointer(run), name))


def emit_side_by_side(
    vectors: Sequence[Vectors], context: KernelContext, *, aligned: bool = False
) -> None:
    """Statements whose windows are those of the last one, for where all go as vectors."""
    load_windows(vectors[-1], context, aligned=aligned)
    for v in vectors:
        emit_vectors(replace(v, windows=()), context)


def load_windows(v: Vectors, context: KernelContext, *, aligned: bool = False) -> None:
    """Load what its windows hold; ``aligned``: rows of pixels begin at multiples."""
    for window in v.windows:
        _load(window, context, aligned)


def rows_flag(v: Vectors, context: KernelContext) -> Expr | None:
    """Whether all rows of pixels begin at multiples; None where there are none."""
    rows = [w for w in v.windows if _is_row(w)]
    return all_of(context.aligned_flag(w.buffer, w.rows, w.pixels) for w in rows)


def _is_row(window: Window) -> bool:
    """Whether a window may be loaded as whole vectors of a row of pixels."""
    rows = window.rows
    return rows > 1 and window.low % rows == 0 and window.high % rows == 0


def _store(v: Vectors, run: str, context: KernelContext) -> None:
    """What is in the thread's array, as vectors."""
    storage, start = context.storages[v.lane.buffer], to_affine(v.lane.index).rest(LANE)
    for k in range(0, v.needs.lanes, v.per):
        at = storage.place(context.scalar.number((start + k).to_expr()))
        to = behind(pointer(storage.base), storage.start, at)
        context.writer.add(StoreVector(to, pointer(run), k, v.per * storage.type.bytes))


def _load(window: Window, context: KernelContext, aligned: bool = False) -> None:
    w = context.writer
    if window.anywhere:
        _load_anywhere(window, context, aligned)
        return
    declare(window, context)
    if all(n == 1 for _, n in pieces(window)):
        _load_elements(window, context)
        return
    with w.when(context.aligned_flag(window.buffer, window.per)):
        load_pieces(window, context)
    with w.otherwise():
        _load_elements(window, context)


def load_pieces(window: Window, context: KernelContext, to: tuple[str, int] | None = None) -> None:
    """What a window holds, as vectors where they begin at multiples: to its array, or ``to``
    another one, at so many elements further.
    """
    w, storage = context.writer, window.storage
    name, shift = to or (window.name, -window.first)
    for k, n in pieces(window):
        if n == 1:
            own = element(storage.type, pointer(name), k + shift)
            w.store(own, context.scalar.access(storage, (window.start + k).to_expr()))
        else:
            w.add(_vector(window, k, n, (name, shift), context))


def declare(window: Window, context: KernelContext) -> None:
    """The thread's array of a window."""
    size, alignment = window.high - window.first, window.per * window.storage.type.bytes
    context.writer.add(Array(window.name, c_type(window.storage.type), size, alignment))


def load_vector(window: Window, k: int, context: KernelContext, wanted: Expr | None = None) -> None:
    """The vector that begins at an element of a window, or zeros where it is not ``wanted``."""
    own = _vector(window, k, window.per, (window.name, -window.first), context)
    context.writer.add(replace(own, wanted=wanted))


def _vector(
    window: Window, k: int, n: int, to: tuple[str, int], context: KernelContext
) -> LoadVector:
    """So many elements from one on, to an array at so many elements further."""
    storage, (name, shift) = window.storage, to
    at = context.scalar.number((window.start + k).to_expr())
    source = behind(pointer(storage.base), storage.start, at)
    return LoadVector(pointer(name), number(k + shift), source, n * storage.type.bytes)


def _load_anywhere(window: Window, context: KernelContext, aligned: bool) -> None:
    """All at once, by words; as vectors where that is a multiple (rows of what is stored often
    begin as those of what is loaded do), and rows of pixels where they begin at multiples.
    """
    storage, size = window.storage, window.storage.type.bytes
    bytes_ = (window.high - window.low) * size
    count = -(-bytes_ // WORD) * WORD // size
    w, rows = context.writer, window.rows if _is_row(window) else 1
    whole_vectors = rows == 1 and bytes_ % VECTOR_BYTES == 0
    alignment = VECTOR_BYTES if whole_vectors else max(WORD, size, rows * size)
    w.add(Array(window.name, c_type(storage.type), count, alignment))
    at = context.scalar.number((window.start + window.low).to_expr())
    source = behind(pointer(storage.base), storage.start, at)
    whole = LoadVector(pointer(window.name), number(0), source, bytes_, "anywhere")
    if whole_vectors:
        over = Call(UINT64, "bitwise_and", (Cast(UINT64, source), IntImm(VECTOR_BYTES - 1, UINT64)))
        with w.when(equal(over, IntImm(0, UINT64))):
            _load_vectors(window, source, VECTOR_BYTES // size, context)
        with w.otherwise():
            w.add(whole)
        return
    if rows == 1:
        w.add(whole)
        return
    flag = context.aligned_flag(window.buffer, rows, window.pixels)
    with nullcontext() if aligned else w.when(flag):
        _load_vectors(window, source, rows, context)
    if not aligned:
        with w.otherwise():
            w.add(whole)


def _load_vectors(window: Window, source: Expr, per: int, context: KernelContext) -> None:
    """All of it, from where a vector begins."""
    for k in range(0, window.high - window.low, per):
        start, bytes_ = behind(source, IntImm(k)), per * window.storage.type.bytes
        context.writer.add(LoadVector(pointer(window.name), number(k), start, bytes_))


def _load_elements(window: Window, context: KernelContext) -> None:
    """One by one."""
    w, storage, name = context.writer, window.storage, context.names.get(LANE.name)
    with w.loop(name, number(0), number(window.high - window.low), "unrolled"):
        to = element(storage.type, pointer(window.name), plus(name, window.low - window.first))
        at = (window.start + window.low + LANE).to_expr()
        w.store(to, context.scalar.access(storage, at))


def pieces(window: Window, *, smaller: bool = True) -> Iterator[tuple[int, int]]:
    """Where each load of a window begins, and how many elements it has: a vector, or, at the ends,
    a ``smaller`` one of at least a word, or one.
    """
    k, size = window.low, window.storage.type.bytes
    while k < window.high:
        n = window.per
        while n > 1 and (k % n or k + n > window.high):
            n = n // 2 if smaller and n * size > WORD else 1
        yield k, n
        k += n
