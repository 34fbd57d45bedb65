"""Factors of whole sums: ``sum(alpha * a * b)`` is ``alpha * sum(a * b)``.

An instruction has no factor, so one that all updates of an accumulator share is taken out of them
and applied where the accumulator is read. Integers wrap around and stay exact; floats are rounded
once at the end instead of at every term. A 16-bit accumulator keeps its range only under a factor
of one, so that others stay where they are, as do factors that change while the accumulator lives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import frexp, prod

from selector.ir.contents import holds, loaded
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Broadcast,
    Cast,
    Expr,
    FloatImm,
    For,
    IntImm,
    LetStmt,
    Load,
    LocToLoc,
    ReduceOp,
    Stmt,
    Store,
    VectorReduce,
)
from selector.ir.printer import print_expr
from selector.ir.simplify import literal
from selector.ir.traverse import (
    change_expr,
    free_vars,
    map_stmt,
    replaced,
    stmt_exprs,
    walk_expr,
    walk_stmt,
)
from selector.ir.types import Type
from selector.operands.accumulators import accumulators_of, touches_tensor
from selector.operands.updates import loads_from

Scale = tuple[Expr, ...]
"""Scalar factors in a fixed order; constants are one factor, one is none."""


def is_uniform(e: Expr) -> bool:
    """Whether a value is one scalar in every lane, as it stands."""
    return e.type.lanes == 1 or (isinstance(e, Broadcast) and e.value.type.lanes == 1)


def factor_scales(allocation: Allocate, alone: bool = False) -> Allocate:
    """The allocation with shared factors of its updates moved to its reads; ``alone``: those of
    one operand, too."""
    scales: dict[str, Scale] = {}
    for buffer in accumulators_of(allocation):
        scale = _common_scale(allocation, buffer, alone)
        if scale and not isinstance(scale, str):
            scales[buffer] = scale
    if not scales:
        return allocation
    return replace(allocation, body=_apply(allocation.body, scales, alone))


def refusal(allocation: Allocate, buffer: str) -> str:
    """Why the factors of an accumulator's sums stay in them; empty if they do not, or there are
    none."""
    found = _common_scale(allocation, buffer)
    return found if isinstance(found, str) else ""


def _common_scale(allocation: Allocate, buffer: str, alone: bool = False) -> Scale | str:
    """The factor that may be taken out of all updates of an accumulator, empty if there is none;
    or why it may not."""
    stores = [s for s in walk_stmt(allocation.body) if isinstance(s, Store)]
    own = [s for s in stores if s.buffer == buffer]
    updates = [total for s in own if (total := update_of(s)) is not None]
    found = {_parts(total.value, alone)[0] for total in updates}
    if found <= {()}:
        return ()
    if len(found) > 1:
        return f"the sums of `{buffer}` have different factors, and an accumulator has one"
    (scale,) = found
    if any(reads_loose(s, buffer) for s in walk_stmt(allocation.body)):
        return f"`{buffer}` is read in a condition, where its factor cannot be applied"
    starts = [s for s in own if update_of(s) is None]
    exact = _power_of_two(scale) is not None
    if not all(is_zero(s.value) or (exact and buffer not in loaded(s.value)) for s in starts):
        return f"the sums of `{buffer}` have a factor and start from a value that is not zero"
    if updates[0].type.bits < 32 and _power_of_two(scale) not in (1.0, -1.0):
        return f"the sums of `{buffer}` have a factor that their 16 bits may not have room without"
    if not is_invariant(scale, allocation):
        return f"the factor of the sums of `{buffer}` changes while they are summed"
    return scale


def scale_of(total: VectorReduce) -> Scale:
    """The factors of a sum that are one value in all its terms."""
    return _parts(total.value, alone=True)[0]


def update_of(s: Store) -> VectorReduce | None:
    """The sum of ``acc = acc + sum``, with the accumulator on either side."""
    match s.value:
        case LocToLoc(_, _, Binary(BinaryOp.ADD, a, b)):
            for own, total in ((a, b), (b, a)):
                if loads_from(own, s) and isinstance(total, VectorReduce):
                    return total if total.op is ReduceOp.ADD else None
        case _:
            pass
    return None


def _parts(e: Expr, alone: bool = False) -> tuple[Scale, Expr]:
    """The uniform factors of a product, and the rest: two operands, or one cast of their
    product; ``alone``: or one operand, or none."""
    factors = factors_of(e)
    scalars = [f for f in factors if is_uniform(f)]
    rest = [f for f in factors if not is_uniform(f)]
    if len(rest) == 1 and not _is_cast_product(rest[0]):
        loaded = [f for f in scalars if holds(f, Load)]
        rest += loaded[:1]
        scalars = [f for f in scalars if f not in loaded[:1]]
    if not scalars or not (len(rest) > 1 or any(map(_is_cast_product, rest)) or alone):
        return (), e
    if not rest:
        return _normal([_scalar(f) for f in scalars], e.type.element), literal(1, e.type)
    product = rest[0]
    for f in rest[1:]:
        product = Binary(BinaryOp.MUL, product, f)
    return _normal([_scalar(f) for f in scalars], e.type.element), product


def _is_cast_product(e: Expr) -> bool:
    match e:
        case Cast(_, Binary(BinaryOp.MUL, _, _)):
            return True
        case _:
            return False


def factors_of(e: Expr) -> list[Expr]:
    match e:
        case Binary(BinaryOp.MUL, a, b):
            return [*factors_of(a), *factors_of(b)]
        case _:
            return [e]


def _scalar(e: Expr) -> Expr:
    return e.value if isinstance(e, Broadcast) else e


def _normal(scalars: list[Expr], t: Type) -> Scale:
    constants = [x.value for x in scalars if isinstance(x, IntImm | FloatImm)]
    others = [x for x in scalars if not isinstance(x, IntImm | FloatImm)]
    number = prod(constants)
    known: list[Expr] = []
    if number != 1:
        known = [literal(number, t)]
    return (*known, *sorted(others, key=lambda x: print_expr(x, {})))


def _power_of_two(scale: Scale) -> float | None:
    """The factor, if it is a constant that only moves exponents; 1.0 for none."""
    match scale:
        case ():
            return 1.0
        case (FloatImm(value, _),) if abs(frexp(value)[0]) == 0.5:
            return value
        case (IntImm(-1, _),):
            return -1.0
        case _:
            return None


def is_zero(e: Expr) -> bool:
    """Whether a value is zero in every lane, as it stands."""
    match e:
        case LocToLoc(_, _, value) | Broadcast(value, _):
            return is_zero(value)
        case IntImm(0, _) | FloatImm(0.0, _):
            return True
        case _:
            return False


def reads_loose(s: Stmt, buffer: str) -> bool:
    """Whether something that is no store reads the accumulator."""
    return not isinstance(s, Store) and any(buffer in loaded(e) for e in stmt_exprs(s))


def is_invariant(scale: Scale, allocation: Allocate) -> bool:
    """Whether the factor has one value while the accumulator lives."""
    bound: set[str] = set()
    stored: set[str] = set()
    for s in walk_stmt(allocation.body):
        match s:
            case For() | LetStmt():
                bound.add(s.name)
            case Store():
                stored.add(s.buffer)
            case _:
                pass
    used = {n for e in scale for n in free_vars(e)}
    read = {x.buffer for e in scale for x in walk_expr(e) if isinstance(x, Load)}
    return not used & bound and not read & stored


def _apply(s: Stmt, scales: Mapping[str, Scale], alone: bool) -> Stmt:
    match s:
        case Store() if s.buffer in scales and (total := update_of(s)) is not None:
            bare = replace(total, value=_parts(total.value, alone)[1])
            return map_stmt(s, lambda x: x, lambda e: replaced(e, total, bare))
        case Store() if touches_tensor(s):
            read = replace(s, value=change_expr(s.value, lambda e: _scaled_read(e, scales)))
            return _scaled_start(read, scales[s.buffer]) if s.buffer in scales else read
        case _:
            return map_stmt(s, lambda x: _apply(x, scales, alone), lambda e: e)


def _scaled_read(e: Expr, scales: Mapping[str, Scale]) -> Expr | None:
    match e:
        case LocToLoc(_, _, Load(t, buffer, _, _)) if buffer in scales:
            value: Expr = e
            for factor in scales[buffer]:
                value = Binary(BinaryOp.MUL, value, _wide(factor, t.lanes))
            return value
        case _:
            return None


def _scaled_start(s: Store, scale: Scale) -> Store:
    """An initial value divided by the factor: zero, or exact because the factor is a power of
    two."""
    assert isinstance(s.value, LocToLoc)
    if is_zero(s.value):
        return s
    t, factor = s.value.type, _power_of_two(scale)
    assert factor is not None
    inverse = FloatImm(1 / factor, t.element) if t.is_float else IntImm(int(factor), t.element)
    value = Binary(BinaryOp.MUL, s.value.value, _wide(inverse, t.lanes))
    return replace(s, value=replace(s.value, value=value))


def _wide(e: Expr, lanes: int) -> Expr:
    return e if lanes == 1 else Broadcast(e, lanes)
