"""What a rule's premises say: classes with their lanes, types and values.

``Context`` takes statements of meanings (``meaning``, ``relations``) as true; ``conditions`` has
the other reader of the same statements, which makes goals of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, Protocol

from selector.dataclass import dataclass
from selector.workbench.prove.sizes import Poly, Sizes, Vacuous

Cls = int
Arg = Cls | Poly | str
"""A class, an integer, or the name of a string: a literal without quotes, or ``?x``."""
At = Callable[[Any, Any], Any]
"""A formula at a lane: of ``values.Attempt`` and digits."""
BOOL = "uint1"
INT32 = "int32"


@dataclass(frozen=True, slots=True)
class Node:
    """A constructor over classes, integers and strings."""

    name: str
    args: tuple[Arg, ...]


class Say(Protocol):
    """How a meaning speaks; said of premises it is taken as true, said of goals it is proved."""

    @property
    def context(self) -> Context:
        """The premises."""
        ...

    def size(self, *counts: Poly) -> None:
        """Each count is at least 1."""

    def lanes(self, e: Cls, count: Poly) -> None:
        """A vector has so many lanes."""

    def same_type(self, *of: Cls | str) -> None:
        """Classes have one element type, or the one of that name."""

    def integer(self, e: Cls) -> None:
        """A class is of a type of integers (others have equal parts only: their strides are 0)."""

    def holds(self, relation: str, a: Poly, b: Poly) -> None:
        """Of integers: ``>``, ``=``, ``|`` (a divides b)."""

    def greatest(self, a: Poly, b: Poly, divisor: Poly) -> None:
        """A common divisor is the greatest one."""

    def either(self, a: Poly, *values: int) -> None:
        """An integer is one of these."""

    def value(self, e: Cls, at: At) -> None:
        """What a class is worth at every lane."""

    def lanewise(self, e: Cls, at: At) -> None:
        """What holds at every lane of a class."""

    def demand(self, is_so: bool, what: str) -> None:
        """A demand on how a term is written; premises satisfy it."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What the facts of the target say of an instruction; ``apart``: of a part of one."""

    location: str
    name: str
    m: Poly
    n: Poly
    types: tuple[str, str, str]
    apart: Poly | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is said of the target's instructions, by the names of their strings, and of types: which
    ones ``embed`` in which, and into which their products ``fit``.
    """

    units: list[Unit] = field(default_factory=list[Unit])
    packings: dict[str, Poly] = field(default_factory=dict[str, Poly])
    configurable: set[str] = field(default_factory=set[str])
    embeds: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    fits: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


@dataclass(frozen=True, slots=True)
class Strings:
    """What is known of strings: what each is another name of, those that are types of integers,
    those that may become any, and which ones are ``apart``.
    """

    names: dict[str, str] = field(default_factory=dict[str, str])
    integers: set[str] = field(default_factory=set[str])
    free: set[str] = field(default_factory=set[str])
    apart: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def find(self, name: str) -> str:
        """The literal or the variable that a string is."""
        while name in self.names:
            name = self.names[name]
        return name

    def is_integer(self, name: str) -> bool:
        name = self.find(name)
        return name in self.integers or _is_integral(name)

    def unite(self, a: str, b: str) -> None:
        """Two strings are one."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return
        if is_literal(a):
            a, b = b, a
        if is_literal(a):
            raise Vacuous(f"{a} and {b} are one name")
        if a in self.integers:
            if is_literal(b) and not _is_integral(b):
                raise Vacuous(f"an integer of type {b}")
            self.integers.add(b)
        self.names[a] = b

    def differ(self, a: str, b: str) -> None:
        """Two strings are not one."""
        self.apart.append((a, b))

    def are_different(self, a: str, b: str) -> bool:
        """Whether two strings are known not to be one."""
        asked = {self.find(a), self.find(b)}
        both_known = len(asked) == 2 and all(map(is_literal, asked))
        return both_known or any({self.find(x), self.find(y)} == asked for x, y in self.apart)


@dataclass
class Context:
    """Premises, and the terms that are made of them."""

    sizes: Sizes = field(default_factory=Sizes)
    counts: dict[Cls, Poly] = field(default_factory=dict[Cls, Poly])
    nodes: dict[Cls, list[Node]] = field(default_factory=dict[Cls, list[Node]])
    values: dict[Cls, list[At]] = field(default_factory=dict[Cls, list[At]])
    everywhere: dict[Cls, list[At]] = field(default_factory=dict[Cls, list[At]])
    cases: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    target: Facts = field(default_factory=Facts)
    strings: Strings = field(default_factory=Strings)
    divisors: list[tuple[Poly, Poly, Poly]] = field(default_factory=list[tuple[Poly, Poly, Poly]])
    _same: dict[Cls, Cls] = field(default_factory=dict[Cls, Cls])

    @property
    def context(self) -> Context:
        return self

    def new(self, is_there: bool) -> Cls:
        """A class of which nothing is known; one that is there has lanes."""
        e = len(self.counts)
        self.counts[e] = self.sizes.fresh("lanes", is_there)
        return e

    def find(self, e: Cls) -> Cls:
        while e in self._same:
            e = self._same[e]
        return e

    def merge(self, a: Cls, b: Cls) -> None:
        """Two classes are one."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return
        self._same[b] = a
        self.sizes.equate(self.counts[a], self.counts[b])
        self.same_type(a, f"of:{b}")
        for table in (self.nodes, self.values, self.everywhere):
            table.setdefault(a, []).extend(table.pop(b, []))  # type: ignore[arg-type]

    def add(self, e: Cls, node: Node) -> None:
        self.nodes.setdefault(self.find(e), []).append(node)

    def having(self, e: Cls, name: str) -> list[Node]:
        """The nodes of a class with this constructor."""
        return [n for n in self.nodes.get(self.find(e), ()) if n.name == name]

    def literal(self, e: Cls) -> Poly | None:
        """The number that a class is written as."""
        found = self.having(e, "Int")
        value = found[0].args[0] if found else None
        return self.sizes.resolved(value) if isinstance(value, Poly) else None

    # strings; the types of classes are strings of their own

    def string(self, of: Cls | str) -> str:
        """The literal or the variable that a string or a class's type is."""
        return self.strings.find(of if isinstance(of, str) else f"of:{self.find(of)}")

    def is_integer(self, of: Cls | str) -> bool:
        return self.strings.is_integer(self.string(of))

    # what meanings say, taken as true

    def size(self, *counts: Poly) -> None:
        for p in counts:
            self.sizes.assume_positive(p)

    def lanes(self, e: Cls, count: Poly) -> None:
        self.sizes.equate(self.counts[self.find(e)], self.sizes.as_count(count))

    def same_type(self, *of: Cls | str) -> None:
        for other in of[1:]:
            self.strings.unite(self.string(of[0]), self.string(other))

    def integer(self, e: Cls) -> None:
        name = self.string(e)
        if is_literal(name) and not self.is_integer(name):
            raise Vacuous(f"an integer of type {name}")
        self.strings.integers.add(name)

    def holds(self, relation: str, a: Poly, b: Poly) -> None:
        match relation:
            case "=":
                self.sizes.equate(a, b)
            case "|":
                self.sizes.divides(b, a)
            case _:
                self.sizes.facts.append((relation, a, b))

    def greatest(self, a: Poly, b: Poly, divisor: Poly) -> None:
        self.divisors.append((a, b, divisor))

    def is_greatest(self, a: Poly, b: Poly, divisor: Poly) -> bool:
        """By Euclid: b of a multiple of b, or that of b and the rest, where that is known."""
        a, b, divisor = map(self.sizes.expanded, (a, b, divisor))
        if divisor == b and a.over(b) is not None:
            return True
        rests = [r for parts, (_, r) in self.sizes.parts.items() if self._are(parts, (a, b))]
        known = {tuple(map(self.sizes.expanded, row)) for row in self.divisors}
        return any((b, self.sizes.expanded(rest), divisor) in known for rest in rests)

    def _are(self, some: tuple[Poly, ...], others: tuple[Poly, ...]) -> bool:
        return tuple(map(self.sizes.expanded, some)) == others

    def either(self, a: Poly, *values: int) -> None:
        a = self.sizes.resolved(a)
        if a.name:
            self.cases[a.name] = values

    def value(self, e: Cls, at: At) -> None:
        self.values.setdefault(self.find(e), []).append(at)

    def lanewise(self, e: Cls, at: At) -> None:
        self.everywhere.setdefault(self.find(e), []).append(at)

    def demand(self, is_so: bool, what: str) -> None:
        return

    def lane_count(self, e: Cls) -> Poly:
        return self.sizes.resolved(self.counts[self.find(e)])


def is_literal(name: str) -> bool:
    """Whether a string is known."""
    return not name.startswith(("?", "of:"))


def _is_integral(name: str) -> bool:
    return name.startswith(("int", "uint")) and name != BOOL
