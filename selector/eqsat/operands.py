"""An update taken apart for messages: terms, reduction, factors, and the axes along which they
vary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from selector.intrinsics import TensorInstruction
from selector.ir.access import Level, access, align, cut, merge
from selector.ir.affine import Affine
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Cast,
    Expr,
    Load,
    LocToLoc,
    Select,
    Store,
    VectorReduce,
)
from selector.ir.printer import print_expr
from selector.ir.types import Type

if TYPE_CHECKING:
    from selector.eqsat.diagnose import Miss

MakeMiss = Callable[[str, str, str], "Miss"]


@dataclass(frozen=True, slots=True)
class Factor:
    """One operand: what it is in the text, its element type below the cast, its load if it is
    one."""

    text: str
    element: Type
    load: Load | None

    @property
    def name(self) -> str:
        return self.load.buffer if self.load is not None else self.text


@dataclass(frozen=True, slots=True)
class Update:
    """``acc[i] = term + term ...`` with the reductions among the terms and the factors of the first
    one."""

    terms: tuple[Expr, ...]
    reductions: tuple[VectorReduce, ...]
    factors: tuple[Factor, Factor] | None
    adds_itself: bool

    @staticmethod
    def of(store: Store) -> Update:
        value = store.value.value if isinstance(store.value, LocToLoc) else store.value
        terms = tuple(_sum_terms(value))
        reductions = tuple(t for t in terms if isinstance(t, VectorReduce))
        own = [t for t in terms if loads_from(t, store)]
        factors = _factors(reductions[0].value) if reductions else None
        return Update(terms, reductions, factors, len(own) == 1 and len(terms) == 2)


def _sum_terms(e: Expr) -> list[Expr]:
    match e:
        case Binary(BinaryOp.ADD, a, b):
            return [*_sum_terms(a), *_sum_terms(b)]
        case _:
            return [e]


def loads_from(e: Expr, store: Store) -> bool:
    """Whether a value is the accumulator as the statement stores it, read before that."""
    match e:
        case LocToLoc(_, _, Load(_, buffer, index, _)):
            a, b = access(index), access(store.index)
            if a is None or b is None or buffer != store.buffer:
                return False
            return a.base == b.base and merge(a.levels) == merge(b.levels)
        case _:
            return False


def _factors(e: Expr) -> tuple[Factor, Factor] | None:
    match e:
        case Binary(BinaryOp.MUL, a, b):
            return _factor(a), _factor(b)
        case Select(_, Binary(BinaryOp.MUL, a, b), _):
            return _factor(a), _factor(b)
        case _:
            return None


def _factor(e: Expr) -> Factor:
    """Strip casts and broadcasts down to the load; broadcasts go into its index."""
    shown, copies = print_expr(e), 1
    narrow = e
    while True:
        match narrow:
            case Cast(_, inner):
                narrow = inner
            case Select(_, inner, _):
                narrow = inner
            case Broadcast(inner, count):
                copies *= count
                narrow = inner
            case Load(t, buffer, index, _):
                index = Broadcast(index, copies) if copies > 1 else index
                wide = t.element.with_lanes(index.type.lanes)
                return Factor(shown, t.element, Load(wide, buffer, index))
            case _:
                return Factor(shown, narrow.type.element, None)


Axis = tuple[Affine, Affine, int]
"""A level of both operands: stride of the first, stride of the second, count."""


def block_miss(
    miss: MakeMiss, update: Update, candidates: Sequence[TensorInstruction]
) -> Miss | None:
    """What is wrong with the block that two affine operands span; None if it looks right."""
    assert update.factors is not None
    first, second = update.factors
    assert first.load is not None
    assert second.load is not None
    reduce = update.reductions[0]
    terms = reduce.value.type.lanes // reduce.lanes
    left, right = (_parts(load, terms) for load in (first.load, second.load))
    name = _name(candidates)
    if left is None or right is None:
        return miss(
            f"its {terms} terms of the reduction are not a whole number of levels of the index",
            "vectorize the reduction by a factor that divides the tile evenly",
            name,
        )
    for factor, (inner, _) in zip((first, second), (left, right), strict=True):
        if len(merge(inner)) > 1:
            return miss(
                f"`{factor.name}` is read along {len(merge(inner))} reduction dimensions at once "
                f"(strides {_strides(merge(inner))})",
                "vectorize one reduction dimension and loop over the others",
                name,
            )
    outer = align(left[1], right[1])
    if outer is None:
        return miss(
            "the operands' levels cut across each other", "use tile sizes that divide", name
        )
    return _axes_miss(miss, (first, second), reduce.lanes, outer, candidates)


def _parts(load: Load, terms: int) -> tuple[tuple[Level, ...], tuple[Level, ...]] | None:
    """The levels of the reduction and those of the tile."""
    seen = access(load.index)
    return None if seen is None else cut(seen.levels, terms)


def _axes_miss(
    miss: MakeMiss,
    factors: tuple[Factor, Factor],
    lanes: int,
    outer: tuple[Axis, ...],
    candidates: Sequence[TensorInstruction],
) -> Miss | None:
    shared = [i for i, (s, t, _) in enumerate(outer) if s.terms and t.terms]
    constant = [not any(s.terms for s, _, _ in outer), not any(t.terms for _, t, _ in outer)]
    if shared:
        s, t, n = outer[shared[0]]
        axis = "n" if shared[0] == 0 else "m"
        return miss(
            f"both operands vary along {axis}: `{factors[0].name}` is read with stride {_text(s)} "
            f"and `{factors[1].name}` with stride {_text(t)} (extent {n})",
            f"one of them must not depend on {axis}; take that dimension out of the tile "
            "(do not vectorize it)",
            _name(candidates),
        )
    if constant[0] and constant[1]:
        return miss(
            "neither operand varies along the tile: every lane gets the same sum",
            "there is nothing to multiply here; compute the sum once and broadcast it",
            _name(candidates),
        )
    if not any(constant):
        return _matrix_miss(miss, outer, candidates)
    return _convolution_miss(miss, factors[1 if constant[0] else 0], lanes, outer, candidates)


def _matrix_miss(
    miss: MakeMiss, outer: tuple[Axis, ...], candidates: Sequence[TensorInstruction]
) -> Miss | None:
    """A matrix product: the tile's extents against the shapes."""
    fast = outer[0][1] if outer[0][1].terms else outer[0][0]
    by_columns = [bool(axis[0].terms) == bool(outer[0][0].terms) for axis in outer]
    if by_columns != sorted(by_columns, reverse=True):
        return miss(
            "rows and columns of the tile are interleaved",
            "vectorize the dimensions of one operand next to each other",
            _name(candidates),
        )
    n, m = 1, 1
    for axis, column in zip(outer, by_columns, strict=True):
        n, m = (n * axis[2], m) if column else (n, m * axis[2])
    if any(i.fits(m, n) for i in candidates):
        strides = f"(columns with stride {_text(fast)})"
        return miss(
            f"the {m} x {n} tile spans several dimensions of an operand whose strides do not merge "
            f"{strides}",
            "vectorize one dimension of each operand, and loop or unroll over the others",
            _name(candidates),
        )
    near = min(candidates, key=lambda i: (_up(m, i.m) * _up(n, i.n) - m * n, i.name), default=None)
    if near is None:
        return None
    return miss(
        f"its tile is {m} x {n} (m x n); no instruction's shape divides it",
        f"make it {_up(m, near.m)} x {_up(n, near.n)}, a multiple of {near.m} x {near.n} "
        f"({near.name})",
        near.name,
    )


def _convolution_miss(
    miss: MakeMiss,
    image: Factor,
    lanes: int,
    outer: tuple[Axis, ...],
    candidates: Sequence[TensorInstruction],
) -> Miss | None:
    """A convolution: lanes against the shapes, strides against the taps."""
    sizes = sorted({i.m * i.n for i in candidates})
    if sizes and all(lanes % size for size in sizes):
        near = min(sizes, key=lambda s: (_up(lanes, s) - lanes, s))
        instruction = next(i for i in candidates if i.m * i.n == near)
        return miss(
            f"its {lanes} lanes are no multiple of any instruction's m x n "
            f"({', '.join(map(str, sizes))})",
            f"vectorize {_up(lanes, near)} outputs at once",
            instruction.name,
        )
    along = merge(tuple((s if s.terms else t, count) for s, t, count in outer))
    strides = _strides(along)
    if len(along) > 1:
        return miss(
            f"the tile spans {len(along)} dimensions of `{image.name}` (strides {strides}), but a "
            "convolution's operand is read along one",
            "vectorize the dimension that the taps slide over, and loop or unroll over the others",
            _name(candidates),
        )
    return miss(
        f"only `{image.name}` varies along the tile (stride {strides}), in another unit than along "
        "the reduction: as a matrix product every row of the tile would be the same, and as a "
        "convolution no banded (Toeplitz) matrix has that shape",
        "vectorize a dimension of the other operand too, or, for a convolution, the dimension that "
        "its taps slide over",
        _name(candidates),
    )


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _name(candidates: Sequence[TensorInstruction]) -> str:
    return candidates[0].name if candidates else ""


def _text(stride: Affine) -> str:
    return print_expr(stride.to_expr())


def _strides(levels: tuple[Level, ...]) -> str:
    return ", ".join(_text(s) for s, _ in levels)
