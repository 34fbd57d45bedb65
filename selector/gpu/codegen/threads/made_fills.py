"""Nests that fill shared memory with what is computed of rows of arrays, by vectors.

    for y < 64: for x < 64: tile[x + 72*y] = f16(f32(a[x + s*y ...]) / 255)

goes by as many elements at a time as are 16 bytes of the tile: what they read comes as vectors,
that of several of a thread before the first is computed, and they are stored at once. So where all
that the threads read is inside; elsewhere element by element.
"""

from __future__ import annotations

from contextlib import nullcontext
from math import prod

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.storage import Space, c_type
from selector.gpu.codegen.threads.ends import met_by_all
from selector.gpu.codegen.threads.lanes import LANE
from selector.gpu.codegen.threads.needs import Needs, Unknown
from selector.gpu.codegen.threads.nests import Nest
from selector.gpu.codegen.threads.plain import ThreadCode
from selector.gpu.codegen.threads.vector_code import load_to
from selector.gpu.codegen.threads.vector_fills import at_once
from selector.gpu.codegen.threads.windows import Window, Windows
from selector.gpu.ir.expressions import behind, element, less, mixed_radix, number, plus, pointer
from selector.gpu.ir.memory import Array, StoreVector
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Expr, IntImm, Load
from selector.ir.simplify import add
from selector.ir.traverse import free_vars, replaced_all, substitute, walk_expr
from selector.lowering.predicates import TRUE
from selector.targets import VECTOR_BYTES

WORDS = 32  # of a thread for what is on its way and what is computed of it, at most


@dataclass(frozen=True, slots=True)
class MadeRows:
    """``turns`` times a thread has a vector of ``lanes`` elements, or until there are ``count``:
    the ``value`` of one lane, of ``windows`` of arrays, goes ``to`` shared memory, where all that
    is read is inside if ``met`` holds.
    """

    nest: Nest
    value: Expr
    lanes: int
    windows: tuple[Window, ...]
    to: Affine
    met: Expr
    turns: int
    count: int

    def span(self, window: Window) -> int:
        """Elements of a thread's array for a window, in each turn."""
        return -(-(window.high - window.first) // window.per) * window.per


def made_rows_of(nest: Nest, size: int, context: KernelContext) -> MadeRows | None:
    """None where a nest is another one; its vectors are dealt out to ``size`` threads."""
    store, counts = nest.store, [d.count or 0 for d in nest.digits]
    shared = context.storages[store.buffer]
    if nest.condition is not None or store.predicate is not None or not all(counts) or not counts:
        return None
    if shared.space is not Space.SHARED or shared.type.is_bool:
        return None
    if isinstance(store.value, Load):
        return None  # nothing is computed
    lanes, x = VECTOR_BYTES // shared.type.bytes, nest.digits[0].var
    if lanes < 2 or counts[0] % lanes or (shared.strips and shared.strips.per % lanes):
        return None
    own: dict[str, Expr] = {x.name: (Affine.of(x) * lanes + LANE).to_expr()}  # x counts vectors
    to, windows = to_affine(substitute(store.index, own)), Windows(context, Needs(lanes))
    dense, to = to.coefficient(LANE).constant == 1, to.rest(LANE)
    if not dense or at_once(to, lanes, shared.type.bytes) < VECTOR_BYTES:
        return None
    try:
        value = windows.replaced(substitute(store.value, own))
    except Unknown:
        return None
    if not _by_vectors(value, windows):
        return None
    steps = {d.var.name: d.count or 1 for d in nest.digits} | {x.name: counts[0] // lanes}
    met = met_by_all(windows.needs, steps, context)
    if met is None:
        return None
    count, words = prod(counts) // lanes, VECTOR_BYTES // 4
    words += sum(-(-(w.high - w.first) * w.storage.type.bytes // 4) for w in windows.found)
    rounds = -(-count // size)
    turns = -(-rounds // -(-rounds // max(1, WORDS // words)))  # as many in each round
    return MadeRows(nest, value, lanes, tuple(windows.found), to, met, turns, count)


def _by_vectors(value: Expr, windows: Windows) -> bool:
    """Whether all that lanes read each for themselves comes as vectors."""
    names = {w.name for w in windows.found}
    loads = [e for e in walk_expr(value) if isinstance(e, Load)]
    alone = any(e.buffer not in names and LANE.name in free_vars(e.index) for e in loads)
    whole = all(w.per > 1 for w in windows.found)
    return bool(names) and whole and not alone and not any(windows.given())


def bring_made(found: MadeRows, thread: Expr, size: int, threads: ThreadCode) -> None:
    """All vectors of a nest where that may be, elsewhere element by element."""
    context, always = threads.context, found.met == TRUE
    w = context.writer
    with w.block() if always else w.when(found.met):
        rounds = -(-found.count // (size * found.turns))
        step = number(size * found.turns)
        looped = w.loop("first", thread, number(found.count), step=step) if rounds > 1 else None
        with looped or nullcontext():
            _turns(found, number("first") if looped else thread, size, threads)
    if not always:
        with w.otherwise():
            threads.spread(found.nest, thread, size)


def fill(nest: Nest, thread: Expr, size: int, threads: ThreadCode) -> None:
    """By vectors if what is computed may be, else element by element."""
    found = made_rows_of(nest, size, threads.context)
    if found is None:
        threads.spread(nest, thread, size)
    else:
        bring_made(found, thread, size, threads)


def _turns(found: MadeRows, first: Expr, size: int, threads: ThreadCode) -> None:
    context, nest = threads.context, found.nest
    w = context.writer
    for window in found.windows:
        size_, bytes_ = found.turns * found.span(window), window.per * window.storage.type.bytes
        w.add(Array(window.name, c_type(window.storage.type), size_, bytes_))
    first_count, *others = (d.count or 0 for d in nest.digits)
    radices = [first_count // found.lanes, *others[:-1]]
    some = found.count % (size * found.turns) > 0
    for step in (_load, _store):
        for turn in range(found.turns):
            with w.block():
                vector = plus(first, turn * size) if turn else first
                with w.when(less(vector, found.count)) if some else nullcontext():
                    threads.digits(nest, mixed_radix(vector, radices))
                    step(found, turn, context)


def _load(found: MadeRows, turn: int, context: KernelContext) -> None:
    """What a turn's vector reads."""
    for window in found.windows:
        load_to(window, window.name, turn * found.span(window) - window.first, context)


def _store(found: MadeRows, turn: int, context: KernelContext) -> None:
    """A turn's vector, computed of that."""
    w, scalar, storage = context.writer, context.scalar, context.storages[found.nest.store.buffer]
    shifts = {window.name: IntImm(turn * found.span(window)) for window in found.windows}
    loads = [e for e in walk_expr(found.value) if isinstance(e, Load) and e.buffer in shifts]
    moved = {e: Load(e.type, e.buffer, add(e.index, shifts[e.buffer])) for e in loads}
    value = replaced_all(found.value, moved)
    own, name = context.names.fresh("run"), context.names.get(LANE.name)
    w.add(Array(own, c_type(storage.type), found.lanes, VECTOR_BYTES))
    with w.loop(name, number(0), number(found.lanes), "unrolled"):
        w.store(element(storage.type, pointer(own), name), scalar.legal(value))
    at = storage.place(scalar.number(found.to.to_expr()))
    to = behind(pointer(storage.base), storage.start, at)
    w.add(StoreVector(to, pointer(own), 0, VECTOR_BYTES))
