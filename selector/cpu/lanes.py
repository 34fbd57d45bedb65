"""Statements as C loops see them: one lane as a scalar expression, and whole stores as scalar
stores inside loops over their lanes.

Beyond ``ir.lanes`` this knows the operands that instructions read (banded matrices, VNNI order;
their meaning is in ``selector.intrinsics.functions``) and takes reductions apart.
"""

from __future__ import annotations

from selector.dataclass import dataclass
from selector.diagnostics import EmitError
from selector.gpu.codegen.threads.nests import vector_digits
from selector.intrinsics import TILE_FILL, TILE_READ, TOEPLITZ, TOEPLITZ_TRANSPOSED, VNNI
from selector.intrinsics.calls import constants
from selector.ir.lanes import Digits, lane, number, split
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Call,
    Cast,
    Compare,
    CompareOp,
    Expr,
    ExprVar,
    IntImm,
    Load,
    LocToLoc,
    Not,
    ReduceOp,
    Select,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.simplify import add, div, literal, mod, mul, sub
from selector.ir.traverse import expr_children, walk_expr
from selector.ir.types import Type

_OPERANDS = (TOEPLITZ, TOEPLITZ_TRANSPOSED, VNNI)


@dataclass(frozen=True, slots=True)
class Reduction:
    """``total`` is the value over all ``counter`` in [0, ``factor``) combined by ``op``.

    ``first`` is the value for counter 0, None where the operator has a neutral element.
    """

    total: Var
    op: ReduceOp
    counter: Var
    factor: int
    first: ScalarValue | None
    rest: ScalarValue


@dataclass(frozen=True, slots=True)
class ScalarValue:
    """A scalar expression and the reductions to be done before it."""

    reductions: tuple[Reduction, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class LaneLoops:
    """A scalar store inside loops over ``digits`` (innermost first) of constant extents."""

    digits: tuple[tuple[Var, int], ...]
    reductions: tuple[Reduction, ...]
    store: Store

    def loads(self) -> list[tuple[Load, dict[str, int]]]:
        """Every load with the loops around it: extents by variable, from 0."""
        extents = {v.name: n for v, n in self.digits}
        exprs = [self.store.index, self.store.value]
        if self.store.predicate is not None:
            exprs.append(self.store.predicate)
        found = [(x, extents) for e in exprs for x in walk_expr(e) if isinstance(x, Load)]
        return found + _reduction_loads(self.reductions, extents)


def _reduction_loads(
    reductions: tuple[Reduction, ...], extents: dict[str, int]
) -> list[tuple[Load, dict[str, int]]]:
    found: list[tuple[Load, dict[str, int]]] = []
    for r in reductions:
        inner = {**extents, r.counter.name: r.factor}  # covers the first value too
        found += [(x, inner) for x in walk_expr(r.rest.value) if isinstance(x, Load)]
        found += _reduction_loads(r.rest.reductions, inner)
        if r.first is not None:
            found += [(x, extents) for x in walk_expr(r.first.value) if isinstance(x, Load)]
            found += _reduction_loads(r.first.reductions, extents)
    return found


def lane_loops(s: Store) -> LaneLoops:
    """The loops of a store of any number of lanes."""
    lanes = s.value.type.lanes
    extents: tuple[int, ...] = ()
    if lanes > 1:
        parts = (s.index, s.value) if s.predicate is None else (s.index, s.value, s.predicate)
        extents = vector_digits(lanes, *(part for e in parts for part in _elementwise(e, lanes)))
    digits = tuple((Var(f"$v{i}"), n) for i, n in enumerate(extents))
    taker = _Taker()
    index = taker.lane(s.index, digits)
    value = taker.lane(s.value, digits)
    p = s.predicate
    predicate = None if p is None else p if p.type.lanes == 1 else taker.lane(p, digits)
    return LaneLoops(digits, tuple(taker.reductions), Store(s.buffer, index, value, predicate))


def _elementwise(e: Expr, lanes: int) -> list[Expr]:
    """Parts of an expression whose ramps and broadcasts cut its own lanes."""
    match e:
        case VectorReduce():
            return []
        case Call(_, name, args) if name in (TOEPLITZ, TOEPLITZ_TRANSPOSED):
            rows, columns = constants(Call(e.type, name, args), 2)
            return (
                [] if lanes != rows * columns else [_cut(e, columns if name == TOEPLITZ else rows)]
            )
        case Call(_, name, args) if name == VNNI:
            _, n, packing = constants(Call(e.type, name, args), 3)
            return [_cut(e, packing), _cut(e, packing * n)]
        case Call() if _reshapes(e):
            return []  # an operand has lanes of its own
        case _ if _special(e) or any(isinstance(x, Call) and _reshapes(x) for x in walk_expr(e)):
            parts = [x for x in expr_children(e) if x.type.lanes == lanes]
            return [y for x in parts for y in _elementwise(x, lanes)]
        case _:
            return [e]


def _reshapes(call: Call) -> bool:
    """Whether a call has operands of other lanes than its own; no plain code has."""
    return any(a.type.lanes not in (1, call.type.lanes) for a in call.args)


def _cut(e: Expr, at: int) -> Expr:
    """An expression of as many lanes that is cut at a multiple of ``at``."""
    inner = Broadcast(IntImm(0), at)
    return Broadcast(inner, e.type.lanes // at)


def _special(e: Expr) -> bool:
    return any(
        isinstance(x, VectorReduce) or (isinstance(x, Call) and x.name in _OPERANDS)
        for x in walk_expr(e)
    )


def scalar_lane(e: Expr, digits: Digits) -> Expr:
    """One lane of an expression without reductions."""
    taker = _Taker()
    value = taker.lane(e, digits)
    if taker.reductions:
        raise EmitError("a reduction inside an operand of a tensor instruction has no form in C")
    return value


class _Taker:
    """Takes lanes; reductions on the way are collected."""

    def __init__(self, depth: int = 0) -> None:
        self.reductions: list[Reduction] = []
        self.depth = depth

    def lane(self, e: Expr, digits: Digits) -> Expr:  # noqa: C901 (one case per node)
        if not _special(e):
            return lane(e, digits) if e.type.lanes > 1 else _scalar(e)
        match e:
            case VectorReduce(op, value, lanes) if value.type.lanes != lanes:
                return self._reduce(op, value, value.type.lanes // lanes, digits)
            case VectorReduce(_, value, _) | ExprVar(value) | LocToLoc(_, _, value):
                return self.lane(value, digits)
            case Call(_, name, args) if name in (TILE_FILL, TILE_READ):
                return self.lane(args[0], digits)
            case Call(t, name, _) if name == VNNI:
                return self._vnni(e, digits, t)
            case Call(t, name, _) if name in (TOEPLITZ, TOEPLITZ_TRANSPOSED):
                return self._band(e, digits, t)
            case Binary(op, a, b):
                return Binary(op, self.lane(a, digits), self.lane(b, digits))
            case Compare(op, a, b):
                return Compare(op, self.lane(a, digits), self.lane(b, digits))
            case Cast(t, value):
                return Cast(t.element, self.lane(value, digits))
            case Not(value):
                return Not(self.lane(value, digits))
            case Broadcast(value, _):
                return self.lane(value, split(digits, value.type.lanes)[0])
            case Select(c, t, f):
                test = c if c.type.lanes == 1 else self.lane(c, digits)
                return Select(test, self.lane(t, digits), self.lane(f, digits))
            case Call(t, name, args) if all(a.type.lanes in (1, t.lanes) for a in args):
                return Call(t.element, name, tuple(self.lane(a, digits) for a in args))
            case _:
                raise EmitError(f"a reduction inside a {type(e).__name__} has no form in C")

    def _reduce(self, op: ReduceOp, value: Expr, factor: int, digits: Digits) -> Expr:
        tag = f"{self.depth}_{len(self.reductions)}"
        total, counter = Var(f"$total{tag}", value.type.element), Var(f"$r{tag}")
        neutral = op in (ReduceOp.ADD, ReduceOp.MUL)
        first = None if neutral else self._inner(value, ((IntImm(0), factor), *digits))
        rest = self._inner(value, ((counter, factor), *digits))
        self.reductions.append(Reduction(total, op, counter, factor, first, rest))
        return total

    def _inner(self, value: Expr, digits: Digits) -> ScalarValue:
        taker = _Taker(self.depth + 1 + len(self.reductions))
        scalar = taker.lane(value, digits)
        return ScalarValue(tuple(taker.reductions), scalar)

    def _vnni(self, call: Call, digits: Digits, t: Type) -> Expr:
        """Lane (k / packing, n, k % packing) of the matrix in VNNI order."""
        k, n, packing = constants(call, 3)
        inside, rest = _digit(digits, packing)
        column, group = _digit(rest, n)
        row = add(mul(number(group), IntImm(packing)), inside)
        value = self.lane(call.args[3], ((column, n), (row, k)))
        return value if k % packing == 0 else _where(_below(row, k), value, t)

    def _band(self, call: Call, digits: Digits, t: Type) -> Expr:
        """Lane (row, column) of a banded matrix, or of its transpose."""
        k, n, stride, dilation, phases = constants(call, 5)
        taps = call.args[5]
        count = taps.type.lanes // phases
        if call.name == TOEPLITZ:
            column, rest = _digit(digits, n)
            row = number(rest)
        else:
            row, rest = _digit(digits, k)
            column = number(rest)
        distance = sub(row, mul(div(column, IntImm(phases)), IntImm(stride)))
        tap, beside = div(distance, IntImm(dilation)), mod(distance, IntImm(dilation))
        place = add(mul(mod(column, IntImm(phases)), IntImm(count)), tap)
        value = _tap(self, taps, place)
        inside = Binary(
            BinaryOp.AND, Compare(CompareOp.LE, IntImm(0), distance), _below(tap, count)
        )
        if dilation > 1:
            inside = Binary(BinaryOp.AND, inside, Compare(CompareOp.EQ, beside, IntImm(0)))
        return _where(inside, value, t)


def _tap(taker: _Taker, taps: Expr, place: Expr) -> Expr:
    count = taps.type.lanes
    return taker.lane(taps, ((place, count),)) if count > 1 else taker.lane(taps, ())


def _digit(digits: Digits, extent: int) -> tuple[Expr, Digits]:
    """The innermost digit as a number in [0, extent), and the digits above it."""
    digits = tuple((d, n) for d, n in digits if n != 1)
    if extent == 1:
        return IntImm(0), digits
    inner, outer = split(digits, extent)
    return number(inner), outer


def _below(e: Expr, limit: int) -> Expr:
    return Compare(CompareOp.LT, e, IntImm(limit))


def _where(test: Expr, value: Expr, t: Type) -> Expr:
    return Select(test, value, literal(0, t.element))


def _scalar(e: Expr) -> Expr:
    """A scalar expression without the marks around it."""
    return e.value if isinstance(e, ExprVar | LocToLoc) else e
