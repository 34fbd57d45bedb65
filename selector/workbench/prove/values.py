"""The value of a class at a lane, as a formula over unknown memory, symbols and sizes.

Vectors that nothing is known of are functions of the lane's number, memory is a function of the
index. What is integer arithmetic is polynomials (they also hold modulo 2**n: wrap-around is free);
casts, and sums and products of other types, are functions of which only named contracts are known.
With sizes chosen (``Attempt.lane``) lanes are numbers, sums are written out, and all values are
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import InitVar, dataclass, field

import z3

from selector.workbench.prove.context import At, Cls, Context
from selector.workbench.prove.formulas import Band, Fact, Split, Sum, Value
from selector.workbench.prove.sizes import (
    ONE,
    ZERO,
    Digits,
    Poly,
    Unproved,
    count,
    lane_number,
    number,
    unknown,
)
from selector.workbench.prove.strings import BOOL

_Quotient = tuple[Value, Value, Value, Value]

FINITE = "values are finite: 0*x = 0"
COMMUTES = "sums and products commute"
UNSIGNED_ZERO = "-0.0 is 0.0"
RANGE = "indices do not overflow"
ORDER = "sums may be taken in another order"


@dataclass
class Attempt:
    """One attempt at a goal: the digits, and the facts about the terms that it meets. ``lane``: the
    one that is looked at, where all sizes are those of the ``case``.
    """

    context: Context
    case: InitVar[Mapping[str, int] | None] = None
    cuts: Mapping[str, Poly] = field(default_factory=dict[str, Poly])
    lane: int | None = None
    extent: int | None = None
    facts: list[Fact] = field(default_factory=list[Fact])
    sums: dict[str, Sum] = field(default_factory=dict[str, Sum])
    bands: list[Band] = field(default_factory=list[Band])
    extents: dict[str, Poly] = field(default_factory=dict[str, Poly])
    memo: dict[tuple[Cls, Digits], Value] = field(default_factory=dict[tuple[Cls, Digits], Value])
    divisions: dict[tuple[Poly, Poly], tuple[Poly, Poly]] = field(
        default_factory=dict[tuple[Poly, Poly], tuple[Poly, Poly]]
    )
    quotients: list[_Quotient] = field(default_factory=list[_Quotient])

    def __post_init__(self, case: Mapping[str, int] | None) -> None:
        self.sizes = deepcopy(self.context.sizes)
        self.sizes.bound.update((name, number(v)) for name, v in (case or {}).items())

    def fact(self, formula: Value, contract: str = "") -> None:
        self.facts.append(Fact(contract, formula))

    # integers

    def z(self, p: Poly) -> Value:
        """An integer as a formula."""
        total: Value = z3.IntVal(0)
        for names, factor in self.sizes.expanded(p).terms:
            term: Value = z3.IntVal(factor)
            for name in names:
                term = term * z3.Int(name)
            total = total + term
        return total

    def relation(self, relation: str, a: Poly, b: Poly) -> Value:
        """A fact of ``Sizes`` as a formula."""
        x, y = self.z(a), self.z(b)
        match relation:
            case "=":
                return x == y
            case "!=":
                return x != y
            case ">":
                return x > y
            case ">=":
                return x >= y
            case "<":
                return x < y
            case "<=":
                return x <= y
            case "euclid":
                return z3.Implies(y != 0, z3.If(x >= 0, x, -x) < z3.If(y >= 0, y, -y))
            case "sign":
                return z3.If(y >= 0, x >= 0, x <= 0)
            case _:
                raise AssertionError(relation)

    def of_sizes(self) -> list[Value]:
        """All that is known of the sizes."""
        facts = dict.fromkeys(
            (r, self.sizes.expanded(a), self.sizes.expanded(b))
            for r, a, b in self.sizes.facts
            if r != ">" or b.terms or not self.sizes.is_positive(a)
        )
        found = [self.relation(*fact) for fact in facts]
        found += [self.z(unknown(n)) >= 1 for n in sorted(self.sizes.positive)]
        for name, (op, a, b) in self.sizes.extremes.items():
            x, y = self.z(a), self.z(b)
            first = x <= y if op == "min" else x >= y
            found.append(self.z(unknown(name)) == z3.If(first, x, y))
        return found

    # lanes

    def fresh(self, about: str, extent: Poly) -> Digits:
        """A digit, in parts where it has been cut."""
        extent = self.sizes.resolved(extent)
        if self.lane is not None:
            self.extent = self.sizes.expanded(extent).constant
            assert self.extent is not None, extent
            return self.digits((number(self.lane % max(1, self.extent)), number(self.extent)))
        if extent == ONE:
            return ()
        part = self.cuts.get(about)
        if part is not None:
            outer = extent.over(self.sizes.resolved(part))
            if outer is None:
                raise Unproved(f"{extent} lanes are no whole number of {part}")
            return (*self.fresh(f"{about}.0", part), *self.fresh(f"{about}.1", outer))
        self.extents[about] = extent
        digit = z3.Int(about)
        self.fact(z3.And(digit >= 0, digit < self.z(extent)))
        return ((unknown(about), extent),)

    def cut(self, digits: Digits, lanes: Poly) -> tuple[Digits, Digits]:
        """Inner digits that count so many lanes, and the others."""
        lanes, done = self.sizes.resolved(lanes), ONE
        for i, (digit, extent) in enumerate(digits):
            rest = lanes.over(done)
            if rest == ONE:
                return digits[:i], digits[i:]
            if rest is None:
                return self._cut_number(digits, lanes)
            if rest.over(extent) is not None:
                done *= extent
                continue
            outer = extent.over(rest)
            if outer is None:
                return self._cut_number(digits, lanes)
            if digit.name in self.extents:
                raise Split(digit.name, rest)
            high, low = self.divided(digit, rest)
            return (*digits[:i], (low, rest)), ((high, outer), *digits[i + 1 :])
        if lanes != done:
            return self._cut_number(digits, lanes)
        return digits, ()

    def _cut_number(self, digits: Digits, lanes: Poly) -> tuple[Digits, Digits]:
        """Of chosen sizes, by the lane's number."""
        total, at, by = count(digits).constant, lane_number(digits).constant, lanes.constant
        if total is None or at is None or by is None:
            extents = " x ".join(str(e) for _, e in digits)
            raise Unproved(f"{extents or 1} lanes have no part of {lanes}")
        if total % by:
            raise Unproved(f"{total} lanes are no whole number of {by}")
        return self.digits((number(at % by), lanes)), self.digits(
            (number(at // by), number(total // by))
        )

    def digits(self, *pairs: tuple[Poly, Poly]) -> Digits:
        """Digits without those of one value."""
        resolved = ((d, self.sizes.resolved(self.sizes.as_count(e))) for d, e in pairs)
        return tuple((d, e) for d, e in resolved if e != ONE)

    def levels(self, digits: Digits, *extents: Poly) -> tuple[Digits, ...]:
        """The digits of a lane, level by level, innermost first."""
        found: list[Digits] = []
        for extent in extents[:-1]:
            inner, digits = self.cut(digits, extent)
            found.append(inner)
        return (*found, digits)

    def term(self, k: Poly, extent: Poly) -> Digits:
        """The digits of a number below an extent: its own, where it is made of some; else one."""
        extent = self.sizes.resolved(self.sizes.as_count(extent))
        found: list[tuple[Poly, Poly]] = []
        rest, done = k, ONE
        while rest.terms:
            digit = next((d for d in self.extents if self._begins(rest, d, done)), "")
            if not digit:
                return self.digits((k, extent))
            found.append((unknown(digit), self.extents[digit]))
            rest, done = rest - unknown(digit) * done, done * self.extents[digit]
        return tuple(found) if found and done == extent else self.digits((k, extent))

    def divided(self, a: Poly, by: Poly) -> tuple[Poly, Poly]:
        """Quotient and rest, not negative, of a division that rounds down."""
        a, by = self.sizes.expanded(a), self.sizes.resolved(by)
        exact = a.over(by)
        if exact is not None:
            return exact, ZERO
        if a.constant is not None and by.constant is not None:
            high, low = divmod(a.constant, by.constant)
            return number(high), number(low)
        structural = self._as_digits(a, by)
        if structural is not None:
            return structural
        if (a, by) not in self.divisions:
            q, r = (unknown(f"{w}{len(self.divisions)}") for w in ("high", "low"))
            self.divisions[a, by] = q, r
            self.euclid(self.z(a), self.z(by), self.z(q), self.z(r))
        return self.divisions[a, by]

    def _as_digits(self, a: Poly, by: Poly) -> tuple[Poly, Poly] | None:
        """``by * q + r`` where r is written in digits below ``by``."""
        high = Poly.of(t for t in a.terms if Poly((t,)).over(by) is not None)
        low, done = a - high, ONE
        while low.terms:
            places = [(d, e) for d, e in self.extents.items() if self._begins(low, d, done)]
            if not places:
                return None
            digit, extent = places[0]
            low, done = low - unknown(digit) * done, done * extent
        quotient = high.over(by)
        return None if quotient is None or by.over(done) is None else (quotient, a - high)

    def _begins(self, low: Poly, digit: str, scale: Poly) -> bool:
        (term,) = (unknown(digit) * scale).terms
        return term in low.terms

    def euclid(self, a: Value, by: Value, q: Value, r: Value) -> None:
        """Halide's division: the rest is not negative, by zero both are zero."""
        whole = z3.And(a == by * q + r, r >= 0, r < z3.If(by > 0, by, -by))
        self.fact(z3.If(by == 0, z3.And(q == 0, r == 0), whole))
        self.once(a, by, q, r)

    def once(self, a: Value, by: Value, q: Value, r: Value) -> None:
        """a = by * q + r with 0 <= r < by; such q and r are the only ones (``lemmas``)."""
        for b, c, p, s in self.quotients:
            same = z3.And(a == b, by == c, by > 0)
            self.fact(z3.Implies(same, z3.And(q == p, r == s)))
        self.quotients.append((a, by, q, r))

    # values

    def scalar(self, e: Cls) -> Value:
        return self.value(e, ())

    def value(self, e: Cls, digits: Digits) -> Value:
        """The value of a class at a lane."""
        e = self.context.find(e)
        digits = self.digits(*digits)
        if self.sizes.expanded(count(digits)) != self.sizes.expanded(self.context.counts[e]):
            lanes = self.sizes.resolved(self.context.counts[e])
            raise Unproved(f"a vector of {lanes} lanes is read as one of {count(digits)}")
        key = (e, digits)
        if key in self.memo:
            return self.memo[key]
        ways = self.context.values.get(e, ())
        values = [v for way in ways if (v := self._one_way(way, digits)) is not None]
        self.memo[key] = first = values[0] if values else self.arbitrary(e, digits)
        for other in values[1:]:
            self.fact(first == other)
        for holds in self.context.everywhere.get(e, ()):
            self.fact(holds(self, digits))
        return first

    def _one_way(self, way: At, digits: Digits) -> Value | None:
        """A value as one term or claim has it; none where its parts are others than the digits."""
        try:
            return way(self, digits)
        except Unproved:
            return None

    def arbitrary(self, e: Cls, digits: Digits) -> Value:
        """A vector of which nothing is known."""
        sort = z3.BoolSort() if self.context.string(e) == BOOL else z3.IntSort()
        found = z3.Function(f"v{e}", z3.IntSort(), sort)(self.z(lane_number(digits)))
        return self.small(found) if sort == z3.IntSort() else found

    def small(self, x: Value) -> Value:
        """A number that all types have, where numbers are looked for."""
        if self.lane is not None:
            self.fact(z3.And(x >= 0, x <= 9))
        return x

    def word(self, of: Cls | str) -> Value:
        """A string or a type as an argument of functions."""
        return z3.Int(f"name {self.context.string(of)}")

    def function(self, name: str, *args: Value, truth: bool = False) -> Value:
        sorts, sort = [a.sort() for a in args], z3.BoolSort() if truth else z3.IntSort()
        shown = "".join("b" if s == z3.BoolSort() else "i" for s in sorts)
        return z3.Function(f"{name}.{shown}{'t' * truth}", *sorts, sort)(*args)

    def is_number(self, of: Cls | str) -> bool:
        """Whether values of a type are computed with as integers."""
        return self.lane is not None or self.context.is_integer(of)

    def times(self, of: Cls | str, x: Value, y: Value) -> Value:
        """The product in a type."""
        if self.is_number(of):
            return x * y
        t = self.word(of)
        found = self.function("times", t, x, y)
        self.fact(found == self.function("times", t, y, x), COMMUTES)
        self.fact(z3.Implies(z3.Or(x == 0, y == 0), found == 0), FINITE)
        self.fact(z3.If(x == 1, found == y, z3.Implies(y == 1, found == x)))
        if self.context.target.fits or self.context.target.embeds:
            exact = self.function("exact", x, y)
            self.fact(z3.Implies(self.has(of, exact), found == exact))
        return found

    def plus(self, of: Cls | str, x: Value, y: Value) -> Value:
        if self.is_number(of):
            return x + y
        t = self.word(of)
        found = self.function("plus", t, x, y)
        self.fact(found == self.function("plus", t, y, x), COMMUTES)
        self.fact(z3.Implies(y == 0, found == x), UNSIGNED_ZERO)
        return found

    def cast(self, to: Cls | str, of: Cls | str, x: Value) -> Value:
        """A value in another type."""
        if self.context.string(to) == self.context.string(of):
            return x
        if self.context.string(to) == BOOL:
            return self.function("cast", self.word(to), self.word(of), x, truth=True)
        if self.context.string(of) == BOOL:
            x = z3.If(x, z3.IntVal(1), z3.IntVal(0))
        if self.lane is not None:
            return x
        found = self.function("cast", self.word(to), self.word(of), x)
        self.fact(z3.And(z3.Implies(x == 0, found == 0), z3.Implies(x == 1, found == 1)))
        if self.context.target.fits or self.context.target.embeds:
            self.fact(z3.Implies(self.has(to, x), found == x))
        return found

    def has(self, t: Cls | str, x: Value) -> Value:
        """Whether a number is a value of a type."""
        return self.function("has", self.word(t), x, truth=True)

    def memory(self, t: str, buffer: str, index: Value) -> Value:
        truth = self.context.string(t) == BOOL
        found = self.function("memory", self.word(t), self.word(buffer), index, truth=truth)
        if not truth and (self.context.target.fits or self.context.target.embeds):
            self.fact(z3.And(self.has(t, found), self.has(t, z3.IntVal(0))))
        return found if truth else self.small(found)

    def total(self, extent: Poly, summand: Callable[[Poly], Value]) -> Value:
        """A sum; its name stands for it, or its terms where the sizes are chosen."""
        extent = self.sizes.resolved(self.sizes.as_count(extent))
        terms = self.sizes.expanded(extent).constant
        if terms == 1 or (terms is not None and self.lane is not None):
            return sum((summand(number(i)) for i in range(terms)), start=z3.IntVal(0))
        name = f"sum {len(self.sums)}"
        self.sums[name] = Sum(extent, summand)
        return z3.Int(name)
