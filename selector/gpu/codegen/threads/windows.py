"""What a thread reads of an array for a statement's vectors (``threads.vectors``): windows, each
loaded once into an array of the thread's own, and when all of it is inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import field

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.scalars.storage import Space, Storage
from selector.gpu.codegen.threads.lanes import LANE
from selector.gpu.codegen.threads.needs import Needs, Unknown
from selector.ir.affine import Affine, carries, split_by_strides, to_affine
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Expr,
    IntImm,
    Load,
    Select,
    Var,
)
from selector.ir.traverse import free_vars, replaced_all, substitute, walk_expr
from selector.lowering.boundaries import clamps, inner_side
from selector.targets import VECTOR_BYTES

APART = 4  # elements between lanes of which all that lie between are loaded, too
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


def start_and_step(index: Affine) -> tuple[Affine, int] | None:
    """Where lanes begin, and how far apart they are, if that is not far."""
    start, step = index.rest(LANE), index.coefficient(LANE).constant
    if step is None or not 1 <= step <= APART or start.mentions(LANE.name):
        return None
    return start, step


def per_of(storage: Storage, start: Affine, buffer: str, lanes: int, context: KernelContext) -> int:
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
            dense = start_and_step(to_affine(substitute(index, self._strides())))
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
        per = 1 if anywhere else per_of(storage, start, buffer, most, self.context)
        rows = per_of(storage, start, buffer, lanes, self.context) if pixels and self.rows else 1
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
