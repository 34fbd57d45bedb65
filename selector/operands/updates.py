"""An update taken apart for messages: terms, reduction, factors, and the axes along which they
vary."""

from __future__ import annotations

from selector.dataclass import dataclass
from selector.ir.access import access, merge
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


@dataclass(frozen=True, slots=True)
class Factor:
    """One operand: what it is in the text, its element type below the cast, its load if it is
    one; ``converted`` is the type that the update gives it before the multiplication's, if any."""

    text: str
    element: Type
    load: Load | None
    converted: Type | None = None

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
            if buffer != store.buffer:
                return False
            a = access(index)
            b = a if index == store.index else access(store.index)
            if a is None or b is None:
                return False
            return a.base == b.base and merge(a.levels) == merge(b.levels)
        case _:
            return False


def _factors(e: Expr, copies: int = 1) -> tuple[Factor, Factor] | None:
    match e:
        case Broadcast(value, count):
            return _factors(value, copies * count)
        case Binary(BinaryOp.MUL, a, b) | Select(_, Binary(BinaryOp.MUL, a, b), _):
            return _factor(a, copies), _factor(b, copies)
        case _:
            return None


def _factor(e: Expr, copies: int = 1) -> Factor:
    """Strip casts and broadcasts down to the load; broadcasts go into its index."""
    shown = print_expr(e)
    narrow = e
    casts: list[Type] = []
    while True:
        match narrow:
            case Cast(t, inner):
                casts.append(t.element)
                narrow = inner
            case Select(_, inner, _):
                narrow = inner
            case Broadcast(inner, count):
                copies *= count
                narrow = inner
            case Load(t, buffer, index, _):
                index = Broadcast(index, copies) if copies > 1 else index
                wide = t.element.with_lanes(index.type.lanes)
                converted = casts[1] if len(casts) > 1 else None
                return Factor(shown, t.element, Load(wide, buffer, index), converted)
            case _:
                return Factor(shown, narrow.type.element, None)
