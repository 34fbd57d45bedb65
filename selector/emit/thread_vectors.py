"""Vector statements of one thread on arrays: neighbours are loaded and stored as vectors, up to 16
bytes at once, where all of them are inside; where the rows of an array are not aligned, one by one.

    out[ramp(4*i, 1, 4)] = a[ramp(4*i - 1, 1, 4)] + a[ramp(4*i, 1, 4)]

needs five elements of ``a``. They are a *window*: loaded once, four of them as one vector, into an
array of the thread's own. Coordinates that are clamped are taken as they are where that changes
nothing. The condition for all of it is tested once; what is left goes lane by lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from selector.emit.context import KernelContext
from selector.emit.scalar import Space, Storage, c_type
from selector.gpu.ir.expressions import at_least, behind, both, element, number, plus, pointer
from selector.gpu.ir.memory import Array, LoadVector, StoreVector
from selector.ir.affine import Affine, carries, split_by_strides, to_affine
from selector.ir.lanes import lane
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Compare,
    Expr,
    IntImm,
    Load,
    Not,
    Select,
    Stmt,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.simplify import div, mod
from selector.ir.traverse import free_vars, map_expr, substitute, walk_expr
from selector.lowering.boundaries import inner_side
from selector.lowering.predicates import slack

VECTOR_BYTES = 16
MOST_LANES = 64
APART = 4  # elements between lanes of which all that lie between are loaded, too
_LANE = Var("$l0")
_Place = tuple[str, Affine, int]  # a buffer, where lane 0 is in it but for its offset, and the step


class _Unknown(Exception):  # noqa: N818
    """It cannot be told when all lanes are inside."""


@dataclass(slots=True)
class _Needs:
    """When a statement goes as vectors: what has to be at least zero in all ``lanes``, by all but
    its constant, and further tests.
    """

    lanes: int
    least: dict[Affine, int] = field(default_factory=dict[Affine, int])
    tests: dict[Expr, None] = field(default_factory=dict[Expr, None])

    def everywhere(self, room: Affine) -> None:
        """Not negative for any lane."""
        factor, rest = room.coefficient(_LANE).constant, room.rest(_LANE)
        if factor is None or rest.mentions(_LANE.name):
            raise _Unknown
        low = rest.offset + min(0, factor * (self.lanes - 1))
        rest = rest - rest.offset
        if rest.terms:
            self.least[rest] = min(low, self.least.get(rest, low))
        elif low < 0:
            raise _Unknown

    def holds(self, condition: Expr, *, wanted: bool = True) -> None:
        """In all lanes, or in none."""
        match condition:
            case Not(value):
                self.holds(value, wanted=not wanted)
            case Binary(BinaryOp.AND | BinaryOp.OR as op, a, b) if wanted == (op is BinaryOp.AND):
                self.holds(a, wanted=wanted)
                self.holds(b, wanted=wanted)
            case _ if _LANE.name not in free_vars(condition):
                self.tests[condition if wanted else Not(condition)] = None
            case Compare(_, a) if a.type.is_integer and (room := slack(condition)) is not None:
                self.everywhere(room if wanted else -room - 1)
            case _:
                raise _Unknown


@dataclass(slots=True)
class _Window:
    """Elements ``low`` to before ``high`` from ``start`` on of a ``buffer``, for the thread's array
    ``name``, of which lanes are ``step`` apart; ``per`` of them are a vector, which begins at a
    multiple (1: none is).
    """

    name: str
    buffer: str
    storage: Storage
    start: Affine
    step: int
    per: int
    low: int
    high: int

    @property
    def first(self) -> int:
        """The element at the begin of the thread's array."""
        return self.low // self.per * self.per


@dataclass(frozen=True, slots=True)
class Vectors:
    """A statement as vectors: ``lane`` is what one of them does, with loads of the windows' arrays;
    ``per``: elements that are stored at once (1: as they are).
    """

    lane: Store
    windows: tuple[_Window, ...]
    per: int
    needs: _Needs


def is_predicated(plain: Stmt, condition: Expr, other: Stmt) -> bool:
    """Whether a store is another one that is predicated by a condition, or was before it."""
    match plain, other:
        case Store(buffer, index, value, None), Store(own, at, _, predicate):
            bare = map_expr(other.value, lambda e: _without(e, condition))
            return (buffer, index, value) == (own, at, bare) and predicate == condition
        case _:
            return False


def _without(e: Expr, predicate: Expr) -> Expr:
    inner = map_expr(e, lambda x: _without(x, predicate))
    match inner:
        case Load(t, buffer, index, p) if p == predicate:
            return Load(t, buffer, index)
        case _:
            return inner


def as_vectors(s: Store, context: KernelContext) -> Vectors | None:
    """None where nothing is gained, or it cannot be told when all lanes are inside."""
    lanes, storage = s.value.type.lanes, context.storages[s.buffer]
    if lanes > MOST_LANES or any(isinstance(e, VectorReduce) for e in walk_expr(s.value)):
        return None
    needs, digits = _Needs(lanes), ((_LANE, lanes),)
    windows = _Windows(context, needs)
    try:
        predicate = None if s.predicate is None else _lane(s.predicate, digits)
        if predicate is not None:
            needs.holds(predicate)
        value = windows.replaced(lane(s.value, digits))
    except _Unknown:
        return None
    index, per = lane(s.index, digits), 1
    dense = _dense(to_affine(index)) if storage.space is Space.GLOBAL else None
    if dense is not None and dense[1] == 1:
        start = dense[0]
        per = _per(storage, start - start.offset, s.buffer, lanes, context)
        per = per if start.offset % per == 0 else 1
    if per == 1 and all(w.per == 1 for w in windows.found):
        return None
    return Vectors(Store(s.buffer, index, value), tuple(windows.found), per, needs)


def _lane(e: Expr, digits: tuple[tuple[Expr, int], ...]) -> Expr:
    return lane(e, digits) if e.type.lanes > 1 else e


def _dense(index: Affine) -> tuple[Affine, int] | None:
    """Where lanes begin, and how far apart they are, if that is not far."""
    start, step = index.rest(_LANE), index.coefficient(_LANE).constant
    if step is None or not 1 <= step <= APART or start.mentions(_LANE.name):
        return None
    return start, step


def _per(storage: Storage, start: Affine, buffer: str, lanes: int, context: KernelContext) -> int:
    """How many elements a vector has, at most; 1 if it may begin anywhere."""
    per = max(1, VECTOR_BYTES // storage.type.bytes)
    while lanes % per or not context.is_multiple(start, per, buffer):
        per //= 2
    return 1 if storage.type.is_bool else per


class _Windows:
    """The windows of a statement."""

    def __init__(self, context: KernelContext, needs: _Needs) -> None:
        self.context, self.needs = context, needs
        self.found: list[_Window] = []

    def replaced(self, value: Expr) -> Expr:
        """A lane's value with loads of the thread's arrays."""
        loads = [e for e in walk_expr(value) if isinstance(e, Load)]
        places = {e: place for e in loads if (place := self._place(e)) is not None}
        for at, offset in sorted(places.values(), key=lambda place: place[1]):
            self._enter(*at, offset)
        held = {e: self._held(e, *place) for e, place in places.items()}
        return _with(value, held)

    def _place(self, load: Load) -> tuple[_Place, int] | None:
        """What window a load is of, and the element of lane 0 there; None for other loads."""
        storage = self.context.storages[load.buffer]
        if storage.space is not Space.GLOBAL or _LANE.name not in free_vars(load.index):
            return None
        needs = _Needs(self.needs.lanes)
        try:
            if load.predicate is not None:
                needs.holds(load.predicate)
            dense = _dense(to_affine(_unclamped(load.index, needs)))
            if dense is None:
                return None
            start, step = dense
            self._inside(storage, start + Affine.of(_LANE) * step, needs)
        except _Unknown:
            return None
        for room, least in needs.least.items():
            self.needs.everywhere(room + least)
        self.needs.tests.update(needs.tests)
        return (load.buffer, start - start.offset, step), start.offset

    def _inside(self, storage: Storage, index: Affine, needs: _Needs) -> None:
        if storage.param is None:
            if storage.elements is None:
                raise _Unknown
            inside = [(index, to_affine(storage.elements))]
        else:
            dims = storage.param.dims
            found = split_by_strides(index.to_expr(), dims)
            if found is None or carries(dims):
                raise _Unknown
            inside = [(to_affine(c), to_affine(d.extent)) for c, d in zip(found, dims, strict=True)]
        for coordinate, extent in inside:
            needs.everywhere(coordinate)
            needs.everywhere(extent - coordinate - 1)

    def _enter(self, buffer: str, start: Affine, step: int, offset: int) -> None:
        lanes = self.needs.lanes * step
        high = offset + lanes - step + 1
        window = self._of(buffer, start, step, offset)
        if window is not None:
            window.high = max(window.high, high)
            return
        storage, name = self.context.storages[buffer], self.context.names.fresh("near")
        per = _per(storage, start, buffer, lanes, self.context)
        self.found.append(_Window(name, buffer, storage, start, step, per, offset, high))
        self.context.storages[name] = Storage(name, storage.type, Space.LOCAL)

    def _of(self, buffer: str, start: Affine, step: int, offset: int) -> _Window | None:
        for w in self.found:
            alike = (w.buffer, w.start, w.step) == (buffer, start, step)
            if alike and w.low <= offset <= w.high:
                return w
        return None

    def _held(self, load: Load, at: _Place, offset: int) -> Load:
        window = self._of(*at, offset)
        assert window is not None
        index = Affine.of(_LANE) * window.step + (offset - window.first)
        return Load(load.type, window.name, index.to_expr())


def _with(e: Expr, held: dict[Load, Load]) -> Expr:
    if isinstance(e, Load) and e in held:
        return held[e]
    return map_expr(e, lambda x: _with(x, held))


def _unclamped(e: Expr, needs: _Needs) -> Expr:
    """An index without the minima and maxima of the lanes, which then have to change nothing."""
    if _LANE.name not in free_vars(e):
        return e
    match e:
        case Binary(BinaryOp.MIN | BinaryOp.MAX as op, a, b) if len(_of_lanes(a, b)) == 1:
            (kept,) = _of_lanes(a, b)
            bound = b if kept is a else a
            kept = _unclamped(kept, needs)
            room = to_affine(bound) - to_affine(kept)
            needs.everywhere(room if op is BinaryOp.MIN else -room)
            return kept
        case Select(condition, a, b):  # where nothing is mirrored or comes around
            side = inner_side(a, b)
            needs.holds(condition, wanted=side is a)
            return _unclamped(side, needs)
        case Binary(op, a, b):
            return Binary(op, _unclamped(a, needs), _unclamped(b, needs))
        case _:
            return e


def _of_lanes(*parts: Expr) -> list[Expr]:
    return [e for e in parts if _LANE.name in free_vars(e)]


def vector_condition(v: Vectors, context: KernelContext) -> Expr | None:
    """When it goes as vectors; None if always."""
    scalar, needs = context.scalar, v.needs
    rooms = [at_least(scalar.number((r + n).to_expr()), 0) for r, n in needs.least.items()]
    tests = [scalar.legal(t) for t in needs.tests]
    found = [*rooms, *tests]
    return both(*found) if found else None


def vector_flags(v: Vectors, context: KernelContext) -> Expr | None:
    """Whether rows of all arrays that it moves vectors of begin at multiples."""
    moved = {w.buffer: w.per for w in v.windows if any(n > 1 for _, n in _pieces(w))}
    if v.per > 1:
        moved[v.lane.buffer] = v.per
    return both(*(context.aligned_flag(b, per) for b, per in moved.items())) if moved else None


def dealt(s: Store, thread: str, turn: Expr) -> Store:
    """A lane of a statement whose lanes go on where those of the thread before end, when threads
    take turns: number ``turn`` of all their elements.
    """
    lanes = s.value.type.lanes
    own = {thread: div(turn, IntImm(lanes))}
    digits = ((mod(turn, IntImm(lanes)), lanes),)

    def one(e: Expr) -> Expr:
        return _lane(substitute(e, own), digits)

    predicate = None if s.predicate is None else one(s.predicate)
    return Store(s.buffer, one(s.index), one(s.value), predicate)


def thread_of(v: Vectors, threads: dict[str, int]) -> str | None:
    """The loop over threads each of which goes on where the one before ends."""
    index = to_affine(v.lane.index)
    if index.coefficient(_LANE).constant != 1:
        return None
    found = (t for t in threads if index.coefficient(Var(t)).constant == v.needs.lanes)
    return next(found, None)


def emit_vectors(v: Vectors, context: KernelContext) -> None:
    """Write the statement for where it goes as vectors."""
    w, scalar, s = context.writer, context.scalar, v.lane
    for window in v.windows:
        _load(window, context)
    storage, lanes = context.storages[s.buffer], v.needs.lanes
    kind, run = c_type(storage.type), context.names.fresh("run")
    if v.per > 1:
        w.add(Array(run, kind, lanes, v.per * storage.type.bytes))
    name = context.names.get(_LANE.name)
    with w.loop(name, number(0), number(lanes), "unrolled"):
        own = element(storage.type, pointer(run), name)
        w.store(own if v.per > 1 else scalar.access(storage, s.index), scalar.legal(s.value))
    if v.per > 1:
        start, size = to_affine(s.index).rest(_LANE), v.per * storage.type.bytes
        with w.when(context.aligned_flag(s.buffer, v.per)):
            for k in range(0, lanes, v.per):
                at = scalar.number((start + k).to_expr())
                to = behind(pointer(storage.base), storage.start, at)
                w.add(StoreVector(to, pointer(run), k, size))
        with w.otherwise(), w.loop(name, number(0), number(lanes), "unrolled"):
            w.store(scalar.access(storage, s.index), element(storage.type, pointer(run), name))


def _load(window: _Window, context: KernelContext) -> None:
    w, storage, per = context.writer, window.storage, window.per
    size = window.high - window.first
    alignment = per * storage.type.bytes
    w.add(Array(window.name, c_type(storage.type), size, alignment))
    pieces = tuple(_pieces(window))
    if len(pieces) == window.high - window.low:
        _load_elements(window, context)
        return
    with w.when(context.aligned_flag(window.buffer, per)):
        for k, n in pieces:
            at = (window.start + k).to_expr()
            if n == 1:
                to = element(storage.type, pointer(window.name), k - window.first)
                w.store(to, context.scalar.access(storage, at))
            else:
                start = behind(pointer(storage.base), storage.start, context.scalar.number(at))
                w.add(LoadVector(pointer(window.name), k - window.first, start, alignment))
    with w.otherwise():
        _load_elements(window, context)


def _load_elements(window: _Window, context: KernelContext) -> None:
    """One by one."""
    w, storage, name = context.writer, window.storage, context.names.get(_LANE.name)
    with w.loop(name, number(0), number(window.high - window.low), "unrolled"):
        to = element(storage.type, pointer(window.name), plus(name, window.low - window.first))
        at = (window.start + window.low + _LANE).to_expr()
        w.store(to, context.scalar.access(storage, at))


def _pieces(window: _Window) -> Iterator[tuple[int, int]]:
    """Where each load of a window begins, and how many elements it has."""
    k = window.low
    while k < window.high:
        n = window.per if k % window.per == 0 and k + window.per <= window.high else 1
        yield k, n
        k += n
