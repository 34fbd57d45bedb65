"""Statements without their names and bases: what equality saturation sees, and the key of its memo
table.

No rule looks at a base address, so every scalar of an index becomes a symbol ``s0, s1, ...`` of its
statement, equal scalars (as polynomials) the same one. Strides keep their integer factor, because
rules compute with it. Buffers become ``b0, b1, ...``, accumulators ``t0, t1, ...``. Two statements
of an unrolled loop then have one skeleton, which is selected once.

Sums of vectors are brought into one order here (fewest parts first, differences as sums of negated
terms), which keeps associativity out of the e-graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from math import gcd, isfinite

from selector.dataclass import dataclass
from selector.eqsat.encode import encode_store
from selector.ir.affine import Affine
from selector.ir.contents import bits_of, kinds_of
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Compare,
    Expr,
    FloatImm,
    IntImm,
    Let,
    Load,
    LocToLoc,
    Not,
    Ramp,
    Shuffle,
    Store,
    Var,
)
from selector.ir.traverse import map_expr
from selector.ir.types import INT32


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A statement over symbols, its term (equal terms are equal skeletons), and what the symbols
    stand for."""

    store: Store
    term: str
    symbols: Mapping[str, Expr]
    buffers: Mapping[str, str]


def abstract(store: Store, accumulators: Mapping[str, str]) -> Skeleton:
    """The skeleton of a statement; ``accumulators`` names the tensor allocations in scope (buffer
    -> symbol)."""
    names = _Names(dict(accumulators))
    index = names.index(store.index)
    value = names.value(store.value)
    predicate = None if store.predicate is None else names.value(store.predicate)
    skeleton = Store(names.buffer(store.buffer), index, value, predicate)
    return Skeleton(
        skeleton, encode_store(skeleton), names.symbols, {v: k for k, v in names.buffers.items()}
    )


@dataclass
class _Names:
    buffers: dict[str, str]
    symbols: dict[str, Expr] = field(default_factory=dict[str, Expr])
    _known: dict[object, str] = field(default_factory=dict[object, str])

    def buffer(self, name: str) -> str:
        if name not in self.buffers:
            self.buffers[name] = f"b{sum(v.startswith('b') for v in self.buffers.values())}"
        return self.buffers[name]

    def symbol(self, e: Expr, key: object) -> Var:
        """The symbol of a value; equal keys share one."""
        if key not in self._known:
            name = f"s{len(self.symbols)}"
            self._known[key] = name
            self.symbols[name] = e
        return Var(self._known[key], e.type)

    def index(self, e: Expr) -> Expr:
        """An integer vector used as an address or compared with one."""
        if e.type.lanes == 1:
            if e.type != INT32 or _has_load(e):
                return self.value(e)
            return self.symbol(e, Affine.of(e))
        match e:
            case Ramp(base, stride, count):
                return Ramp(self.index(base), self.stride(stride), count)
            case Broadcast(value, count):
                return Broadcast(self.index(value), count)
            case Binary(BinaryOp.ADD | BinaryOp.SUB, _, _):
                return self.total(e)
            case Binary(BinaryOp.MUL, a, b):
                return Binary(BinaryOp.MUL, self.stride(a), self.stride(b))
            case Binary(BinaryOp.DIV | BinaryOp.MOD as op, a, b):
                return Binary(op, self.dividend(a), self.stride(b))
            case Binary():
                return map_expr(e, self.index)
            case _:
                return self.value(e)

    def dividend(self, e: Expr) -> Expr:
        """An index that is divided: its bases show what they are multiples of, as symbol * content
        + constant."""
        if e.type.lanes == 1:
            if e.type != INT32 or _has_load(e):
                return self.value(e)
            polynomial = Affine.of(e)
            constant = IntImm(polynomial.offset)
            if polynomial.constant is not None:
                return constant
            multiple = self.stride((polynomial - polynomial.offset).to_expr())
            return Binary(BinaryOp.ADD, multiple, constant) if polynomial.offset else multiple
        match e:
            case Ramp(base, stride, count):
                return Ramp(self.dividend(base), self.stride(stride), count)
            case Broadcast(value, count):
                return Broadcast(self.dividend(value), count)
            case Binary(BinaryOp.ADD | BinaryOp.SUB, _, _):
                return self.total(e, self.dividend)
            case _:
                return self.index(e)

    def stride(self, e: Expr) -> Expr:
        """A factor of an index: a constant stays, anything else is a symbol times its integer
        content."""
        if isinstance(e, IntImm) and e.type is INT32:  # most of them
            return e
        if e.type.lanes > 1:
            match e:
                case Broadcast(value, count):
                    return Broadcast(self.stride(value), count)
                case Ramp(base, step, count):
                    return Ramp(self.stride(base), self.stride(step), count)
                case Binary(BinaryOp.ADD | BinaryOp.SUB | BinaryOp.MUL):
                    return map_expr(e, self.stride)
                case _:
                    return self.index(e)
        if e.type != INT32 or _has_load(e):
            return self.value(e)
        polynomial = Affine.of(e)
        if polynomial.constant is not None:
            return IntImm(polynomial.constant)
        content = gcd(*(c for _, c in polynomial))
        if polynomial.terms[0][1] < 0:
            content = -content
        primitive = polynomial.divided_by(content)
        assert primitive is not None
        if content == 1:
            return self.symbol(e, primitive)
        unit = self.symbol(primitive.to_expr(), primitive)
        return Binary(BinaryOp.MUL, unit, IntImm(content))

    def total(self, e: Expr, term: Callable[[Expr], Expr] | None = None) -> Expr:
        """A sum of vectors: negations moved into the terms, fewest parts first."""
        ordered = sorted(_terms(e, False), key=_parts)
        mapped = [((term or self.index)(t), minus) for t, minus in ordered]
        plus = [t for t, minus in mapped if not minus] or [Broadcast(IntImm(0), e.type.lanes)]
        result = plus[0]
        for t in plus[1:]:
            result = Binary(BinaryOp.ADD, result, t)
        for t in (t for t, minus in mapped if minus):
            result = Binary(BinaryOp.SUB, result, t)
        return result

    def value(self, e: Expr) -> Expr:
        """A computed value: literals and structure stay, free scalars are symbols."""
        match e:
            case Load(t, buffer, index, predicate):
                mask = None if predicate is None else self.value(predicate)
                return Load(t, self.buffer(buffer), self.index(index), mask)
            case Compare(op, a, b) if a.type.element == INT32:
                return Compare(op, self.index(a), self.index(b))
            case IntImm():
                return e
            case FloatImm(value, _) if isfinite(value):
                return e
            case Shuffle() | Let() | FloatImm():
                return self.symbol(e, e)
            case _ if e.type.lanes == 1 and not _has_load(e):
                return self.symbol(e, e)
            case Ramp() if not e.type.element.is_integer:  # steps would be rounded otherwise
                return self.symbol(e, e)
            case Ramp():
                return self.index(e)
            case Broadcast() | Binary() | Not() | LocToLoc() | _:
                return map_expr(e, self.value)


_READS = bits_of(Load, LocToLoc)


def _has_load(e: Expr) -> bool:
    return bool(kinds_of(e) & _READS)


def _terms(e: Expr, minus: bool) -> list[tuple[Expr, bool]]:
    """The terms of a sum with their signs, the sign moved into ramps and broadcasts of scalars."""
    match e:
        case Binary(BinaryOp.ADD, a, b):
            return [*_terms(a, minus), *_terms(b, minus)]
        case Binary(BinaryOp.SUB, a, b):
            return [*_terms(a, minus), *_terms(b, not minus)]
        case _ if minus and (negated := _negate(e)) is not None:
            return [(negated, False)]
        case _:
            return [(e, minus)]


def _negate(e: Expr) -> Expr | None:
    match e:
        case Broadcast(value, count):
            inner = _negate(value)
            return None if inner is None else Broadcast(inner, count)
        case Ramp(base, stride, count):
            b, s = _negate(base), _negate(stride)
            return None if b is None or s is None else Ramp(b, s, count)
        case _ if e.type == INT32 and not _has_load(e):
            return (-Affine.of(e)).to_expr()
        case _:
            return None


def _parts(term: tuple[Expr, bool]) -> tuple[int, int]:
    match term[0]:
        case Ramp(_, _, count):
            return (count, 0)
        case Broadcast(_, count):
            return (count, 1)
        case _:
            return (1 << 30, 2)
