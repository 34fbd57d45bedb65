"""Sizes that nobody has chosen: polynomials over unknown integers, and lanes as digits.

Counts of lanes are products of unknowns (one term). That two vectors have equally many lanes, or
that one count divides another, is then solved by giving unknowns new names: ``0 = m % n`` makes m
the product n*k. A lane is a list of digits whose extents are such products, innermost first, as in
``selector.ir.lanes``; no lane needs a division.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from math import gcd, prod

from selector.dataclass import dataclass

Monomial = tuple[str, ...]


class Unproved(Exception):  # noqa: N818 (an outcome, not a mistake)
    """Something that a proof needs and does not have; the message says what."""


class Vacuous(Exception):  # noqa: N818
    """Premises that cannot hold together."""


@dataclass(frozen=True, slots=True)
class Poly:
    """A polynomial over named integers: terms (sorted names, coefficient), sorted, none zero."""

    terms: tuple[tuple[Monomial, int], ...]

    @staticmethod
    def of(terms: Iterable[tuple[Monomial, int]]) -> Poly:
        total: Counter[Monomial] = Counter()
        for names, factor in terms:
            total[names] += factor
        return Poly(tuple(sorted((m, c) for m, c in total.items() if c)))

    def __add__(self, other: Poly) -> Poly:
        return Poly.of((*self.terms, *other.terms))

    def __neg__(self) -> Poly:
        return Poly(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: Poly) -> Poly:
        return self + -other

    def __mul__(self, other: Poly) -> Poly:
        pairs = ((a, b) for a in self.terms for b in other.terms)
        return Poly.of((tuple(sorted(a[0] + b[0])), a[1] * b[1]) for a, b in pairs)

    @property
    def constant(self) -> int | None:
        """The number that this is, if it has no unknown."""
        if not self.terms:
            return 0
        return self.terms[0][1] if self.terms == ((((), self.terms[0][1])),) else None

    @property
    def name(self) -> str:
        """The one unknown that this is; empty if it is something else."""
        match self.terms:
            case (((str(name),), 1),):
                return name
            case _:
                return ""

    @property
    def is_product(self) -> bool:
        """Whether this is one positive term."""
        return len(self.terms) == 1 and self.terms[0][1] > 0

    def names(self) -> Iterator[str]:
        """The unknowns."""
        return (name for names, _ in self.terms for name in names)

    def over(self, other: Poly) -> Poly | None:
        """The quotient by one term, if it has no rest."""
        if len(other.terms) != 1:
            return None
        ((names, factor),) = other.terms
        found: list[tuple[Monomial, int]] = []
        for own, c in self.terms:
            rest = Counter(own)
            rest.subtract(names)
            if c % factor or min(rest.values(), default=0) < 0:
                return None
            found.append((tuple(sorted(rest.elements())), c // factor))
        return Poly.of(found)

    def where(self, known: Mapping[str, Poly]) -> Poly:
        """With polynomials in the place of unknowns."""
        if not any(name in known for name in self.names()):
            return self
        total = ZERO
        for names, factor in self.terms:
            total += prod((known.get(n, unknown(n)) for n in names), start=number(factor))
        return total

    def __str__(self) -> str:
        shown = ["*".join((*([str(c)] if c != 1 or not m else []), *m)) for m, c in self.terms]
        return " + ".join(reversed(shown)).replace("+ -1*", "- ").replace("+ -", "- ") or "0"


def number(value: int) -> Poly:
    return Poly((((), value),) if value else ())


def unknown(name: str) -> Poly:
    return Poly((((name,), 1),))


ZERO, ONE = number(0), number(1)

Digits = tuple[tuple[Poly, Poly], ...]
"""(digit, extent), innermost first; extents are products, none is 1."""


def lane_number(digits: Digits) -> Poly:
    """The number of a lane."""
    total, scale = ZERO, ONE
    for digit, extent in digits:
        total += digit * scale
        scale *= extent
    return total


def count(digits: Digits) -> Poly:
    return prod((extent for _, extent in digits), start=ONE)


@dataclass
class Sizes:
    """What is known of the integers of a rule.

    ``bound`` are unknowns that have become something else; ``defined`` sums that stay one factor of
    a count (the rows of a band); ``positive`` are at least 1; ``facts`` are (relation, a, b).
    """

    bound: dict[str, Poly] = field(default_factory=dict[str, Poly])
    defined: dict[str, Poly] = field(default_factory=dict[str, Poly])
    positive: set[str] = field(default_factory=set[str])
    facts: list[tuple[str, Poly, Poly]] = field(default_factory=list[tuple[str, Poly, Poly]])
    made: int = 0
    parts: dict[tuple[Poly, Poly], tuple[Poly, Poly]] = field(
        default_factory=dict[tuple[Poly, Poly], tuple[Poly, Poly]]
    )
    extremes: dict[str, tuple[str, Poly, Poly]] = field(
        default_factory=dict[str, tuple[str, Poly, Poly]]
    )

    def fresh(self, about: str, positive: bool = False) -> Poly:
        """A new unknown."""
        self.made += 1
        name = f"{about}'{self.made}"
        if positive:
            self.positive.add(name)
        return unknown(name)

    def resolved(self, p: Poly) -> Poly:
        """In the unknowns that are left; sums of a name stay one factor."""
        while any(name in self.bound for name in p.names()):
            p = p.where(self.bound)
        return p

    def expanded(self, p: Poly) -> Poly:
        """Without names for sums."""
        p = self.resolved(p)
        while any(name in self.defined for name in p.names()):
            p = self.resolved(p.where(self.defined))
        return p

    def as_count(self, p: Poly) -> Poly:
        """A count as one product; a sum gets a name."""
        p = self.resolved(p)
        if p.is_product or p.constant is not None:
            return p
        for name, known in self.defined.items():
            if self.expanded(known) == self.expanded(p):
                return unknown(name)
        named = self.fresh("size")
        self.defined[named.name] = p
        return named

    def is_positive(self, p: Poly) -> bool:
        """Whether it is plain that p >= 1."""
        p = self.resolved(p)
        return bool(p.terms) and all(
            c > 0 and all(n in self.positive for n in names) for names, c in p.terms
        )

    def assume_positive(self, p: Poly) -> None:
        """All factors of a count are counts."""
        p = self.resolved(p)
        if p.constant is not None and p.constant < 1:
            raise Vacuous(f"a count of {p.constant}")
        if len(p.terms) == 1 and p.terms[0][1] == 1 and len(p.terms[0][0]) == 1:
            self.positive.add(p.name)
        else:
            self.facts.append((">", p, ZERO))

    def equate(self, a: Poly, b: Poly) -> None:
        """Make two integers one."""
        a, b = self.resolved(a), self.resolved(b)
        if a == b:
            return
        if a.constant is not None and b.constant is not None:
            raise Vacuous(f"{a} = {b}")
        for one, other in ((a, b), (b, a), (-a, -b), (-b, -a)):
            if one.name and one.name not in [*self.expanded(other).names(), *self.defined]:
                self._bind(one.name, other)
                return
        if not (self._refine(a, b) or self._cancel(a, b)):
            self.facts.append(("=", a, b))

    def _bind(self, name: str, value: Poly) -> None:
        if name in self.positive:
            self.assume_positive(value)
        if value.is_product or value.constant is not None or len(value.terms) == 1:
            self.bound[name] = value
        else:
            self.defined[name] = value

    def _cancel(self, a: Poly, b: Poly) -> bool:
        """A product with counts that is 0: its other factor is."""
        product, zero = (b, a) if a == ZERO else (a, b)
        if zero != ZERO or len(product.terms) != 1:
            return False
        others = [n for n in product.terms[0][0] if n not in self.positive]
        if len(others) != 1 or others[0] in self.defined:
            return False
        self.bound[others[0]] = ZERO
        return True

    def _refine(self, a: Poly, b: Poly) -> bool:
        """Equal products of counts: common factors are cancelled, the others are cut into common
        ones."""
        if not (a.is_product and b.is_product and self.is_positive(a) and self.is_positive(b)):
            return False
        (left, c), (right, d) = a.terms[0], b.terms[0]
        both = Counter(left) & Counter(right)
        xs = list((Counter(left) - both).elements())
        ys = list((Counter(right) - both).elements())
        common = gcd(c, d)
        c, d = c // common, d // common
        distinct = len(xs) == len(set(xs)) and len(ys) == len(set(ys))
        if c == d == 1 and (distinct or not xs or not ys):  # a product that is 1 has factors of 1
            self._cut(xs, ys)
            return True
        return False

    def _cut(self, xs: list[str], ys: list[str]) -> None:
        if len(xs) == 1 or len(ys) == 1:
            name, others = (xs[0], ys) if len(xs) == 1 else (ys[0], xs)
            self.bound[name] = prod(map(unknown, others), start=ONE)
            return
        for name in xs if not ys else ys if not xs else ():
            self.bound[name] = ONE
        if xs and ys:
            grid = [[self.fresh("part", True) for _ in ys] for _ in xs]
            for x, row in zip(xs, grid, strict=True):
                self.bound[x] = prod(row, start=ONE)
            for j, y in enumerate(ys):
                self.bound[y] = prod((row[j] for row in grid), start=ONE)

    def divides(self, m: Poly, n: Poly) -> None:
        """Make m a multiple of n."""
        m, n = self.resolved(m), self.resolved(n)
        if m.over(n) is not None:
            return
        both = self.is_positive(m) and self.is_positive(n)
        self.equate(m, n * self.fresh("times", both))

    def quotient(self, a: Poly, b: Poly) -> tuple[Poly, Poly]:
        """a / b and a % b as egglog takes them: towards zero, the rest with the sign of a."""
        a, b = self.expanded(a), self.resolved(b)
        exact = a.over(b)
        if exact is not None:
            return exact, ZERO
        rest = b - ONE  # whole groups are as many groups when they are rounded up
        groups = (a - rest).over(b)
        if groups is not None and self.is_positive(b) and self.is_positive(groups):
            return groups, rest
        if (a, b) not in self.parts:
            rounded_up = self.is_positive(b) and self.is_positive(a - b + ONE)
            q, r = self.fresh("quotient", rounded_up), self.fresh("rest")
            self.parts[a, b] = self.parts[b * q + r, b] = q, r
            alone = next((n for n in a.names() if self._is_alone(n, a, b)), "")
            if alone:
                others = a - unknown(alone)
                self.facts.append(("euclid", r, b))
                self.facts.append(("sign", r, b * q + r))
                self.bound[alone] = b * q + r - others
                self.parts[self.expanded(a), b] = q, r
            else:
                self.facts += [("=", a, b * q + r), ("euclid", r, b), ("sign", r, a)]
        q, r = self.parts[a, b]
        return self.resolved(q), self.resolved(r)

    def _is_alone(self, name: str, a: Poly, b: Poly) -> bool:
        """Whether an integer, no count, is a term of a and occurs nowhere else."""
        if name in {*self.positive, *self.defined, *self.expanded(b).names()}:
            return False
        return Counter(a.names())[name] == 1 and ((name,), 1) in a.terms

    def extreme(self, op: str, a: Poly, b: Poly) -> Poly:
        """min or max."""
        for name, known in self.extremes.items():
            if known == (op, a, b):
                return unknown(name)
        found = self.fresh(op)
        self.extremes[found.name] = (op, a, b)
        return found
