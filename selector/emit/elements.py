"""What a lane has to do with one element of an accumulator's block: scalar expressions, printed for
each element.

What a lane has, and does not work out, is a variable of the expression that stands for a *leaf*: a
register, a coordinate, a constant of the whole block. What lies between the leaves is the same for
all elements and printed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from selector.emit.context import Element, KernelContext, Region
from selector.emit.legalize_scalars import ScalarEmitter
from selector.emit.pairs import pair_text
from selector.emit.places import column_text, row_text
from selector.gpu.cuda.expressions import operand
from selector.intrinsics.functions import POWER_OF_TWO, ROUNDED, PureFunction
from selector.ir.nodes import Call, Cast, Expr, Var
from selector.ir.types import FLOAT16, Type

ROW, COLUMN = Var("$m"), Var("$n")
"""Coordinates of an element in its block."""
FIRST_ROW, FIRST_PAIR = Var("$row.first"), Var("$pair.first")
"""Those in the tiles of the lane's first element."""
EVEN = Var("$pair.even")
"""The column in the tiles of an element, or of its left neighbour: an even one."""


class Leaf(Protocol):
    """What a lane has of each element. Equal leaves are one variable."""

    def text(self, at: ElementScalar) -> str:
        """Its spelling for the element that ``at`` prints."""
        ...


_HERE = "\0"  # no text of C has it
"""Stands around the number of a leaf."""


@dataclass(frozen=True, slots=True)
class _Form:
    """Of a legal expression's text: what is the same for all elements, and leaves between."""

    of: Expr
    parts: tuple[str | Leaf, ...]


class ElementScalar(ScalarEmitter):
    """Makes scalar expressions legal for all elements of a block, and prints them for one after the
    other.

    ``down`` and ``across``: rows and columns of the tiles from the lane's first element to this
    one. ``summed``: values are terms of sums.
    """

    def __init__(self, context: KernelContext, region: Region, *, summed: bool = False) -> None:
        super().__init__(context.names, context.storages, context.quotient_name)
        self.context, self.region, self.summed = context, region, summed
        self.element: Element = (0, 0, 0)
        self.down, self.across = region.offsets(self.element)
        self._leaves: dict[Var, Leaf] = {
            ROW: Coordinate(across=region.swapped),
            COLUMN: Coordinate(across=not region.swapped),
            EVEN: EvenColumn(),
        }
        self._vars: dict[Leaf, Var] = {}
        # By identity: 0 and -0 are equal.
        self._legal: dict[int, tuple[Expr, Expr]] = {}
        self._forms: dict[int, _Form] = {}
        self._numbers: dict[Expr, Expr] = {}

    def leaf(self, leaf: Leaf, t: Type) -> Var:
        """The variable that stands for a leaf."""
        if leaf not in self._vars:
            self._vars[leaf] = Var(f"$leaf.{len(self._vars)}", t)
            self._leaves[self._vars[leaf]] = leaf
        return self._vars[leaf]

    def at(self, element: Element) -> ElementScalar:
        """This, for another element."""
        self.element = element
        self.down, self.across = self.region.offsets(element)
        return self

    def legal(self, e: Expr) -> Expr:
        return e if isinstance(e, Var) and e in self._leaves else super().legal(e)

    def once(self, e: Expr) -> Expr:
        """The legal form of an expression, the same one every time."""
        if id(e) not in self._legal:
            self._legal[id(e)] = e, self.legal(e)
        return self._legal[id(e)][1]

    def number(self, e: Expr) -> Expr:
        if e not in self._numbers:
            self._numbers[e] = super().number(e)
        return self._numbers[e]

    def expr(self, e: Expr) -> str:
        return self.text(self.once(e))

    def text(self, legal: Expr) -> str:
        if isinstance(legal, Var) and (leaf := self._leaves.get(legal)) is not None:
            return leaf.text(self)
        form = self._forms.get(id(legal)) or self._form(legal)
        return "".join([x if isinstance(x, str) else x.text(self) for x in form.parts])

    def _form(self, e: Expr) -> _Form:
        """What an expression's text is made of."""
        leaves = [*self._leaves.values()]
        marks = {v.name: f"{_HERE}{n}{_HERE}" for n, v in enumerate(self._leaves)}
        texts = operand(e, marks).split(_HERE)
        parts = [leaves[int(x)] if n % 2 else x for n, x in enumerate(texts)]
        self._forms[id(e)] = _Form(e, tuple(parts))
        return self._forms[id(e)]

    def function(self, function: PureFunction, t: Type, *, rounded: bool) -> str:
        """A term of a sum is as precise as sums."""
        term = self.summed and function is POWER_OF_TWO
        return super().function(function, t, rounded=rounded or term)


@dataclass(frozen=True, slots=True)
class Coordinate:
    """The row of an element among those of the tiles, or its column."""

    across: bool

    def text(self, at: ElementScalar) -> str:
        return column_text(at.across) if self.across else row_text(at.down)


@dataclass(frozen=True, slots=True)
class EvenColumn:
    """``EVEN``."""

    def text(self, at: ElementScalar) -> str:
        return column_text(at.across - at.across % 2)


@dataclass(frozen=True, slots=True)
class AccumulatorElement:
    """The element of an accumulator."""

    buffer: str

    def text(self, at: ElementScalar) -> str:
        i, j, e = at.element
        accumulator = at.context.accumulators[self.buffer]
        name = f"{accumulator.register}[{at.region.fragment(i, j)}]"
        return f"half_of({name}[{e // 2}], {e % 2})" if accumulator.half else f"{name}[{e}]"


class ElementTexts:
    """Texts of the elements of a block: of their values, and of when they are stored."""

    def __init__(self, value: Expr, guard: Expr | None, scalar: ElementScalar) -> None:
        self._value, self._guard, self._scalar = value, guard, scalar
        self.region = scalar.region
        self.paired = pair_text(value, lambda _: "") is not None
        if guard is not None:  # names are numbered in the order of their first use
            self.guard(scalar.element)
        self.value(scalar.element)

    def value(self, element: Element) -> str:
        return self._scalar.at(element).expr(self._value)

    def guard(self, element: Element) -> str:
        assert self._guard is not None
        return self._scalar.at(element).expr(self._guard)

    def pair(self, element: Element) -> str:
        """An element of 16 bits and its right neighbour, packed."""
        i, j, e = element
        both, scalar = ((i, j, e), (i, j, e + 1)), self._scalar

        def packed(x: Expr) -> str:
            return f"pack16({', '.join(scalar.at(y).expr(x) for y in both)})"

        match scalar.once(self._value):
            case Cast(t, Call(_, name) as single) if t == FLOAT16 and name in ROUNDED:
                return f"round_pair({', '.join(scalar.at(y).text(single) for y in both)})"
            case _:
                pass
        return pair_text(self._value, packed) or packed(self._value)
