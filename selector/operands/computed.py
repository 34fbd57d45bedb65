"""Operands that are computed where they are read: loads of buffers that do not exist.

Where a factor of a sum is no load at an affine index, it may still be a matrix: a value of the
lane's row and depth alone, whatever it takes to compute it (``A[k, clamp(m)]``, ``max(a, 0)``,
``f16(a)``, taps by formula). ``compute_operands`` puts a load in its place, of a buffer whose
element (c0, c1) is that value; the rules find the product or the convolution as they do for memory,
and the decoder puts the value back at the indices that they chose. An operand has its exact value
(``selector.operands.exact``).

It is what is tried where the rules find nothing: such operands are brought element by element.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from itertools import product

from selector.dataclass import dataclass
from selector.intrinsics import TensorInstruction
from selector.ir.affine import Affine
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Cast,
    Expr,
    FloatImm,
    IntImm,
    Load,
    Location,
    Not,
    ReduceOp,
    Select,
    Stmt,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.simplify import literal
from selector.ir.traverse import map_stmt, replaced, walk_stmt
from selector.ir.types import Type
from selector.operands.accumulators import accumulators_of
from selector.operands.computed_values import ALONG, ROW, Computed, masked
from selector.operands.exact import bounds, embeds, inside, is_sign, narrow, whole_numbers
from selector.operands.places import Grid, Place, Shape, cuts_of, grids, shape_of
from selector.operands.scaling import is_zero, update_of

MOST_CONDITIONS = 4


@dataclass
class _Pass:
    """One run over an allocation; ``found`` are the buffers that it made."""

    types: Mapping[Type, tuple[tuple[Type, Type], ...]]
    taps_only: bool
    cuts: frozenset[int]
    names: int = 0
    found: dict[str, Computed] = field(default_factory=dict[str, Computed])

    def stmt(self, s: Stmt) -> Stmt:
        if isinstance(s, Store) and (total := update_of(s)) is not None:
            changed = self.total(total)
            if changed is None:
                return s
            return map_stmt(s, lambda x: x, lambda e: replaced(e, total, changed))
        return map_stmt(s, self.stmt, lambda e: e)

    def total(self, total: VectorReduce) -> VectorReduce | None:
        """A sum of products with computed operands; None for one that is no such sum."""
        lanes, terms = total.lanes, total.value.type.lanes // total.lanes
        kind = total.type.element
        for grid in grids(total.value, terms, self.cuts):
            for factors in _pairs(grid.scalar(total.value), grid):
                shape = shape_of(grid, factors)
                if shape is None:
                    continue
                for types in self.types.get(kind, ()):
                    value = self.operands(shape, types, kind)
                    if value is not None:
                        return VectorReduce(ReduceOp.ADD, value, lanes)
        return None

    def operands(self, shape: Shape, types: tuple[Type, Type], kind: Type) -> Expr | None:
        """The product of both operands in these types."""
        ranges = shape.grid.extents
        values = [narrow(p.value, t, ranges) for p, t in zip(shape.places, types, strict=True)]
        made: list[Expr] = []
        for number, (value, place) in enumerate(zip(values, shape.places, strict=True)):
            if value is None:
                return None
            operand = _plain(value, place, shape.grid)
            if operand is None:
                if self.taps_only and number != shape.taps:
                    return None
                operand = self.load(value, place, shape.grid)
            wide = kind.with_lanes(operand.type.lanes)
            made.append(operand if operand.type == wide else Cast(wide, operand))
        return Binary(BinaryOp.MUL, made[0], made[1])

    def load(self, value: Expr, place: Place, grid: Grid) -> Load:
        """A load of a buffer that has this value."""
        name = f"$computed{self.names}"
        self.names += 1
        computed = Computed(value, Var(f"{name}.rows"))
        self.found[name] = computed
        steps = {d: Affine.of(n) for d, n in place.along.items()}
        for d, n in place.rows.items():
            steps[d] = steps.get(d, Affine()) + Affine.of(computed.rows) * n
        index = grid.index(IntImm(0), steps)
        return Load(value.type.with_lanes(grid.lanes), name, index)


def compute_operands(
    allocation: Allocate, legal: Iterable[TensorInstruction], taps_only: bool = False
) -> tuple[Allocate, Mapping[str, Computed]] | None:
    """A prepared allocation whose sums multiply computed operands, and the buffers that stand for
    them; None if that changes nothing. ``taps_only``: of the taps of filters, which are in a table
    before they are multiplied."""
    types: dict[Type, tuple[tuple[Type, Type], ...]] = {}
    for i in (i for i in legal if i.a_type == i.a_type.stored):  # nothing is computed in others
        pair = (i.a_type, i.b_type)
        known = types.setdefault(i.c_type, ())
        if pair not in known:
            types[i.c_type] = (*known, pair)
    in_memory = Location.WGMMA in accumulators_of(allocation).values()
    updates = (update_of(s) for s in walk_stmt(allocation.body) if isinstance(s, Store))
    cuts = frozenset(c for u in updates if u is not None for c in cuts_of(u.value))
    run = _Pass(types, taps_only or in_memory, cuts)
    body = run.stmt(allocation.body)
    return None if body == allocation.body else (replace(allocation, body=body), run.found)


def _plain(value: Expr, place: Place, grid: Grid) -> Expr | None:
    """An operand that is memory as it lies."""
    if not isinstance(value, Load) or value.predicate is not None:
        return None
    parts = Affine.of(value.index).parts(ROW, ALONG)
    if parts is None:
        return None
    base, row, along = parts
    steps: dict[str, Affine] = {d: along * n for d, n in place.along.items()}
    for d, n in place.rows.items():
        steps[d] = steps.get(d, Affine()) + row * n
    index = grid.index(base.to_expr(), steps)
    return Load(value.type.with_lanes(grid.lanes), value.buffer, index)


# ------------------------------------------------------------------ factors


def _pairs(value: Expr, grid: Grid) -> list[tuple[Expr, Expr]]:
    """A product as two factors, conditions and signs with the one or with the other."""
    factors = _factors(value, grid)
    if factors is None:
        return []
    masks = [f for f in factors if f.type.is_bool]
    signs = [f for f in factors if not f.type.is_bool and is_sign(f, grid.extents)]
    main = [f for f in factors if f not in masks and f not in signs]
    while len(main) < 2:
        main.append(signs.pop() if signs else literal(1, value.type))
    if len(main) != 2 or len(masks) + len(signs) > MOST_CONDITIONS:
        return []
    return [
        (_with(main[0], extra, of, 0), _with(main[1], extra, of, 1))
        for extra in [(*signs, *masks)]
        for of in product((0, 1), repeat=len(extra))
    ]


def _with(value: Expr, extra: tuple[Expr, ...], of: tuple[int, ...], own: int) -> Expr:
    """A factor times those of the others that are its own."""
    for f, owner in zip(extra, of, strict=True):
        if owner == own:
            value = masked(f, value) if f.type.is_bool else Binary(BinaryOp.MUL, f, value)
    return value


def _factors(e: Expr, grid: Grid) -> list[Expr] | None:
    """The factors of a product, conditions among them; None where it is rounded before it is
    added."""
    match e:
        case Binary(BinaryOp.MUL, a, b):
            left, right = _factors(a, grid), _factors(b, grid)
            return None if left is None or right is None else [*left, *right]
        case Binary(BinaryOp.SUB, FloatImm(0.0, t), b):
            inner = _factors(b, grid)
            return None if inner is None else [FloatImm(-1.0, t), *inner]
        case Cast(t, Binary(BinaryOp.MUL, a, b)) if _is_exact(t, a, b, grid):
            return _factors(Binary(BinaryOp.MUL, Cast(t, a), Cast(t, b)), grid)
        case Select(condition, a, b) if is_zero(b):
            inner = _factors(a, grid)
            return None if inner is None else [*inner, condition]
        case Select(condition, a, b) if is_zero(a):
            inner = _factors(b, grid)
            return None if inner is None else [*inner, Not(condition)]
        case Cast(_, value) if value.type.is_bool:
            return [value]
        case Cast(_, Cast(_, value)) if value.type.is_bool:
            return [value]
        case _:
            return [e]


def _is_exact(t: Type, a: Expr, b: Expr, grid: Grid) -> bool:
    """Whether a product in the type of its factors is that of the factors in type ``t``."""
    if a.type.is_integer and t.is_integer:
        (p, q), (r, s) = bounds(a, grid.extents), bounds(b, grid.extents)
        ends = [x * y for x in (p, q) for y in (r, s)]
        found = min(ends), max(ends)
        return inside(found, whole_numbers(a.type)) and inside(found, whole_numbers(t))
    if t.is_float and a.type.is_float and any(is_sign(x, grid.extents) for x in (a, b)):
        return embeds(a.type, t)
    return t.is_float and a.type.is_float and a.type.bits > t.bits and all(
        isinstance(x, Cast) and x.value.type.is_float and embeds(x.value.type, t)
        and x.value.type.bits == 16
        for x in (a, b)
    )  # fmt: skip
