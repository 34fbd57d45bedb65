"""What a rule's premises say: classes with their lanes, types and values.

``Context`` takes statements of meanings (``meaning``, ``relations``) as true; ``conditions`` has
the other reader of the same statements, which makes goals of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Protocol

from selector.dataclass import dataclass
from selector.workbench.prove.sizes import ONE, ZERO, Poly, Sizes, Vacuous
from selector.workbench.prove.strings import INT32, Strings, is_literal

Cls = int
Arg = Cls | Poly | str
"""A class, an integer, or the name of a string: a literal without quotes, or ``?x``."""
At = Callable[[Any, Any], Any]
"""A formula at a lane: of ``values.Attempt`` and digits."""
_NUMBERS = ("Int", "Bop", "Broadcast", "Ramp")


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
        """A class is of a type of integers."""

    def strided(self, e: Cls, *strides: Cls) -> None:
        """A vector has parts so far apart: it is of integers, and so are the strides; or its parts
        are equal ones of any type, and the stride is 0."""

    def combined(self, op: str, e: Cls, a: Cls, b: Cls) -> None:
        """What an operator has made has the type of both sides; or one side is 0 and the other of
        any type: then a sum is the other one, and a product 0."""

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


@dataclass(frozen=True)
class Question:
    """What a premise leaves open: ``ways`` of which one holds, and which one it is known to be."""

    told: Callable[[], int | None]
    ways: tuple[Callable[[], None], ...]


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
    questions: list[Question] = field(default_factory=list[Question])
    moving: set[Cls] = field(default_factory=set[Cls])
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

    def is_zero(self, e: Cls) -> bool:
        """Whether a class is written as 0, or as a sum, a product or one copy that is."""
        if self.literal(e) == ZERO:
            return True
        return any(map(self._writes_zero, self.nodes.get(self.find(e), ())))

    def _writes_zero(self, node: Node) -> bool:
        match node.name, node.args:
            case "Bop", ("*", int(a), int(b)):
                return self.is_zero(a) or self.is_zero(b)
            case "Bop", ("+" | "-", int(a), int(b)):
                return self.is_zero(a) and self.is_zero(b)
            case "Broadcast" | "Ramp", (int(base), *_, Poly() as count):
                return self.sizes.resolved(count) == ONE and self.is_zero(base)
            case _:
                return False

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

    def number(self, e: Cls) -> None:
        """A new number takes the type of what it stands beside, one of integers."""
        self.integer(e)
        self.strings.free.add(self.string(e))

    def strided(self, e: Cls, *strides: Cls) -> None:
        for s in strides:
            told = partial(self._stride_told, e, s)
            ways = (partial(self._of_integers, e, s), partial(self._of_copies, e, s))
            self.questions.append(Question(told, ways))

    def _stride_told(self, e: Cls, s: Cls) -> int | None:
        t = self.string(e)
        if self.is_integer(e) or self.is_moving(s):
            return 0
        if is_literal(t) or self.is_zero(s) or t in map(self.strings.find, self.strings.copied):
            return 1
        return None

    def _of_integers(self, e: Cls, s: Cls) -> None:
        if not self.is_zero(s):
            self.same_type(e, s)
            self.integer(e)

    def _of_copies(self, e: Cls, s: Cls) -> None:
        if not self.is_zero(s):
            self.strings.copied.add(self.string(e))
            self._be_zero(s)

    def combined(self, op: str, e: Cls, a: Cls, b: Cls) -> None:
        told = partial(self._sum_told, op, a, b)
        ways = (
            partial(self.same_type, e, a, b),
            partial(self._with_zero, "+", op, e, a, b),
            partial(self._with_zero, "+", op, e, b, a),
            partial(self._with_zero, "*", op, e, a, b),
            partial(self._with_zero, "*", op, e, b, a),
        )
        self.questions.append(Question(told, ways))

    def _sum_told(self, op: str, a: Cls, b: Cls) -> int | None:
        op = self.string(op)
        if is_literal(op) and op not in ("+", "*"):
            return 0
        for side, way in ((b, 1), (a, 2)):
            if self.is_zero(side) and is_literal(op):
                return way if op == "+" else way + 2
        alike = self.string(a) == self.string(b)
        return 0 if alike or self.is_integer(a) or self.is_integer(b) else None

    def _with_zero(self, known: str, op: str, e: Cls, other: Cls, zero: Cls) -> None:
        self.strings.unite(self.string(op), known)
        self._be_zero(zero)
        if known == "+":
            self.same_type(e, other)
        else:
            self.integer(e)

    def is_moving(self, s: Cls) -> bool:
        """Whether a stride is known not to be 0."""
        return self.find(s) in map(self.find, self.moving) or bool(self.having(s, "Sym"))

    def moves(self, s: Cls) -> None:
        """A stride is not 0."""
        if self.is_zero(s):
            raise Vacuous("0 that is not 0")
        self.moving.add(s)

    def _be_zero(self, e: Cls) -> None:
        """A class is the number 0, as a rule wrote it: nothing that names its type is, and one copy
        or a ramp of one part is where its base is."""
        if self.is_zero(e):
            return
        nodes = self.nodes.get(self.find(e), ())
        if self.is_moving(e) or any(n.name not in _NUMBERS for n in nodes):
            raise Vacuous("0 that is not 0")
        self.lanes(e, ONE)
        for node in nodes:
            match node.name, node.args:
                case "Int", (Poly() as value,):
                    self.sizes.equate(value, ZERO)
                case "Bop", ("*", int(a), int(b)) if self.is_moving(a) or self.is_moving(b):
                    self._be_zero(b if self.is_moving(a) else a)
                case "Broadcast" | "Ramp", (int(base), *_):
                    self._be_zero(base)
                case _:
                    pass
        self.same_type(e, INT32)
        self.add(e, Node("Int", (ZERO,)))
        self.value(e, lambda at, d: at.z(ZERO))

    def answer(self, choices: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Answer what was left open: as all else tells, or as these choices say, the first way
        after them. The choices that were made, each with how many there were."""
        made: list[tuple[int, int]] = []
        while self.questions:
            known = next((q for q in self.questions if q.told() is not None), None)
            question = known or self.questions[0]
            way = question.told()
            if way is None:
                way = choices[len(made)] if len(made) < len(choices) else 0
                made.append((way, len(question.ways)))
            self.questions.remove(question)
            question.ways[way]()
        if any(map(self.strings.is_integer, self.strings.copied)):
            raise Vacuous("copies of integers, which are among ramps of integers")
        return tuple(made)

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
