"""What rules work with: a value of a region as a function of indices, and the table of rules.

Values of 16 bits are computed in float32 and rounded where they are stored, or where the graph
says so. Views compose ``at``; nothing is stored for them.
"""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import halide

from selector.dataclass import dataclass
from selector.diagnostics import ScheduleError
from selector.interop.regions.graph import Size, TensorType, evaluated

hl: Any = halide
Extent = Any  # a number, or an Expr of extents of arguments

STORED: Mapping[str, Any] = {
    "float16": hl.Float(16),
    "bfloat16": hl.BFloat(16),
    "float32": hl.Float(32),
    "float64": hl.Float(64),
    "int8": hl.Int(8),
    "uint8": hl.UInt(8),
    "int16": hl.Int(16),
    "int32": hl.Int(32),
    "int64": hl.Int(64),
    "bool": hl.UInt(8),
}
FLOATS = ("float16", "bfloat16", "float32", "float64")
HALVES = ("float16", "bfloat16")


def unsupported(what: str) -> ScheduleError:
    return ScheduleError(what, why=what)


def computed(dtype: str) -> Any:
    """The type that values of a dtype are computed in; integers are indices, of 32 bits."""
    if dtype == "float64":
        return hl.Float(64)
    if dtype == "bool":
        return hl.Bool()
    return hl.Float(32) if dtype in FLOATS else hl.Int(32)


def expr(value: Any) -> Any:
    """An element of a Func is no Expr yet."""
    return value if isinstance(value, hl.Expr) else hl.Expr(value)


def cast(kind: Any, value: Any) -> Any:
    value = expr(value)
    return value if value.type() == kind else hl.cast(kind, value)


def stored(value: Any, dtype: str) -> Any:
    """A computed value as it is stored."""
    if dtype == "bool":
        return hl.select(value, hl.cast(hl.UInt(8), 1), hl.cast(hl.UInt(8), 0))
    return cast(STORED[dtype], value)


def loaded(element: Any, dtype: str) -> Any:
    """A stored element as it is computed with."""
    return element != 0 if dtype == "bool" else cast(computed(dtype), element)


def constant(number: float | bool, dtype: str) -> Any:
    """A number as a value of a dtype."""
    if dtype == "bool":
        return hl.Expr(int(bool(number))) != 0
    return hl.cast(computed(dtype), hl.f64(number) if isinstance(number, float) else number)


@dataclass(frozen=True, slots=True)
class Value:
    """``at``: the element at indices in NumPy's order, as it is computed with. ``element``: the
    same as it is stored, where a Func or argument has it: what tensor units multiply. ``open``: of
    an argument, its extents as a call says them, where ``shape`` has numbers. ``levels``: of a
    float that a byte stands for. ``square``: of a square root, what it is the root of.
    """

    dtype: str
    shape: tuple[Extent, ...]
    at: Callable[[Sequence[Any]], Any]
    element: Callable[[Sequence[Any]], Any] | None = None
    open: tuple[Any, ...] = ()
    levels: Levels | None = None
    square: Value | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    def seen(self, shape: Sequence[Extent], index: Callable[[Sequence[Any]], Any]) -> Value:
        """A view: its element at some indices is that at ``index`` of them."""
        element = self.element
        return Value(
            self.dtype,
            tuple(shape),
            lambda i: self.at(index(i)),
            None if element is None else lambda i: element(index(i)),
        )

    def broadcast(self, indices: Sequence[Any], shape: Sequence[Extent] = ()) -> Any:
        """The element for an index of a larger shape: axes of one repeat, missing ones as well. Of
        a ``shape`` that has one element along an axis, too, its own: so it is read at the reader's
        own element, and the block that computes it may be the one that reads it.
        """
        own, missing = indices[len(indices) - self.rank :], len(shape) - self.rank

        def repeats(d: int) -> bool:
            return is_one(self.shape[d]) and not (shape and is_one(shape[missing + d]))

        return self.at([0 if repeats(d) else i for d, i in enumerate(own)])


@dataclass(frozen=True, slots=True)
class Levels:
    """What quantised floats are made of: ``scale`` times what ``stored`` bytes differ by from
    ``zero``. Both are the same everywhere, or depend on the index along an ``axis``.
    """

    stored: Value
    scale: Callable[[Any], Any]
    zero: Callable[[Any], Any]
    axis: int | None = None

    def factor(self, index: Sequence[Any]) -> Any:
        """A byte, less its zero, in the type in which products of bytes are taken."""
        assert self.stored.element is not None
        return self.less(self.stored.element(index), self.of(index))

    def less(self, element: Any, place: Any) -> Any:
        """The same of an element, at a place along the axis."""
        zero = self.zero(place)
        return hl.i32(element) if isinstance(zero, int) and zero == 0 else hl.i32(element) - zero

    def of(self, index: Sequence[Any]) -> Any:
        """The index that scale and zero depend on."""
        return None if self.axis is None else index[self.axis]


Rule = Callable[..., Value | tuple[Value, ...]]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers what a region's operator becomes: a function of ``Making``, then of its arguments
    as aten's schema has them.
    """

    def registered(function: Rule) -> Rule:
        for name in names:
            RULES[name if "." in name else f"aten.{name}"] = function
        return function

    return registered


@dataclass(frozen=True, slots=True)
class Making:
    """One operator of a region while it is translated. ``known``: extents by symbol; ``op``: its
    name; ``types``: of its results. ``rounded``: what leaves the region has 16 bits.
    """

    known: Mapping[str, Extent]
    op: str = ""
    types: tuple[TensorType, ...] = ()
    rounded: bool = False
    _count: dict[str, int] = field(default_factory=dict[str, int])

    def extent(self, size: Size) -> Extent:
        return evaluated(size, self.known, lambda a, b: a / b if _is_expr(a, b) else a // b)

    def shape(self, number: int = 0) -> tuple[Extent, ...]:
        """Of the result (or the result of that number) of the operator at hand."""
        return tuple(map(self.extent, self.types[number].shape))

    @property
    def dtype(self) -> str:
        return self.types[0].dtype

    def name(self, base: str) -> str:
        """A name that no other Func of the region has."""
        count = self._count[base] = self._count.get(base, 0) + 1
        return base if count == 1 else f"{base}{count}"

    def func(self, base: str) -> Any:
        return hl.Func(self.name(base))

    def variables(self, rank: int) -> list[Any]:
        """Of a Func, in NumPy's order."""
        return [hl.Var(f"i{d}") for d in reversed(range(rank))]

    def kept(self, value: Value, base: str) -> Value:
        """The value as a Func of its own, in its computed type."""
        func, index = self.func(base), self.variables(value.rank)
        func[tuple(reversed(index))] = value.at(index)
        return Value(value.dtype, value.shape, lambda i: func[tuple(reversed(list(i)))])

    def operand(self, value: Value, base: str) -> Value:
        """The value with elements of its stored type."""
        if value.element is not None:
            return value
        func, index = self.func(base), self.variables(value.rank)
        func[tuple(reversed(index))] = stored(value.at(index), value.dtype)

        def element(i: Sequence[Any]) -> Any:
            return func[tuple(reversed(list(i)))]

        return Value(value.dtype, value.shape, lambda i: loaded(element(i), value.dtype), element)


def _is_expr(*values: Any) -> bool:
    return any(not isinstance(v, int) for v in values)


def is_one(extent: Extent) -> bool:
    """Whether an axis has one element; one whose extent is a symbol has more."""
    return isinstance(extent, int) and extent == 1


def axis(dim: int, rank: int) -> int:
    return dim % rank if rank else 0


def domain(extents: Sequence[Extent], name: str) -> Any:
    """A reduction over these, in NumPy's order."""
    return hl.RDom([(0, n) for n in reversed(list(extents))], name)


def along(r: Any, count: int) -> list[Any]:
    """Its variables, in NumPy's order."""
    return [r] if count == 1 else [r[d] for d in reversed(range(count))]
