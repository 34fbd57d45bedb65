"""Vector statements of one thread on arrays: neighbours are loaded and stored as vectors, up to 16
bytes at once, where all of them are inside; where the rows of an array are not aligned, one by one.

    out[ramp(4*i, 1, 4)] = a[ramp(4*i - 1, 1, 4)] + a[ramp(4*i, 1, 4)]

needs five elements of ``a``. They are a *window*: loaded once, four of them as one vector, into an
array of the thread's own. Coordinates that are clamped are taken as they are where that changes
nothing. The condition for all of it is tested once; what is left goes lane by lane.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import field, replace

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.storage import Space, Storage
from selector.gpu.codegen.threads.lanes import LANE, goes_on, later, one_lane
from selector.gpu.codegen.threads.needs import Needs, Unknown
from selector.ir.affine import Affine, carries, split_by_strides, to_affine
from selector.ir.contents import holds
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Expr,
    IntImm,
    Load,
    Select,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.traverse import free_vars, replaced_all, substitute, walk_expr
from selector.lowering.boundaries import clamps, inner_side
from selector.lowering.kept_rows import KEPT
from selector.lowering.predicates import unpredicated
from selector.lowering.rows_ahead import AHEAD

VECTOR_BYTES = 16
MOST_LANES = 64
APART = 4  # elements between lanes of which all that lie between are loaded, too
SHIFT = Var("$shift")  # lanes that vectors begin later
_Place = tuple[str, Affine, int]  # a buffer, where lane 0 is in it but for its offset, and the step


@dataclass(slots=True)
class Window:
    """Elements ``low`` to before ``high`` from ``start`` on of a ``buffer``, for the thread's array
    ``name``, of which lanes are ``step`` apart; ``per`` of them are a vector, which begins at a
    multiple (1: none is), or all of them, ``anywhere``, but as ``rows`` of vectors of so many where
    rows of pixels begin at multiples.
    """

    name: str
    buffer: str
    storage: Storage
    start: Affine
    step: int
    per: int
    low: int
    high: int
    anywhere: bool = False
    rows: int = 1
    pixels: frozenset[str] = frozenset()
    loads: list[tuple[int, Load]] = field(
        default_factory=list[tuple[int, Load]]
    )  # of a lane, with lane 0's element

    @property
    def first(self) -> int:
        """The element at the begin of the thread's array."""
        return self.low // self.per * self.per


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
    return s.value.type.lanes <= MOST_LANES and not sums


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
    dense = _dense(to_affine(one.index)) if near else None
    if dense is not None and dense[1] == 1:
        start = dense[0]
        per = _per(storage, start - start.offset, one.buffer, lanes, context)
        per = per if start.offset % per == 0 else 1
    one = Store(one.buffer, one.index, value)
    return Vectors(one, tuple(windows.found), per, needs, tuple(windows.given()), stored=stored)


def _dense(index: Affine) -> tuple[Affine, int] | None:
    """Where lanes begin, and how far apart they are, if that is not far."""
    start, step = index.rest(LANE), index.coefficient(LANE).constant
    if step is None or not 1 <= step <= APART or start.mentions(LANE.name):
        return None
    return start, step


def _per(storage: Storage, start: Affine, buffer: str, lanes: int, context: KernelContext) -> int:
    """How many elements a vector has, at most; 1 if it may begin anywhere."""
    per = widest(storage, lanes)
    while not context.is_multiple(start, per, buffer):
        per //= 2
    return per


def widest(storage: Storage, lanes: int) -> int:
    """How many elements a vector of some lanes has, at most."""
    per = max(1, VECTOR_BYTES // storage.type.bytes)
    while lanes % per:
        per //= 2
    return per


class Windows:
    """The windows of a statement."""

    def __init__(
        self,
        context: KernelContext,
        needs: Needs,
        *,
        anywhere: bool = False,
        rows: bool = False,
        smaller: bool = False,
        moving: Set[str] = frozenset({LANE.name}),
    ) -> None:
        """``rows``: those of pixels may begin at multiples of vectors. ``smaller``: what is left
        of them at the ends may be smaller vectors. ``moving``: a place that has one of these in it
        is inside as it is, and not bent.
        """
        self.context, self.needs, self.anywhere, self.rows = context, needs, anywhere, rows
        self.smaller, self.moving = smaller, moving
        self.found: list[Window] = []
        self.pixels: dict[str, int] = {}  # their elements, by the stride from one to the next

    def note(self, value: Expr) -> list[Load]:
        """What a lane's value loads."""
        loads = [e for e in walk_expr(value) if isinstance(e, Load)]
        for load in loads:
            self._note_pixel(load)
        return loads

    def enter(self, *values: Expr) -> dict[Load, tuple[_Place, int]]:
        """What values of a lane load, and where: all of it is in windows then."""
        loads = [load for value in values for load in self.note(value)]
        places = {e: place for e in dict.fromkeys(loads) if (place := self._place(e)) is not None}
        for at, offset in sorted(places.values(), key=lambda place: place[1]):
            self._enter(*at, offset)
        return places

    def replaced(self, value: Expr) -> Expr:
        """A lane's value with loads of the thread's arrays."""
        places = self.enter(value)
        for e, (at, offset) in places.items():
            if (window := self._of(*at, offset)) is not None:
                window.loads.append((offset, e))
        held = {e: self._held(e, *place) for e, place in places.items()}
        return replaced_all(value, held)

    def _place(self, load: Load) -> tuple[_Place, int] | None:
        """What window a load is of, and the element of lane 0 there; None for other loads."""
        storage = self.context.storages[load.buffer]
        if storage.space is not Space.GLOBAL or LANE.name not in free_vars(load.index):
            return None
        needs = Needs(self.needs.lanes)
        try:
            index = self.inside(load, needs)
            dense = _dense(to_affine(substitute(index, self._strides())))
        except Unknown:
            return None
        if dense is None:
            return None
        start, step = dense
        self.needs.update(needs)
        return (load.buffer, start - start.offset, step), start.offset

    def inside(self, load: Load, needs: Needs, alike: Needs | None = None) -> Expr:
        """The index of a load that is inside of its array in all lanes, and bent in none. What is
        ``alike`` for all lanes of what is zeros elsewhere may be told apart.
        """
        index, own = _unclamped(load.index, needs, self.moving), needs
        if load.predicate is not None:
            own = alike or needs
            needs.holds(load.predicate, alike=alike)
        self._inside(self.context.storages[load.buffer], to_affine(index), needs, own)
        return index

    def _note_pixel(self, load: Load) -> None:
        """Of elements that lie as far apart as a dimension's stride says, those that are read may
        be a pixel's, and pixels lie side by side: how many elements that are, if it is few.
        """
        param = self.context.storages[load.buffer].param
        step = to_affine(load.index).coefficient(LANE)
        strides = () if param is None else [d.stride for d in param.dims[1:]]
        stride = next((s for s in strides if isinstance(s, Var) and step == Affine.of(s)), None)
        if param is None or stride is None or carries(param.dims):
            return
        found = split_by_strides(load.index, param.dims)
        channel = None if found is None else to_affine(found[0]).constant
        if channel is not None and 0 <= channel < APART:
            self.pixels[stride.name] = max(channel + 1, self.pixels.get(stride.name, 2))

    def _strides(self) -> dict[str, Expr]:
        return {name: IntImm(count) for name, count in self.pixels.items()}

    def given(self) -> Iterator[Expr]:
        for name, count in self.pixels.items():
            yield Compare(CompareOp.EQ, Var(name), IntImm(count))

    def _inside(self, storage: Storage, index: Affine, needs: Needs, alike: Needs) -> None:
        if storage.own:
            return
        if storage.param is None:
            if storage.elements is None:
                raise Unknown
            inside = [(index, to_affine(storage.elements))]
        else:
            dims = storage.param.dims
            found = split_by_strides(index.to_expr(), dims)
            if found is None or carries(dims):
                raise Unknown
            inside = [(to_affine(c), to_affine(d.extent)) for c, d in zip(found, dims, strict=True)]
        for coordinate, extent in inside:
            ends, own = clamps(coordinate), needs if coordinate.mentions(LANE.name) else alike
            own.everywhere(ends[0] if ends else coordinate)
            for most in ends or (coordinate,):
                own.everywhere(extent - most - 1)

    def _enter(self, buffer: str, start: Affine, step: int, offset: int) -> None:
        lanes = self.needs.lanes * step
        high = offset + lanes - step + 1
        window = self._of(buffer, start, step, offset)
        if window is not None:
            window.high = max(window.high, high)
            return
        storage, name = self.context.storages[buffer], self.context.names.fresh("near")
        param = storage.param
        pixels = param is not None and any(
            isinstance(d.stride, Var) and d.stride.name in self.pixels for d in param.dims
        )
        anywhere = self.anywhere or pixels
        most = 1 << (lanes.bit_length() - 1) if self.smaller else lanes
        per = 1 if anywhere else _per(storage, start, buffer, most, self.context)
        rows = _per(storage, start, buffer, lanes, self.context) if pixels and self.rows else 1
        strides = frozenset(self.pixels)
        window = Window(
            name, buffer, storage, start, step, per, offset, high, anywhere, rows, strides
        )
        self.found.append(window)
        self.context.storages[name] = Storage(name, storage.type, Space.LOCAL)

    def _of(self, buffer: str, start: Affine, step: int, offset: int) -> Window | None:
        for w in self.found:
            alike = (w.buffer, w.start, w.step) == (buffer, start, step)
            if alike and w.low <= offset <= w.high:
                return w
        return None

    def _held(self, load: Load, at: _Place, offset: int) -> Load:
        window = self._of(*at, offset)
        assert window is not None
        index = Affine.of(LANE) * window.step + (offset - window.first)
        return Load(load.type, window.name, index.to_expr())


def _unclamped(e: Expr, needs: Needs, moving: Set[str]) -> Expr:
    """An index without the minima and maxima of what is ``moving``, which then have to change
    nothing.
    """
    if free_vars(e).isdisjoint(moving):
        return e
    match e:
        case Binary(BinaryOp.MIN | BinaryOp.MAX as op, a, b) if len(_of(moving, a, b)) == 1:
            (kept,) = _of(moving, a, b)
            bound = b if kept is a else a
            kept = _unclamped(kept, needs, moving)
            room = to_affine(bound) - to_affine(kept)
            needs.everywhere(room if op is BinaryOp.MIN else -room)
            return kept
        case Select(condition, a, b):  # where nothing is mirrored or comes around
            side = inner_side(a, b)
            needs.holds(condition, wanted=side is a)
            return _unclamped(side, needs, moving)
        case Binary(op, a, b):
            return Binary(op, _unclamped(a, needs, moving), _unclamped(b, needs, moving))
        case _:
            return e


def _of(moving: Set[str], *parts: Expr) -> list[Expr]:
    return [e for e in parts if not free_vars(e).isdisjoint(moving)]


def thread_of(v: Vectors, threads: dict[str, int]) -> str | None:
    """The loop over threads each of which goes on where the one before ends."""
    index = to_affine(v.lane.index)
    if index.coefficient(LANE).constant != 1:
        return None
    found = (t for t in threads if index.coefficient(Var(t)).constant == v.needs.lanes)
    return next(found, None)
