"""Vector statements of one thread on arrays: neighbours are loaded and stored as vectors, up to 16
bytes at once, where all of them are inside; where the rows of an array are not aligned, one by one.

    out[ramp(4*i, 1, 4)] = a[ramp(4*i - 1, 1, 4)] + a[ramp(4*i, 1, 4)]

needs five elements of ``a``. They are a *window*: loaded once, four of them as one vector, into an
array of the thread's own. Coordinates that are clamped are taken as they are where that changes
nothing. The condition for all of it is tested once; what is left goes lane by lane.
"""

from __future__ import annotations

from dataclasses import field, replace

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.storage import Space
from selector.gpu.codegen.threads.lanes import LANE, goes_on, later, one_lane
from selector.gpu.codegen.threads.needs import Needs, Unknown
from selector.gpu.codegen.threads.windows import Window, Windows, per_of, start_and_step, widest
from selector.ir.affine import to_affine
from selector.ir.contents import holds
from selector.ir.nodes import (
    Expr,
    Load,
    Store,
    Var,
    VectorReduce,
)
from selector.lowering.kept_rows import KEPT
from selector.lowering.predicates import unpredicated
from selector.lowering.rows_ahead import AHEAD
from selector.targets import THREAD_LANES

SHIFT = Var("$shift")  # lanes that vectors begin later


@dataclass(frozen=True, slots=True)
class Vectors:
    """A statement as vectors: ``lane`` is what one of them does, with loads of the windows' arrays;
    ``per``: elements that are stored at once (1: as they are); ``given``: what has to hold of
    strides; ``ahead``: vectors are stored at a multiple, whatever the rows of the array begin at;
    ``stored``: when all lanes are stored, wherever they read.
    """

    lane: Store
    windows: tuple[Window, ...]
    per: int
    needs: Needs
    given: tuple[Expr, ...] = ()
    ahead: bool = False
    stored: Needs = field(default_factory=lambda: Needs(1))


def as_vectors(s: Store, context: KernelContext) -> Vectors | None:
    """None where nothing is gained, or it cannot be told when all lanes are inside."""
    if not _has_lanes(s):
        return None
    lanes, own = s.value.type.lanes, context.storages[s.buffer].space is Space.LOCAL
    found = vectors_of(one_lane(s), lanes, Windows(context, Needs(lanes), smaller=own))
    if found is None or found.per > 1:
        return found
    return found if any(w.per > 1 or w.anywhere for w in found.windows) else None


def inner_vectors(s: Store, context: KernelContext) -> Vectors | None:
    """The same for a block that reads nothing beyond an edge: no place is bent there, that of a row
    as little as that of a lane. None if that is never so, or cannot be told.
    """
    lanes, names = s.value.type.lanes, frozenset({*context.indices.counts, LANE.name})
    found = vectors_of(one_lane(s), lanes, Windows(context, Needs(lanes), moving=names))
    return None if found is None or found.given else found


def is_kept(v: Vectors) -> bool:
    """Whether a statement loads one vector into what stays in the thread's registers."""
    if not v.lane.buffer.startswith(KEPT) or len(v.windows) != 1:
        return False
    (window,) = v.windows
    return (window.low, window.high, window.per, window.step) == (
        0,
        v.needs.lanes,
        v.needs.lanes,
        1,
    )


def is_ahead(v: Vectors) -> bool:
    """Whether a statement loads what a thread reads in its next turn (``lowering.rows_ahead``), and
    its array has vectors where memory has them.
    """
    if not v.lane.buffer.startswith(AHEAD) or len(v.windows) != 1:
        return False
    (window,), value = v.windows, v.lane.value
    if not isinstance(value, Load) or value.buffer != window.name or window.step != 1:
        return False
    over = first_lane(v.lane.index) - first_lane(value)
    return not window.anywhere and over % window.per == 0


def first_lane(e: Expr) -> int:
    """The element of lane 0 that a load is of, or an index."""
    index = e.index if isinstance(e, Load) else e
    return to_affine(index).rest(LANE).offset


def vectors_ahead(s: Store, thread: str, context: KernelContext) -> Vectors | None:
    """Vectors of which those that are stored begin at a multiple: ``SHIFT`` lanes later, where
    those of the next thread go on. What is loaded may lie anywhere.
    """
    lanes, per = s.value.type.lanes, widest(context.storages[s.buffer], s.value.type.lanes)
    if per == 1 or context.storages[s.buffer].panels is not None or not _has_lanes(s):
        return None
    one = one_lane(s)
    if not goes_on(one, thread, lanes):
        return None
    found = vectors_of(later(one, SHIFT), lanes, Windows(context, Needs(lanes), anywhere=True))
    return None if found is None else replace(found, per=per, ahead=True)


def _has_lanes(s: Store) -> bool:
    """Whether a statement may go as vectors."""
    sums = holds(s.value, VectorReduce)
    return s.value.type.lanes <= THREAD_LANES and not sums


def vectors_of(one: Store, lanes: int, windows: Windows) -> Vectors | None:
    """A statement of one lane, as vectors of so many; those that it stores may be of one."""
    needs, context = windows.needs, windows.context
    storage, value, stored = context.storages[one.buffer], one.value, Needs(lanes)
    try:
        if one.predicate is not None:
            needs.holds(one.predicate)
            stored.holds(one.predicate)
            value = unpredicated(value, one.predicate)
        value = windows.replaced(value)
    except Unknown:
        return None
    per = 1
    near = storage.space is Space.GLOBAL or storage.strips is not None  # chunks of strips are whole
    dense = start_and_step(to_affine(one.index)) if near else None
    if dense is not None and dense[1] == 1:
        start = dense[0]
        per = per_of(storage, start - start.offset, one.buffer, lanes, context)
        per = per if start.offset % per == 0 else 1
    one = Store(one.buffer, one.index, value)
    return Vectors(one, tuple(windows.found), per, needs, tuple(windows.given()), stored=stored)


def thread_of(v: Vectors, threads: dict[str, int]) -> str | None:
    """The loop over threads each of which goes on where the one before ends."""
    index = to_affine(v.lane.index)
    if index.coefficient(LANE).constant != 1:
        return None
    found = (t for t in threads if index.coefficient(Var(t)).constant == v.needs.lanes)
    return next(found, None)
