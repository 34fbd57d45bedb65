"""What a lane has to do with one element of an accumulator's block: legal expressions, made for
each element.

What a lane has, and does not work out, is a variable of the expression that stands for a *leaf*: a
register, a coordinate, a constant of the whole block. What lies between the leaves is the same for
all elements and made legal once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Protocol

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.epilogues.pairs import pair_of
from selector.gpu.codegen.epilogues.places import column_at, row_at
from selector.gpu.codegen.epilogues.regions import Element, Region
from selector.gpu.codegen.scalars.legal import ScalarEmitter
from selector.gpu.ir.expressions import element as element_of
from selector.gpu.ir.expressions import half_of, packed, register
from selector.intrinsics.functions import POWER_OF_TWO, ROUNDED, PureFunction
from selector.ir.nodes import Call, Cast, Expr, Load, Var
from selector.ir.traverse import expr_children, free_vars, rebuilt
from selector.ir.types import BFLOAT16, FLOAT16, UINT32, Type

ROW, COLUMN = Var("$m"), Var("$n")
"""Coordinates of an element in its block."""
FIRST_ROW, FIRST_PAIR = Var("$row.first"), Var("$pair.first")
"""Those in the tiles of the lane's first element."""
EVEN = Var("$pair.even")
"""The column in the tiles of an element, or of its left neighbour: an even one."""
ROUND_PAIR = {FLOAT16: "round_pair", BFLOAT16: "round_pair_bf16"}
"""Two floats as a register of that type."""


Form = Callable[[], Expr]


class Leaf(Protocol):
    """What a lane has of each element. Equal leaves are one variable."""

    def at(self, scalar: ElementScalar) -> Expr:
        """What it is for the element that ``scalar`` is at."""
        ...


@dataclass(frozen=True, slots=True)
class Here:
    """An element: rows and columns of the tiles from the lane's first one to it, and what leaves
    are for it (``held``).
    """

    element: Element
    down: int
    across: int
    held: dict[str, Expr] = field(default_factory=dict[str, Expr])


@dataclass(slots=True)
class Fetched:
    """What stands for ``loads`` of which a lane has all its elements; there is ``room`` for so many
    registers more.
    """

    loads: dict[Load, Var] = field(default_factory=dict[Load, Var])
    room: int = 0


@dataclass(frozen=True, slots=True)
class Made:
    """What was made legal for all elements, and what makes each element's of that; both by
    identity, as 0 and -0 are equal. Indices by value.
    """

    legal: dict[int, tuple[Expr, Expr]] = field(default_factory=dict[int, tuple[Expr, Expr]])
    forms: dict[int, tuple[Expr, Form]] = field(default_factory=dict[int, "tuple[Expr, Form]"])
    numbers: dict[Expr, Expr] = field(default_factory=dict[Expr, Expr])


class ElementScalar(ScalarEmitter):
    """Makes scalar expressions legal for all elements of a block, and then those of one after the
    other.

    ``here``: the element at hand. ``summed``: values are terms of sums.
    """

    def __init__(self, context: KernelContext, region: Region, *, summed: bool = False) -> None:
        super().__init__(context.names, context.storages, context.quotient_name)
        self.context, self.region, self.summed = context, region, summed
        self._leaves: dict[str, Leaf] = {
            ROW.name: Coordinate(across=region.swapped),
            COLUMN.name: Coordinate(across=not region.swapped),
            EVEN.name: EvenColumn(),
        }
        self._vars: dict[Leaf, Var] = {}
        self._made = Made()
        self.fetched = Fetched()
        self.at((0, 0, 0))

    def leaf(self, leaf: Leaf, t: Type) -> Var:
        """The variable that stands for a leaf."""
        if leaf not in self._vars:
            self._vars[leaf] = Var(f"$leaf.{len(self._vars)}", t)
            self._leaves[self._vars[leaf].name] = leaf
        return self._vars[leaf]

    def at(self, element: Element) -> ElementScalar:
        """This, for another element."""
        self.here = Here(element, *self.region.offsets(element))
        return self

    def legal(self, e: Expr) -> Expr:
        match e:
            case Var(name) if name in self._leaves:
                return e
            case Var(FIRST_ROW.name):
                return row_at(0)
            case Var(FIRST_PAIR.name):
                return column_at(0)
            case _:
                return super().legal(e)

    def once(self, e: Expr) -> Expr:
        """The legal form of an expression for all elements, the same one every time."""
        legal = self._made.legal
        if id(e) not in legal:
            legal[id(e)] = e, self.legal(e)
        return legal[id(e)][1]

    def number(self, e: Expr) -> Expr:
        numbers = self._made.numbers
        if e not in numbers:
            numbers[e] = super().number(e)
        return numbers[e]

    def value(self, e: Expr) -> Expr:
        """The legal form of an expression for this element."""
        return self.filled(self.once(e))

    def filled(self, legal: Expr) -> Expr:
        """A legal form for all elements as that for this one."""
        forms = self._made.forms
        if id(legal) not in forms:
            forms[id(legal)] = legal, self._form(legal)
        return forms[id(legal)][1]()

    def _form(self, legal: Expr) -> Form:
        """What makes a legal form for the element that this is at."""
        if free_vars(legal).isdisjoint(self._leaves):
            return lambda: legal
        if isinstance(legal, Var):
            return partial(self._held, legal.name)
        parts, made = [self._form(x) for x in expr_children(legal)], rebuilt(legal)
        return lambda: made(tuple([part() for part in parts]))

    def _held(self, name: str) -> Expr:
        """What a leaf is here."""
        held = self.here.held
        found = held.get(name)
        if found is None:
            found = held[name] = self._leaves[name].at(self)
        return found

    def function(self, function: PureFunction, t: Type, *, rounded: bool) -> str:
        """A term of a sum is as precise as sums."""
        term = self.summed and function is POWER_OF_TWO
        return super().function(function, t, rounded=rounded or term)


@dataclass(frozen=True, slots=True)
class Coordinate:
    """The row of an element among those of the tiles, or its column."""

    across: bool

    def at(self, scalar: ElementScalar) -> Expr:
        return column_at(scalar.here.across) if self.across else row_at(scalar.here.down)


@dataclass(frozen=True, slots=True)
class EvenColumn:
    """``EVEN``."""

    def at(self, scalar: ElementScalar) -> Expr:
        return column_at(scalar.here.across - scalar.here.across % 2)


@dataclass(frozen=True, slots=True)
class AccumulatorElement:
    """The element of an accumulator, of a type."""

    buffer: str
    type: Type

    def at(self, scalar: ElementScalar) -> Expr:
        i, j, e = scalar.here.element
        accumulator = scalar.context.registers.accumulators[self.buffer]
        tile = register(accumulator.register, scalar.region.fragment(i, j))
        if accumulator.half:
            return half_of(element_of(UINT32, tile, e // 2), e % 2)
        return element_of(self.type, tile, e)


class ElementValues:
    """Of the elements of a block: what they are, and when they are stored."""

    def __init__(self, value: Expr, guard: Expr | None, scalar: ElementScalar) -> None:
        self._value, self._guard, self._scalar = value, guard, scalar
        self.region = scalar.region
        self.paired = pair_of(value, lambda x: x) is not None
        if guard is not None:  # names are numbered in the order of their first use
            scalar.once(guard)
        scalar.once(value)

    def value(self, element: Element) -> Expr:
        return self._scalar.at(element).value(self._value)

    def guard(self, element: Element) -> Expr:
        assert self._guard is not None
        return self._scalar.at(element).value(self._guard)

    def pair(self, element: Element) -> Expr:
        """An element of 16 bits and its right neighbour, packed."""
        i, j, e = element
        both, scalar = ((i, j, e), (i, j, e + 1)), self._scalar

        def pair(x: Expr) -> Expr:
            return packed(*(scalar.at(y).value(x) for y in both))

        match scalar.once(self._value):
            case Cast(t, Call(_, name) as single) if name in ROUNDED and t in ROUND_PAIR:
                rounded = tuple(scalar.at(y).filled(single) for y in both)
                return Call(UINT32, ROUND_PAIR[t], rounded)
            case _:
                pass
        return pair_of(self._value, pair) or pair(self._value)
