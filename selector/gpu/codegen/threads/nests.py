"""Plain loop nests inside a kernel: taken apart into an iteration space and spread over the threads
of a unit.

A nest is loops around one store. Its iterations may run in any order if different iterations store
different elements and read no element that another one stores; loops for which that cannot be shown
stay serial.
"""

from __future__ import annotations

from selector.dataclass import dataclass
from selector.ir.affine import Affine, carries, split_by_strides, to_affine
from selector.ir.lanes import lane, own_lane
from selector.ir.nodes import (
    Broadcast,
    BufferParam,
    Dim,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    Load,
    Ramp,
    Stmt,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.traverse import free_vars, substitute, substitute_stmt, walk_expr

PLAIN_LOOPS = (
    ForKind.SERIAL,
    ForKind.UNROLLED,
    ForKind.PARALLEL,
    ForKind.VECTORIZED,
    ForKind.GPU_THREAD,
)


@dataclass(frozen=True, slots=True)
class Digit:
    """One dimension of an iteration space: a variable that counts from 0 to ``extent`` - 1."""

    var: Var
    extent: Expr

    @property
    def count(self) -> int | None:
        return self.extent.value if isinstance(self.extent, IntImm) else None


@dataclass(frozen=True, slots=True)
class Nest:
    """A scalar store over an iteration space (digits innermost first), under a condition."""

    digits: tuple[Digit, ...]
    store: Store
    condition: Expr | None


def vector_digits(lanes: int, *exprs: Expr) -> tuple[int, ...]:
    """Extents of the loops behind vector expressions of ``lanes`` lanes, innermost first.

    Every ramp and broadcast cuts the lanes where its base or value ends. If the cuts divide each
    other they are a loop nest that makes every one of the expressions affine; else the lanes count
    as one loop.
    """
    cuts = {lanes}
    for e in exprs:
        cuts |= _cuts(e)
    ordered = sorted(c for c in cuts if c > 1)
    extents: list[int] = []
    reached = 1
    for cut in ordered:
        if cut % reached:
            return (lanes,)
        extents.append(cut // reached)
        reached = cut
    return tuple(extents)


def _cuts(e: Expr) -> set[int]:
    if e.type.lanes == 1:
        return set()
    found: set[int] = set()
    for x in walk_expr(e):
        match x:
            case Ramp(inner, _, _) | Broadcast(inner, _):
                found.add(inner.type.lanes)
            case _:
                pass
    return found


def as_nest(s: Stmt) -> Nest | None:
    """The nest that a statement is, or None if it is none (several statements, allocations,
    barriers inside, a sum over lanes).
    """
    loops: list[For] = []
    condition: Expr | None = None
    while True:
        match s:
            case For(kind=kind) if kind in PLAIN_LOOPS:
                loops.append(s)
                s = s.body
            case IfThenElse(c, t, None) if condition is None:
                condition, s = c, t
            case Store() if not _reduces(s):
                break
            case _:
                return None
    return _scalarize(loops, s, condition)


def _reduces(s: Store) -> bool:
    """Whether a statement reduces lanes, which has no scalar form."""
    return any(
        isinstance(e, VectorReduce) and e.lanes != e.value.type.lanes for e in walk_expr(s.value)
    )


def _scalarize(loops: list[For], s: Store, condition: Expr | None) -> Nest | None:
    digits: list[Digit] = []
    lanes = s.value.type.lanes
    index, value, predicate = s.index, s.value, s.predicate
    if lanes > 1:
        extents = vector_digits(lanes, index, value, *(() if predicate is None else (predicate,)))
        marks = tuple((Var(f"$v{i}"), n) for i, n in enumerate(extents))
        digits = [Digit(v, IntImm(n)) for v, n in marks]
        index, value = lane(index, marks), lane(value, marks)
        if predicate is not None:
            predicate = own_lane(predicate, marks)
    values: dict[str, Expr] = {}
    for number, loop in enumerate(reversed(loops)):
        var = Var(f"$i{number}")
        digits.append(Digit(var, loop.extent))
        values[loop.name] = (Affine.of(loop.min) + var).to_expr()
    if any(free_vars(d.extent) & values.keys() for d in digits):
        return None
    scalar = where(Store(s.buffer, index, value, predicate), values)
    test = None if condition is None else substitute(condition, values)
    return Nest(tuple(digits), scalar, test)


def where(s: Store, values: dict[str, Expr]) -> Store:
    """The statement for these values of variables."""
    found = substitute_stmt(s, values)
    assert isinstance(found, Store)
    return found


def independent(nest: Nest, param: BufferParam | None, pitches: tuple[Expr, ...] = ()) -> bool:
    """Whether the iterations may run in any order. ``pitches`` are those of an intermediate, whose
    rows and planes hold every coordinate that is stored.
    """
    digits = [d for d in nest.digits if d.count != 1]
    store = nest.store
    read = (store.value, store.index, store.predicate, nest.condition)
    for e in (x for part in read if part is not None for x in walk_expr(part)):
        if not isinstance(e, Load) or e.buffer != nest.store.buffer:
            continue
        if (to_affine(e.index) - to_affine(nest.store.index)).constant != 0:
            return False
    coordinates = split_by_strides(nest.store.index, param.dims) if param else None
    parts = coordinates if coordinates is not None else (nest.store.index,)
    split = [to_affine(p) for p in parts]
    if pitches:
        split = _by_pitch(split[0], digits, [to_affine(p) for p in pitches])
    return _injective(split, digits)


def _by_pitch(index: Affine, digits: list[Digit], pitches: list[Affine]) -> list[Affine]:
    """A flat index as what walks along rows, then what steps from row to row, plane to plane."""
    steps = [Affine() for _ in pitches]
    for digit in digits:
        factor = index.coefficient(digit.var)
        if factor.constant is None and factor in pitches:
            steps[pitches.index(factor)] += digit.var
            index = index.rest(digit.var)
    return [index, *steps]


def _injective(parts: list[Affine], digits: list[Digit]) -> bool:
    """Each digit moves one coordinate, and the digits of a coordinate count in a mixed radix."""
    owned: set[str] = set()
    for part in parts:
        steps: list[tuple[int, Digit]] = []
        for digit in digits:
            factor = part.coefficient(digit.var)
            if not factor.terms:
                if part.mentions(digit.var.name):
                    return False
                continue
            if factor.constant is None or digit.var.name in owned:
                return False
            owned.add(digit.var.name)
            steps.append((abs(factor.constant), digit))
        reach = 0
        for step, digit in sorted(steps, key=lambda x: x[0]):
            if step <= reach:
                return False
            if digit.count is None:
                reach = 1 << 62  # nothing may lie beyond a dimension of unknown extent
                continue
            reach += step * (digit.count - 1)
    return all(d.var.name in owned for d in digits)


def merge_digits(nest: Nest, factors: list[Affine]) -> Nest:
    """Join digits that count on from each other in every one of ``factors`` (store and load
    indices).
    """
    digits = list(nest.digits)
    value = nest.store.value
    held = value.predicate if isinstance(value, Load) else None
    fixed = frozenset[str]() if held is None else free_vars(held)
    for low in digits:
        for high in digits:
            if low is high or low.count is None or high.count is None:
                continue
            if fixed & {low.var.name, high.var.name}:
                continue
            fits = all(
                f.coefficient(high.var) == f.coefficient(low.var) * low.count
                and not any(
                    f.rest(high.var).rest(low.var).mentions(d.var.name) for d in (low, high)
                )
                for f in factors
            )
            if fits:
                joined = Digit(low.var, IntImm(low.count * high.count))
                rest = [joined if d is low else d for d in digits if d is not high]
                store = where(nest.store, {high.var.name: IntImm(0)})
                rest_factors = [f.rest(high.var) for f in factors]
                return merge_digits(Nest(tuple(rest), store, nest.condition), rest_factors)
    return nest


def cut_digits(nest: Nest, dims: tuple[Dim, ...]) -> Nest:
    """The nest of a copy, its digits cut where the load runs from one dimension of constant stride
    into the next.
    """
    load, s = nest.store.value, nest.store
    assert isinstance(load, Load)
    index = to_affine(load.index)
    for _, outer, ratio in carries(dims):
        pitch = to_affine(dims[outer].stride).constant or 0
        for d in nest.digits:
            step = index.coefficient(d.var).constant or 0
            if d.count is None or not 0 < step < pitch or step % (pitch // ratio) or pitch % step:
                continue
            length = pitch // step
            if d.count <= length or d.count % length:
                continue
            row = Digit(Var(f"{d.var.name}_{outer}"), IntImm(d.count // length))
            place: dict[str, Expr] = {d.var.name: (Affine.of(row.var) * length + d.var).to_expr()}
            digits = [Digit(d.var, IntImm(length)) if x is d else x for x in nest.digits]
            return cut_digits(Nest((*digits, row), where(s, place), nest.condition), dims)
    return nest
