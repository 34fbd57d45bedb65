"""Values of a block's elements, made of what a lane holds (``elements``): accumulators, tiles, rows
and numbers that are kept in registers, staged memory, what all elements read.

Of a staged matrix a lane reads neighbours of a row two at a time: where these are computed on with
elements of an accumulator, both elements of 16 bits come as one word. In panels
(``warpgroups.panels``) the eight rows that a warp reads at once lie in different banks: the swizzle
takes care of it.

Where an element lies, as a float (the distance of row and column, say), is converted once a lane:
conversions take the slow pipe that exponentials take, and a lane has many elements. To the place of
its first element it adds what lies between: exact as far as floats hold every integer (2^24), and
beyond that rounded twice where Halide's cast rounds once. Times a number that is the same for all
of them, it is one multiply-add of a constant.
"""

from __future__ import annotations

from selector.dataclass import dataclass
from selector.diagnostics import EmitError
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.epilogues.elements import (
    COLUMN,
    EVEN,
    FIRST_PAIR,
    FIRST_ROW,
    ROW,
    AccumulatorElement,
    ElementScalar,
    ElementValues,
)
from selector.gpu.codegen.epilogues.fetched import fetched_element, room
from selector.gpu.codegen.epilogues.places import ReadOut
from selector.gpu.codegen.epilogues.regions import LANE_NAMES, Region
from selector.gpu.codegen.epilogues.row_registers import row_element
from selector.gpu.codegen.scalars.storage import Space, Storage, c_type
from selector.gpu.ir.expressions import (
    PAIR_IN_PANELS,
    behind,
    half_of,
    number,
    plus,
    pointer,
    times,
)
from selector.gpu.ir.nodes import Let
from selector.ir.affine import Affine, to_affine
from selector.ir.lanes import Digits
from selector.ir.nodes import Binary, BinaryOp, Call, Cast, Expr, FloatImm, Load, Select, Var
from selector.ir.simplify import literal
from selector.ir.traverse import free_vars, map_expr, walk_expr
from selector.ir.types import FLOAT16, FLOAT32, INT32, UINT32


def element_values(
    context: KernelContext,
    plan: ReadOut,
    region: Region,
    outer: Digits,
    *,
    guarded: bool,
    summed: bool = False,
    among: int = 1,
) -> ElementValues:
    """Value and guard of a block's elements; ``among`` as many blocks whose elements are made one
    after the other.
    """
    digits = ((COLUMN, region.n), (ROW, region.m), *outer)
    value, expected = plan.element(digits)
    scalar = ElementScalar(context, region, summed=summed)
    if plan.forms and context.storages[plan.store.buffer].space is Space.GLOBAL:
        scalar.fetched.room = room(context) // among
    held = _held(value, expected, scalar)
    p = plan.store.predicate
    guard = plan.condition(p, digits) if guarded and p is not None else None
    return ElementValues(held, guard, scalar)


def _held(x: Expr, expected: Affine, scalar: ElementScalar) -> Expr:
    """A value of an element with leaves for what a lane holds; accumulators are read in the order
    ``expected``.
    """
    match x:
        case Call(t, "tile.read", (Load(_, buffer, index, wanted),)):
            if to_affine(index) != expected:
                raise EmitError(
                    f"`{buffer}` is read in an order other than the one it is kept in",
                    hint="read all accumulators of a statement with the same index",
                )
            read = scalar.leaf(AccumulatorElement(buffer, t), t)
            return read if wanted is None else Select(wanted, read, literal(0, t))
        case Load() if x.buffer in scalar.context.registers.tiles:
            return kept_element(x, scalar)
        case Load() if (row := row_element(x, scalar)) is not None:
            return row
        case Cast() | Binary() if (number := lane_number(x, scalar)) is not None:
            return number
        case Load() if (half := staged_element(x, scalar)) is not None:
            return half
        case Load() if _is_uniform(x, scalar.context):
            return _loaded_once(x, scalar.context)
        case Load() if (fetched := fetched_element(x, scalar)) is not None:
            return fetched
        case _:
            return map_expr(x, lambda e: _held(e, expected, scalar))


def _is_uniform(load: Load, context: KernelContext) -> bool:
    """Whether all elements read the same number of an input."""
    return context.is_input(load.buffer) and not LANE_NAMES & free_vars(load)


def _loaded_once(load: Load, context: KernelContext) -> Var:
    """What stands for a number which all elements read."""
    name, value = context.names.fresh(load.buffer), context.scalar.legal(load)
    context.writer.add(Let(c_type(load.type), (name,), (value,)))
    return context.names.variable(name, load.type)


@dataclass(frozen=True, slots=True)
class LaneNumber:
    """``name``, a lane's number of its first element, and what lies between that and another:
    ``down`` a row and ``across`` a column, times ``step`` if it is not empty.
    """

    name: str
    down: int
    across: int
    step: str

    def at(self, scalar: ElementScalar) -> Expr:
        first, apart = Var(self.name, FLOAT32), self.down * scalar.here.down
        apart += self.across * scalar.here.across
        if not apart:
            return first
        between: Expr = FloatImm(float(apart), FLOAT32)
        return plus(first, times(Var(self.step, FLOAT32), between) if self.step else between)


def lane_number(e: Expr, scalar: ElementScalar) -> Var | None:
    """What stands for the float of an integer of an element's ``ROW`` and ``COLUMN``, or for its
    product with a number that is the same for all elements, and declares that of the lane's first
    element; None for anything else, and where places do not count with constant steps.
    """
    match e:
        case Cast():
            return _number(e, None, scalar)
        case Binary(BinaryOp.MUL, a, Cast() as place) | Binary(BinaryOp.MUL, Cast() as place, a):
            uniform = not LANE_NAMES & free_vars(a) and all(
                _is_known(x, scalar.context) for x in walk_expr(a)
            )
            return _number(place, a, scalar) if uniform else None
        case _:
            return None


def _is_known(e: Expr, context: KernelContext) -> bool:
    match e:
        case Load(_, buffer, _, _):
            return context.is_input(buffer)
        case Call(_, name):
            return not name.startswith("tile.")
        case _:
            return True


def _number(e: Cast, factor: Expr | None, scalar: ElementScalar) -> Var | None:
    if e.type != FLOAT32 or e.value.type != INT32:  # unsigned numbers wrap around
        return None
    index, context = to_affine(e.value), scalar.context
    steps = index.coefficient(ROW).constant, index.coefficient(COLUMN).constant
    rest = index.rest(ROW).rest(COLUMN)
    if None in steps or steps == (0, 0) or rest.mentions(ROW.name) or rest.mentions(COLUMN.name):
        return None
    down, across = reversed(steps) if scalar.region.swapped else steps
    assert down is not None
    assert across is not None
    names, w = context.names, context.writer
    first = rest + Affine.of(FIRST_ROW) * down + Affine.of(FIRST_PAIR) * across
    place, step = Cast(FLOAT32, scalar.number(first.to_expr())), ""
    if factor is not None:
        step = names.fresh("step")
        w.add(Let("float", (step,), (context.scalar.legal(factor),)))
        place = times(Var(step, FLOAT32), place)
    name = names.fresh("place")
    w.add(Let("float", (name,), (place,)))
    return scalar.leaf(LaneNumber(name, down, across, step), e.type)


@dataclass(frozen=True, slots=True)
class StagedElement:
    """A half of the word of a matrix with rows of ``pitch`` elements. ``place``: that of the word
    in the lane's first row, an element or, in panels, its row and column; those of the others lie a
    multiple of eight rows below, after which every swizzle repeats.
    """

    buffer: str
    place: tuple[Expr, ...]
    pitch: int

    def at(self, scalar: ElementScalar) -> Expr:
        storage = scalar.storages[self.buffer]
        first = tuple(scalar.filled(scalar.number(p)) for p in self.place)
        start, panels = pointer(storage.base), storage.panels
        if panels is None:
            row = number(scalar.here.down * self.pitch)
            word = Call(UINT32, "pair_at", (behind(start, storage.start, *first, row),))
        else:
            sizes = (number(n) for n in (panels.rows, panels.row_bytes, scalar.here.down))
            places = pointer("smem"), behind(start, storage.start), *first
            word = Call(UINT32, PAIR_IN_PANELS, (*sizes, *places))
        return half_of(word, scalar.here.across % 2)


def staged_element(load: Load, scalar: ElementScalar) -> Var | None:
    """What stands for one lane's load, whose index is one of ``ROW`` and ``COLUMN``; None where
    neighbours do not lie in one word.
    """
    storage, index = scalar.storages.get(load.buffer), to_affine(load.index)
    if storage is None or storage.space is not Space.SHARED or storage.strips is not None:
        return None
    pitch, rest = index.coefficient(ROW).constant, index.rest(COLUMN)
    words = index.coefficient(COLUMN).constant == 1 and not rest.mentions(COLUMN.name)
    words &= pitch is not None and not index.rest(ROW).mentions(ROW.name)
    if pitch is None or not words or any(c % 2 for _, c in rest):
        return None
    if scalar.region.swapped or load.type != FLOAT16 or load.predicate is not None:
        return None
    first = index.rest(ROW).rest(COLUMN) + Affine.of(FIRST_ROW) * pitch + Affine.of(EVEN)
    place = _place(first, pitch, storage)
    if place is None:
        return None
    return scalar.leaf(StagedElement(load.buffer, place, pitch), load.type)


def _place(first: Affine, pitch: int, storage: Storage) -> tuple[Expr, ...] | None:
    panels = storage.panels
    if panels is None:
        return (first.to_expr(),)
    place = panels.place(first)
    if place is None or pitch != panels.pitch:
        return None
    return tuple(p.to_expr() for p in place)


@dataclass(frozen=True, slots=True)
class KeptElement:
    """The element of a tile whose place is ``base`` and so much more a row and a column."""

    buffer: str
    base: int
    by_row: int
    by_column: int

    def at(self, scalar: ElementScalar) -> Expr:
        here, odd = scalar.here, scalar.here.across % 2
        origin = self.base + self.by_row * here.down + self.by_column * (here.across - odd)
        place = map(Affine.of, (origin, self.by_row, self.by_column))
        return half_of(scalar.context.registers.tiles[self.buffer].at(*place), odd)


def kept_element(load: Load, scalar: ElementScalar) -> Var:
    """What stands for one lane's load, whose index is one of ``ROW`` and ``COLUMN``."""
    index = to_affine(load.index)
    parts = index.rest(ROW).rest(COLUMN), index.coefficient(ROW), index.coefficient(COLUMN)
    plain = load.type == FLOAT16 and load.predicate is None
    match [p.constant for p in parts]:
        case int(base), int(by_row), int(by_column) if plain:
            return scalar.leaf(KeptElement(load.buffer, base, by_row, by_column), load.type)
        case _:
            raise EmitError(
                f"`{load.buffer}` is kept in registers and read in another order than it has there",
                hint=f"store `{load.buffer}` in GPUShared",
            )
