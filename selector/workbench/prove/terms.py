"""Polynomials over unknown values: what an expression of the IR is at a lane.

A value is a polynomial of *atoms*: an element of memory, a digit of the lane, a comparison (1 or
0), a value that is rounded. Sums, products and choices of values are polynomials again, so most
equalities are seen from the normal form; z3 is asked of the others, with memory as functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import z3

from selector.dataclass import dataclass
from selector.workbench.prove.formulas import Value, new_solver
from selector.workbench.prove.sizes import Unproved

_MOST_TERMS = 2000
_MOST_CASES = 40
_RESOURCES = 1_000_000
_COMPARISONS = ("below", "same")
Number = int | Fraction


class TooMany(Unproved):
    """A question that is too large: of fewer lanes it may be small."""


Range = tuple[int, int]
Key = tuple[tuple[tuple[int, ...], Number], ...]


@dataclass(frozen=True, slots=True)
class Atom:
    """An unknown number. ``kind`` says how it follows from ``args`` (names, and keys of
    polynomials); ``whole``: an integer; ``within``: the least and the largest value."""

    kind: str
    args: tuple[Any, ...]
    whole: bool = True
    within: Range | None = None


class Poly:
    """A polynomial: coefficients by the sorted numbers of atoms."""

    __slots__ = ("_key", "terms")

    def __init__(self, terms: Mapping[tuple[int, ...], Number]) -> None:
        self.terms = terms
        self._key: Key | None = None

    @property
    def key(self) -> Key:
        if self._key is None:
            self._key = tuple(sorted(self.terms.items()))
        return self._key

    @property
    def constant(self) -> Number | None:
        """The number that it is; None for any other."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    def __add__(self, other: Poly) -> Poly:
        terms = dict(self.terms)
        for atoms, factor in other.terms.items():
            total = terms.get(atoms, 0) + factor
            if total:
                terms[atoms] = total
            else:
                del terms[atoms]
        return Poly(terms)

    def __neg__(self) -> Poly:
        return Poly({atoms: -factor for atoms, factor in self.terms.items()})

    def __sub__(self, other: Poly) -> Poly:
        return self + -other

    def scaled(self, by: Number) -> Poly:
        return Poly({atoms: factor * by for atoms, factor in self.terms.items()} if by else {})


def number(value: Number) -> Poly:
    if isinstance(value, Fraction) and value.denominator == 1:
        value = value.numerator
    return Poly({(): value} if value else {})


ZERO, ONE = number(0), number(1)


class Terms:
    """The atoms of one question, and z3's word for them."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self._numbers: dict[Atom, int] = {}
        self._shown: dict[int, Value] = {}

    def atom(self, kind: str, *args: Any, whole: bool = True, within: Range | None = None) -> Poly:
        made = Atom(kind, args, whole, within)
        if made not in self._numbers:
            self._numbers[made] = len(self.atoms)
            self.atoms.append(made)
        return Poly({(self._numbers[made],): 1})

    def times(self, a: Poly, b: Poly) -> Poly:
        for factor, other in ((a.constant, b), (b.constant, a)):
            if factor is not None:
                return other if factor == 1 else other.scaled(factor)
        terms: dict[tuple[int, ...], Number] = {}
        for left, x in a.terms.items():
            for right, y in b.terms.items():
                atoms = self._product(left, right) if left and right else left or right
                total = terms.get(atoms, 0) + x * y
                if total:
                    terms[atoms] = total
                else:
                    del terms[atoms]
        if len(terms) > _MOST_TERMS:
            raise TooMany("a product of too many terms")
        return Poly(terms)

    def _product(self, left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
        """Of what is 1 or 0, the square is the same."""
        merged = sorted(left + right)
        return tuple(
            n for i, n in enumerate(merged)
            if not (i and n == merged[i - 1] and self.atoms[n].within == (0, 1))
        )  # fmt: skip

    # conditions

    def below(self, a: Poly, b: Poly) -> Poly:
        """1 where a < b, and 0."""
        d = a - b
        low, high = self.range_of(d)
        if high is not None and high < 0:
            return ONE
        if low is not None and low >= 0:
            return ZERO
        return self.atom("below", d.key, within=(0, 1))

    def same(self, a: Poly, b: Poly) -> Poly:
        d = a - b
        low, high = self.range_of(d)
        if (low is not None and low > 0) or (high is not None and high < 0):
            return ZERO
        if not d.terms:
            return ONE
        first = d.key[0][1]
        return self.atom("same", (d if first > 0 else -d).key, within=(0, 1))

    def chosen(self, condition: Poly, then: Poly, otherwise: Poly) -> Poly:
        return otherwise + self.times(condition, then - otherwise)

    # integers

    def range_of(self, p: Poly) -> tuple[Number | None, Number | None]:
        """The least and the largest value, as far as they are known."""
        low: Number | None = 0
        high: Number | None = 0
        for atoms, factor in p.terms.items():
            ends: tuple[Number, Number] | None = (factor, factor)
            for n in atoms:
                within = self.atoms[n].within
                if within is None or ends is None:
                    ends = None
                else:
                    products = [x * y for x in ends for y in within]
                    ends = min(products), max(products)
            if ends is None:
                return None, None
            low, high = low + ends[0], high + ends[1]
        return low, high

    def whole_range(self, p: Poly) -> Range | None:
        """The same of an integer, if both are known."""
        low, high = self.range_of(p)
        return (low, high) if isinstance(low, int) and isinstance(high, int) else None

    def divided(self, a: Poly, by: int) -> Poly:
        """Rounded down, by a positive number."""
        quotient = Poly({m: c // by for m, c in a.terms.items() if c // by})
        rest = a - quotient.scaled(by)
        low, high = self.range_of(rest)
        if low is not None and high is not None and low // by == high // by:
            return quotient + number(low // by)
        return quotient + self.atom("quotient", rest.key, by)

    def parts(self, p: Poly, atom: Poly) -> tuple[Poly, Poly]:
        """The factor of an atom in a polynomial that is linear in it, and what is left."""
        ((n,),) = atom.terms
        own: dict[tuple[int, ...], Number] = {}
        rest: dict[tuple[int, ...], Number] = {}
        for atoms, factor in p.terms.items():
            if n in atoms:
                own[tuple(m for m in atoms if m != n)] = factor
                if atoms.count(n) > 1:
                    raise Unproved("a sum that is multiplied by one")
            else:
                rest[atoms] = factor
        return Poly(own), Poly(rest)

    def inside(self, p: Poly) -> Iterator[Atom]:
        """The atoms of a polynomial, and of what these are of."""
        seen: set[int] = set()
        stack = [n for atoms in p.terms for n in atoms]
        while stack:
            n = stack.pop()
            if n in seen:
                continue
            seen.add(n)
            yield self.atoms[n]
            stack += [m for arg in self.atoms[n].args for m in _numbers(arg)]

    # z3

    def equal(self, a: Poly, b: Poly) -> str:
        """How z3 denies that two values are equal; empty if it cannot. ``Unproved`` if it does not
        know."""
        cases = [(a - b, {})]
        asked = 0
        while cases:
            d, given = cases.pop()
            if not d.terms:
                continue
            condition = next(self._conditions(d), None)
            if condition is not None:
                for holds in (given[condition],) if condition in given else (0, 1):
                    rest = self._assigned(d, condition, holds, {})
                    cases.append((rest, {**given, condition: holds}))
                continue
            asked += 1
            if asked > _MOST_CASES:
                raise TooMany("a difference of too many cases")
            found = self._denied(d, given)
            if found:
                return found
        return ""

    def _conditions(self, p: Poly) -> Iterator[int]:
        """Comparisons that a value depends on, the innermost first."""
        for atoms in p.terms:
            for n in atoms:
                for arg in self.atoms[n].args:
                    if _is_key(arg):
                        yield from self._conditions(Poly(dict(arg)))
                if self.atoms[n].kind in _COMPARISONS:
                    yield n

    def _assigned(self, p: Poly, condition: int, holds: int, known: dict[int, Poly | None]) -> Poly:
        """A value where a comparison holds, or does not. ``known``: atoms there, None for those
        that are what they were."""
        same: dict[tuple[int, ...], Number] = {}
        changed: list[Poly] = []
        for atoms, factor in p.terms.items():
            for n in atoms:
                if n not in known:
                    known[n] = self._atom_assigned(n, condition, holds, known)
            if all(known[n] is None for n in atoms):
                same[atoms] = factor
                continue
            term = number(factor)
            for n in atoms:
                term = self.times(term, known[n] or Poly({(n,): 1}))
            changed.append(term)
        return sum(changed, Poly(same)) if changed else p

    def _atom_assigned(
        self, n: int, condition: int, holds: int, known: dict[int, Poly | None]
    ) -> Poly | None:
        if n == condition:
            return number(holds)
        atom = self.atoms[n]
        args = [
            self._assigned(Poly(dict(a)), condition, holds, known) if _is_key(a) else a
            for a in atom.args
        ]
        keys = tuple(a.key if isinstance(a, Poly) else a for a in args)
        if keys == atom.args:
            return None
        match atom.kind, args:
            case "below", (Poly() as d,):
                return self.below(d, ZERO)
            case "same", (Poly() as d,):
                return self.same(d, ZERO)
            case "quotient", (Poly() as d, int(by)):
                return self.divided(d, by)
            case _:
                return self.atom(atom.kind, *keys, whole=atom.whole, within=atom.within)

    def _denied(self, d: Poly, given: Mapping[int, int]) -> str:
        """Numbers with which a difference is not zero, of a case."""
        about = [d, *(Poly(dict(self.atoms[n].args[0])) for n in given)]
        formulas = [*self._facts(about)]
        for n, holds in given.items():
            inner = self.shown(self.atoms[n].args[0])
            held = inner < 0 if self.atoms[n].kind == "below" else inner == 0
            formulas.append(held if holds else z3.Not(held))
        solver = new_solver(formulas, _RESOURCES)
        if solver.check() == z3.unsat:  # mostly there is no such case
            return ""
        solver = new_solver([*formulas, self.shown(d.key) != 0], _RESOURCES)
        answer = solver.check()
        if answer == z3.unknown:
            raise TooMany("z3 does not know")
        return _told(solver.model()) if answer == z3.sat else ""

    def _facts(self, about: Iterable[Poly]) -> Iterator[Value]:
        for p in about:
            for atom in self.inside(p):
                if atom.within is not None and atom.kind not in _COMPARISONS:
                    value = self.shown((((self._numbers[atom],), 1),))
                    yield z3.And(atom.within[0] <= value, value <= atom.within[1])

    def shown(self, key: Key) -> Value:
        """A polynomial for z3."""
        total: Value = z3.IntVal(0)
        for atoms, factor in key:
            whole = isinstance(factor, int)
            term: Value = z3.IntVal(factor) if whole else z3.Q(factor.numerator, factor.denominator)
            for n in atoms:
                term = term * self._atom(n)
            total = total + term
        return total

    def _atom(self, n: int) -> Value:
        if n not in self._shown:
            self._shown[n] = self._made(self.atoms[n])
        return self._shown[n]

    def _made(self, atom: Atom) -> Value:
        match atom.kind, atom.args:
            case "below", (key,):
                return z3.If(self.shown(key) < 0, z3.IntVal(1), z3.IntVal(0))
            case "same", (key,):
                return z3.If(self.shown(key) == 0, z3.IntVal(1), z3.IntVal(0))
            case "quotient", (key, by):
                return self.shown(key) / by
            case kind, args:
                names = [str(a) for a in args if not _is_key(a)]
                values = [self.shown(a) for a in args if _is_key(a)]
                sort = z3.IntSort() if atom.whole else z3.RealSort()
                name = " ".join([kind, *names])
                if not values:
                    return z3.Const(name, sort)
                f = z3.Function(name, *(v.sort() for v in values), sort)
                return f(*values)


def _is_key(arg: object) -> bool:
    return isinstance(arg, tuple)


def _numbers(arg: object) -> Iterable[int]:
    return (n for atoms, _ in arg for n in atoms) if isinstance(arg, tuple) else ()


def _told(model: z3.ModelRef) -> str:
    """The numbers of a counterexample, functions left out."""
    known = [(str(d), model[d]) for d in model.decls() if d.arity() == 0]
    return ", ".join(f"{name} = {value}" for name, value in sorted(known)) or "for some memory"
