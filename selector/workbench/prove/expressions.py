"""What an expression of the IR is worth at a lane, for every lane at once.

A lane is digits, innermost first, cut where ramps and broadcasts nest (``LaneCut`` begins anew with
a digit in two). Integers are numbers, within the limits of their type where that is known of them
and else a wrapped value (of 32 bits and more: as rings have them, and indices do not overflow).
Floats are exact where they are multiplied and added in 32 bits and more, whose rounding is left to
the order of sums; what is rounded to fewer is a value of its own, unless it is exact there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from fractions import Fraction
from functools import reduce

from selector.dataclass import dataclass
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
    FloatImm,
    IntImm,
    Let,
    Load,
    LocToLoc,
    Not,
    Ramp,
    ReduceOp,
    Select,
    Shuffle,
    Var,
    VectorReduce,
)
from selector.ir.traverse import substitute
from selector.ir.types import FLOAT32, Type, limits
from selector.operands.computed_values import ALONG, ROW, Computed
from selector.workbench.prove.byte_values import decoded
from selector.workbench.prove.lane_worth import (
    Digit,
    Digits,
    OneByOne,
    Worth,
    combined,
    constant,
    cut,
    fits,
    is_half,
    is_sign,
    lane_number,
    truth,
)
from selector.workbench.prove.sizes import Unproved
from selector.workbench.prove.terms import ONE, ZERO, Poly, Terms, number

_MOST_SUMMANDS = 2048
Cell = Callable[[Load, Poly, Digits], Poly]
"""The element of an accumulator that a load reads, at an index."""


@dataclass
class Meaning:
    """Expressions over one set of digits. ``cells``: accumulators; ``computed``: buffers that stand
    for values; ``singly``: sums are written out."""

    terms: Terms
    cells: Mapping[str, Cell] = field(default_factory=dict[str, Cell])
    computed: Mapping[str, Computed] = field(default_factory=dict[str, Computed])
    cuts: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    singly: bool = False
    names: Mapping[str, Poly] = field(default_factory=dict[str, Poly])
    _scalars: dict[int, tuple[Expr, Worth]] = field(default_factory=dict[int, tuple[Expr, Worth]])
    """What has been worked out, by the identity of expressions that no lane changes."""

    def digit(self, name: str, extent: int) -> Digits:
        """A number below an extent, in the parts that it has been cut into."""
        ends = (*self.cuts.get(name, ()), extent)
        found: list[Digit] = []
        before = 1
        for end in ends:
            count = end // before
            if count > 1:
                at = self.terms.atom("digit", f"{name}/{before}", within=(0, count - 1))
                found.append(Digit(at, count, name, before))
            before = end
        return tuple(found)

    def value(self, e: Expr, at: Digits) -> Worth:
        """The value at the lane of these digits."""
        if at:
            return self._value(e, at)
        known = self._scalars.get(id(e))
        if known is None:
            known = self._scalars[id(e)] = e, self._value(e, at)
        return known[1]

    def _value(self, e: Expr, at: Digits) -> Worth:  # noqa: C901 (a line a node)
        if isinstance(e, Binary | Cast | Select | Call) and (found := self._decoded(e, at)):
            return found
        match e:
            case IntImm(value, t):
                return Worth(number(value), t, (value, value))
            case FloatImm(value, t):
                return constant(value, t)
            case Var(name, t):
                return self._variable(name, t, at)
            case Cast(t, value):
                return self.cast(t.element, self.closed(self.value(value, at)))
            case Binary():
                return self._binary(e, at)
            case Compare(op, a, b):
                x, y = (self.closed(self.value(v, at)).poly for v in (a, b))
                return truth(e.type, self._compared(op, x, y))
            case Not(value):
                return truth(e.type, ONE - self.value(value, at).poly)
            case Select():
                return self._select(e, at)
            case Load():
                return self._load(e, at)
            case Ramp():
                return self._ramp(e, at)
            case Broadcast(value, _):
                return self.value(value, cut(at, value.type.lanes)[0])
            case VectorReduce():
                return self._sum(e, at)
            case Call():
                return self._call(e, at)
            case Shuffle(vectors, indices):
                lane = lane_number(at).constant
                if lane is None:
                    raise OneByOne
                return self._of_many(vectors, indices[int(lane)])
            case Let(name, value, body):
                return self.value(substitute(body, {name: value}), at)
            case LocToLoc(_, _, value) | ExprVar(value):
                return self.value(value, at)

    # leaves

    def _variable(self, name: str, t: Type, at: Digits) -> Worth:
        if name in self.names:
            return Worth(self.names[name], t, self.terms.whole_range(self.names[name]))
        of = (lane_number(at).key,) if t.lanes > 1 else ()
        known = self.terms.atom("name", name, *of, whole=t.is_integer)
        return Worth(known, t.element, None, frozenset((t.element,)))

    def _load(self, e: Load, at: Digits) -> Worth:
        t = e.type.element
        index = self.value(e.index, at).poly
        if e.buffer in self.computed:
            found = self._computed(self.computed[e.buffer], index)
        elif e.buffer in self.cells:
            found = Worth(self.cells[e.buffer](e, index, at), t, None, frozenset((t,)))
        else:
            found = self.memory(t, e.buffer, index)
        if e.predicate is None:
            return found
        held = self.value(e.predicate, at).poly
        return self._chosen(held, found, constant(0, t))

    def memory(self, t: Type, buffer: str, index: Poly) -> Worth:
        """An element of memory that nobody here writes."""
        self.no_sum(index)
        if t.stored != t:
            return self._of_byte(t, t, self.memory(t.stored, buffer, index))
        within = limits(t) if t.is_integer and t.bits <= 16 else None
        value = self.terms.atom(
            "memory", buffer, str(t), index.key, whole=t.is_integer, within=within
        )
        return Worth(value, t, limits(t) if t.is_integer else None, frozenset((t,)))

    def _computed(self, computed: Computed, index: Poly) -> Worth:
        """A value by its coordinates: so many rows, and what is left of the index."""
        rows = self.terms.atom("name", computed.rows.name)
        row, along = self.terms.parts(index, rows)
        inner = Meaning(self.terms, self.cells, self.computed, self.cuts, self.singly,
                        {**self.names, ROW.name: row, ALONG.name: along})  # fmt: skip
        return self.closed(inner.value(computed.value, ()))

    def _of_byte(self, t: Type, kind: Type, byte: Worth) -> Worth:
        decoded = self.terms.atom("decoded", str(t), byte.poly.key, whole=False)
        return Worth(decoded, kind.element, None, frozenset((t,)))

    def _decoded(self, e: Expr, at: Digits) -> Worth | None:
        """A float that is the number that a byte stands for."""
        found = decoded(e, at)
        return found and self._of_byte(found[0], e.type, self.value(found[1], found[2]))

    # vectors

    def _ramp(self, e: Ramp, at: Digits) -> Worth:
        inner, outer = cut(at, e.base.type.lanes)
        base, stride = self.value(e.base, inner), self.value(e.stride, inner)
        steps = self.terms.times(stride.poly, lane_number(outer))
        t = e.type.element
        if not t.is_integer:
            return Worth(base.poly + steps, t, None, frozenset((t,)), t.bits == 16)
        most = e.count - 1
        within = combined(BinaryOp.ADD, base.within, combined(
            BinaryOp.MUL, stride.within, (0, most)))  # fmt: skip
        return self._integer(t, base.poly + steps, within)

    def _of_many(self, vectors: tuple[Expr, ...], lane: int) -> Worth:
        for v in vectors:
            if lane < v.type.lanes:
                return self.value(v, (Digit(number(lane), v.type.lanes),))
            lane -= v.type.lanes
        raise AssertionError(lane)

    def _sum(self, e: VectorReduce, at: Digits) -> Worth:
        terms, t = e.value.type.lanes // e.lanes, e.type.element
        if terms == 1:
            return self.value(e.value, at)
        if not self.singly and e.op is ReduceOp.ADD and (t.is_float or t.bits >= 32):
            found = self.value(e.value, (*self.digit(f"k{terms}", terms), *at))
            self.no_sum(found.poly)
            mark = self.terms.atom("sum", terms)
            return Worth(self.terms.times(mark, found.poly), t, None, frozenset(), found.open)
        if terms > _MOST_SUMMANDS:
            raise Unproved("a sum of too many terms")
        if not self.singly:
            raise OneByOne
        each = [self.value(e.value, (Digit(number(k), terms), *at)) for k in range(terms)]
        return reduce(lambda a, b: self._operated(e.op.joins, a, b), each)

    def no_sum(self, p: Poly) -> None:
        """A sum is only added, and multiplied by what is no sum."""
        if not self.singly and any(a.kind == "sum" for a in self.terms.inside(p)):
            raise OneByOne

    # operators

    def closed(self, v: Worth) -> Worth:
        """The value as one of its type."""
        if not v.open:
            return v
        self.no_sum(v.poly)
        rounded = self.terms.atom("rounded", str(v.type), v.poly.key, whole=False)
        return Worth(rounded, v.type, v.within, frozenset((v.type,)))

    def _binary(self, e: Binary, at: Digits) -> Worth:
        return self._operated(e.op, self.value(e.a, at), self.value(e.b, at))

    def _operated(self, op: BinaryOp, a: Worth, b: Worth) -> Worth:
        t = a.type
        match op:
            case BinaryOp.AND:
                return truth(t, self.terms.times(a.poly, b.poly))
            case BinaryOp.OR:
                return truth(t, a.poly + b.poly - self.terms.times(a.poly, b.poly))
            case BinaryOp.ADD | BinaryOp.SUB:
                total = a.poly + b.poly if op is BinaryOp.ADD else a.poly - b.poly
                if t.is_integer:
                    return self._integer(t, total, combined(op, a.within, b.within))
                if a.poly.constant == 0 or b.poly.constant == 0:  # and a sign is exact
                    return Worth(total, t, None, a.exact | b.exact, a.open or b.open)
                return Worth(total, t, None, frozenset((t,)), t.bits == 16)
            case BinaryOp.MUL:
                return self._product(a, b)
            case BinaryOp.DIV | BinaryOp.MOD:
                return self._division(op, self.closed(a), self.closed(b))
            case BinaryOp.MIN | BinaryOp.MAX:
                return self._extreme(op, self.closed(a), self.closed(b))

    def _product(self, a: Worth, b: Worth) -> Worth:
        t = a.type
        if t.is_integer:
            found = self.terms.times(a.poly, b.poly)
            return self._integer(t, found, combined(BinaryOp.MUL, a.within, b.within))
        for sign, other in ((a, b), (b, a)):
            if is_sign(sign):
                found = self.terms.times(a.poly, b.poly)
                return Worth(found, t, None, other.exact | {0}, other.open)
        if t.bits == 16:
            a, b = self.closed(a), self.closed(b)
        found = self.terms.times(a.poly, b.poly)
        exact = FLOAT32 if t.bits == 64 and is_half(a) and is_half(b) else t
        return Worth(found, t, None, frozenset((exact,)), t.bits == 16)

    def _integer(self, t: Type, p: Poly, within: tuple[int, int] | None) -> Worth:
        low, high = limits(t)
        if within is not None and low <= within[0] and within[1] <= high:
            return Worth(p, t, within)
        if t.bits >= 32:
            return Worth(p, t, None)
        self.no_sum(p)
        return Worth(self.terms.atom("wrapped", str(t), p.key, within=(low, high)), t, (low, high))

    def _division(self, op: BinaryOp, a: Worth, b: Worth) -> Worth:
        t, by = a.type, b.poly.constant
        if t.is_float:
            if op is BinaryOp.MOD or by == 0:
                raise Unproved("the rest of a float")
            inverse = (
                self.terms.atom("inverse", b.poly.key, whole=False)
                if by is None
                else number(1 / Fraction(by))
            )
            return Worth(self.terms.times(a.poly, inverse), t, None, frozenset((t,)), t.bits == 16)
        self.no_sum(a.poly)
        if isinstance(by, int) and by > 0:
            quotient = self.terms.divided(a.poly, by)
            if op is BinaryOp.DIV:
                ends = a.within and (a.within[0] // by, a.within[1] // by)
                return Worth(quotient, t, ends)
            return Worth(a.poly - quotient.scaled(by), t, (0, by - 1))
        kind = "divided" if op is BinaryOp.DIV else "rest"
        return Worth(self.terms.atom(kind, a.poly.key, b.poly.key), t)

    def _extreme(self, op: BinaryOp, a: Worth, b: Worth) -> Worth:
        for v in (a, b):
            self.no_sum(v.poly)
        x, y = sorted((a.poly, b.poly), key=lambda p: p.key)
        first = self.terms.below(x, y) if op is BinaryOp.MIN else self.terms.below(y, x)
        within = combined(op, a.within, b.within)
        return Worth(self.terms.chosen(first, x, y), a.type, within, a.exact | b.exact)

    def _compared(self, op: CompareOp, x: Poly, y: Poly) -> Poly:
        self.no_sum(x)
        self.no_sum(y)
        match op:
            case CompareOp.EQ:
                return self.terms.same(x, y)
            case CompareOp.NE:
                return ONE - self.terms.same(x, y)
            case CompareOp.LT:
                return self.terms.below(x, y)
            case CompareOp.LE:
                return ONE - self.terms.below(y, x)
            case CompareOp.GT:
                return self.terms.below(y, x)
            case CompareOp.GE:
                return ONE - self.terms.below(x, y)

    def _select(self, e: Select, at: Digits) -> Worth:
        condition = self.value(e.condition, at if e.condition.type.lanes > 1 else ()).poly
        return self._chosen(condition, self.value(e.then, at), self.value(e.otherwise, at))

    def _chosen(self, condition: Poly, a: Worth, b: Worth) -> Worth:
        if condition.constant is not None:
            return a if condition.constant else b
        if a.open != b.open and b.poly.terms and a.poly.terms:
            a, b = self.closed(a), self.closed(b)
        within = a.within and b.within and (
            min(a.within[0], b.within[0]), max(a.within[1], b.within[1])
        )  # fmt: skip
        value = self.terms.chosen(condition, a.poly, b.poly)
        return Worth(value, a.type, within, a.exact | b.exact, a.open or b.open)

    def cast(self, t: Type, v: Worth) -> Worth:
        """A value in another type."""
        if t == v.type:
            return v
        if t.is_bool:
            return truth(t, ONE - self.terms.same(v.poly, ZERO))
        if fits(v, t):
            return replace(v, type=t, exact=v.exact or frozenset((t,)))
        self.no_sum(v.poly)
        if t.is_float:
            rounded = self.terms.atom("rounded", str(t), v.poly.key, whole=False)
            return Worth(rounded, t, None, frozenset((t,)))
        kind = "truncated" if v.type.is_float else "wrapped"
        found = self.terms.atom(kind, str(t), v.poly.key, within=limits(t))
        return Worth(found, t, limits(t))

    def _call(self, e: Call, at: Digits) -> Worth:
        args = [self.closed(self.value(a, at)) for a in e.args]
        for a in args:
            self.no_sum(a.poly)
        t = e.type.element
        found = self.terms.atom(
            "call", e.name, str(t), *(str(a.type) for a in args), *(a.poly.key for a in args),
            whole=t.is_integer, within=limits(t) if t.is_integer and t.bits <= 16 else None,
        )  # fmt: skip
        exact = args[0].exact if e.name == "abs" and args[0].type == t else frozenset((t,))
        return Worth(found, t, limits(t) if t.is_integer else None, exact)
