"""Elements of inputs that an epilogue reads beside accumulators: a residual, a number of each
column or each row. A lane loads all that it needs of a block before it computes the first element,
each number once.

Two neighbours of a row come at once where rows begin at multiples of two elements: without a
question where the block lies inside the array, each pair with its own where that ends, if rows end
at such multiples, too; else they come one by one. Outside is 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.epilogues.elements import COLUMN, ROW, ElementScalar
from selector.gpu.codegen.epilogues.places import tiles_of
from selector.gpu.codegen.epilogues.regions import LANE_PAIR, LANE_ROW, Element
from selector.gpu.codegen.scalars.storage import c_type
from selector.gpu.ir.expressions import (
    FALSE,
    behind,
    element,
    equal,
    masked,
    number,
    pointer,
)
from selector.gpu.ir.lane_maps import PAIRS
from selector.gpu.ir.memory import Array, LoadVector, Point, Store
from selector.gpu.ir.nodes import If
from selector.gpu.ir.views import View
from selector.gpu.passes.budget_registers import MOST_BOUND, OTHERS, equal_share
from selector.ir.affine import Affine, carry, split_by_strides, to_affine
from selector.ir.contents import holds
from selector.ir.nodes import Call, Compare, CompareOp, Dim, Expr, IntImm, Load, Var
from selector.ir.simplify import literal
from selector.lowering.predicates import TRUE, conjunction, every, holds_everywhere


@dataclass(frozen=True, slots=True)
class FetchedElement:
    """An element of a lane's array ``name``, which has one for each column, each row, or both."""

    name: str
    load: Load
    down: bool
    across: bool

    def at(self, scalar: ElementScalar) -> Expr:
        place = self.place(scalar.here.element, scalar)
        return element(self.load.type, pointer(self.name), place)

    def place(self, at: Element, scalar: ElementScalar) -> int:
        """The number of an element, counted in the order in which they are loaded."""
        i, j, e = at
        row, column = 2 * i + PAIRS.index(e - e % 2), 2 * j + e % 2
        columns = 2 * scalar.region.tiles[1]
        if not self.across:
            return row
        return row * columns + column if self.down else column


def fetched_element(load: Load, scalar: ElementScalar) -> Var | None:
    """What stands for one lane's load, whose index is one of ``ROW`` and ``COLUMN``, and loads it
    for all elements; None for what is loaded when it is needed.
    """
    if load in scalar.fetched.loads:
        return scalar.fetched.loads[load]
    context, region = scalar.context, scalar.region
    plain = load.predicate is None and load.type.bytes in (2, 4) and region.parts == 1
    if not plain or not context.is_input(load.buffer) or holds(load.index, Load):
        return None
    index = to_affine(load.index)
    down, across = index.coefficient(ROW), index.coefficient(COLUMN)
    rest = index.rest(ROW).rest(COLUMN)
    if region.swapped:
        down, across = across, down
    alike = not any(x.mentions(v.name) for x in (rest, down, across) for v in (ROW, COLUMN))
    if not alike or holds(load.index, Call) or across.constant not in (0, 1):
        return None
    name = context.names.fresh(load.buffer)
    leaf = FetchedElement(name, load, bool(down.terms), across.constant == 1)
    found = _elements(leaf, scalar)
    words = len(found) * load.type.bytes // 4
    if (not leaf.down and not leaf.across) or words > scalar.fetched.room:
        return None
    scalar.fetched.room -= words
    _write(leaf, found, scalar)
    scalar.fetched.loads[load] = scalar.leaf(leaf, load.type)
    return scalar.fetched.loads[load]


def room(context: KernelContext) -> int:
    """Registers of a lane that are left for what it loads ahead."""
    block, registers = context.block, context.registers
    held = sum(a.fragments * (2 if a.half else 4) for a in registers.accumulators.values())
    held += sum(t.size for t in registers.tiles.values())
    share = min(MOST_BOUND, equal_share(block.threads, block.resident))
    return share - held - OTHERS


def _elements(leaf: FetchedElement, scalar: ElementScalar) -> list[Element]:
    """One element for each number that is loaded, in their order."""
    first: dict[int, Element] = {}
    for i, j in tiles_of(scalar.region):
        for e in range(4):
            first.setdefault(leaf.place((i, j, e), scalar), (i, j, e))
    return [first[n] for n in sorted(first)]


def _write(leaf: FetchedElement, elements: list[Element], scalar: ElementScalar) -> None:
    """Declare the array, and load it."""
    context, load = scalar.context, leaf.load
    w, size = context.writer, load.type.bytes
    w.add(Array(leaf.name, c_type(load.type), len(elements), 2 * size if leaf.across else 0))
    pairs = _pairs(leaf, scalar)
    if pairs is None:
        _one_by_one(leaf, elements, scalar)
        return
    with w.when(every((context.scalar.legal(pairs.whole), pairs.aligned))):
        _in_pairs(leaf, elements, scalar)
    with w.otherwise():
        if pairs.whole == TRUE or pairs.even is None:
            _one_by_one(leaf, elements, scalar)
            return
        with w.when(every((pairs.even, pairs.aligned))):
            _in_pairs(leaf, elements, scalar, pairs.inside)
        with w.otherwise():
            _one_by_one(leaf, elements, scalar)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """When two neighbours may be loaded at once: the array is ``aligned``, and all of a tile lie in
    it (``whole``), or its rows are ``even``, so that both of a pair are ``inside`` or none (None:
    they never are). All but ``inside`` are uniform.
    """

    aligned: Expr
    whole: Expr
    inside: Expr
    even: Expr | None


def _pairs(leaf: FetchedElement, scalar: ElementScalar) -> _Pairs | None:
    """None if never."""
    context, load = scalar.context, leaf.load
    param, region = context.storages[load.buffer].param, scalar.region
    coordinates = None if param is None else split_by_strides(load.index, param.dims)
    if not leaf.across or param is None or coordinates is None:
        return None
    rest, down = _first(load, scalar)
    if not context.is_multiple(rest + down * LANE_ROW, 2, load.buffer):
        return None
    coordinates = carry(coordinates, param.dims)
    inside = every(map(_within, coordinates, param.dims))
    whole = holds_everywhere(inside, {COLUMN: region.n, ROW: region.m})
    aligned = context.aligned_flag(load.buffer, 2)
    if whole is None or aligned == FALSE:
        return None
    return _Pairs(aligned, whole, inside, _even(coordinates, param.dims, scalar))


def _even(coordinates: Sequence[Expr], dims: Sequence[Dim], scalar: ElementScalar) -> Expr | None:
    """Whether rows end, and pairs begin, at multiples of two."""
    along = ROW if scalar.region.swapped else COLUMN
    found = [(to_affine(c), d) for c, d in zip(coordinates, dims, strict=True)]
    found = [(c, d) for c, d in found if c.mentions(along.name)]
    if len(found) != 1:
        return None
    ((place, dim),) = found
    if place.coefficient(along).constant != 1 or any(c % 2 for _, c in place.rest(along)):
        return None
    if isinstance(dim.extent, IntImm):
        return None if dim.extent.value % 2 else TRUE
    return equal(masked(scalar.context.number(dim.extent), 1), 0)


def _within(coordinate: Expr, dim: Dim) -> Expr:
    low = Compare(CompareOp.LE, IntImm(0), coordinate)
    return conjunction(low, Compare(CompareOp.LT, coordinate, dim.extent))


def _first(load: Load, scalar: ElementScalar) -> tuple[Affine, Affine]:
    """The index of the tiles' first element, and what a row of the tiles adds."""
    index = to_affine(load.index)
    down = index.coefficient(COLUMN if scalar.region.swapped else ROW)
    return index.rest(ROW).rest(COLUMN), down


def _in_pairs(
    leaf: FetchedElement,
    elements: list[Element],
    scalar: ElementScalar,
    inside: Expr | None = None,
) -> None:
    """By a pointer for each of a lane's rows; zeros where they are not ``inside``."""
    context, load, pointers = scalar.context, leaf.load, dict[int, str]()
    storage, (rest, step) = context.storages[load.buffer], _first(load, scalar)
    for n, at in enumerate(elements[::2]):
        down, across = scalar.region.offsets(at)
        down = down if leaf.down else 0
        if down not in pointers:
            pointers[down] = f"row{len(pointers)}"
            first = rest + Affine.of(LANE_PAIR) * 2
            first += step * (Affine.of(LANE_ROW) + down) if leaf.down else 0
            place = View(storage.base, storage.start, index=scalar.number(first.to_expr()))
            context.writer.add(Point(pointers[down], f"const {c_type(load.type)}", place))
        source = behind(pointer(pointers[down]), number(across) if across else None)
        to = pointer(leaf.name), number(2 * n)
        loaded = LoadVector(*to, source, 2 * load.type.bytes)
        if inside is None:
            context.writer.add(loaded)
            continue
        pair = (element(load.type, pointer(leaf.name), 2 * n + i) for i in range(2))
        zeros = tuple(Store(to, literal(0, load.type)) for to in pair)
        context.writer.add(If(scalar.at(at).value(inside), (loaded,), zeros))


def _one_by_one(leaf: FetchedElement, elements: list[Element], scalar: ElementScalar) -> None:
    for n, at in enumerate(elements):
        to = element(leaf.load.type, pointer(leaf.name), n)
        scalar.context.writer.store(to, scalar.at(at).value(leaf.load))
